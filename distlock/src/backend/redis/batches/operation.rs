//! An attempt or a release that travels with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;
use tokio::sync::oneshot;

use super::collector::Collected;
use crate::backend::Fault;
use crate::backend::redis::names;
use crate::backend::redis::script::Call;
use crate::resource::key::Key;
use crate::resource::owner::{OWNER_BUFFER, Owner};
use crate::sync::foreign;

/// What an operation does.
pub(crate) enum Wanted {
    /// Acquires, for this lease in milliseconds.
    Acquire(u64),
    /// Releases, and publishes to the channel of the key.
    Release,
}

/// What the caller of an operation is told.
pub(crate) enum Told {
    /// The answer.
    Answer(Result<Value, Fault>),
    /// It was not sent, and its caller has to send it alone.
    NotSent,
}

/// Who is told the answer of an operation.
pub(crate) struct Caller {
    told: oneshot::Sender<Told>,
    has_left: Arc<AtomicBool>,
}

impl Caller {
    /// A caller, and what it waits with.
    pub(crate) fn new() -> (Self, Waiting) {
        let (told, answer) = oneshot::channel();
        let has_left = Arc::new(AtomicBool::new(false));
        let waiting = Waiting {
            left: Left {
                has_left: Arc::clone(&has_left),
                is_waiting: true,
            },
            answer,
        };
        (Self { told, has_left }, waiting)
    }

    /// Tells the caller. Returns whether it was dropped while it waited.
    pub(crate) fn tell(self, told: Told) -> bool {
        // Acquire: pairs with the drop of `Left`.
        foreign::answer(self.told, told).is_err() && self.has_left.load(Ordering::Acquire)
    }
}

/// The wait of a caller. The fields are dropped in this order: who finds that nobody listens finds out why.
pub(crate) struct Waiting {
    left: Left,
    pub(crate) answer: oneshot::Receiver<Told>,
}

impl Waiting {
    /// The caller has its answer, or has given up. An owner whose attempt was given up may be used again.
    pub(crate) fn end(mut self) {
        // A rule of tests/model: attempt_that_was_given_up_is_not_withdrawn.
        self.left.is_waiting = false;
    }
}

/// Records that a caller was dropped. Its owner is not used again.
struct Left {
    has_left: Arc<AtomicBool>,
    is_waiting: bool,
}

impl Drop for Left {
    fn drop(&mut self) {
        if self.is_waiting {
            // Release: pairs with `Caller::tell`.
            self.has_left.store(true, Ordering::Release);
        }
    }
}

/// An attempt or a release that travels with others.
pub(crate) struct Operation {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) wanted: Wanted,
    /// `None` if nobody waits for the answer.
    pub(crate) caller: Option<Caller>,
}

impl Operation {
    /// Adds the arguments to the call of a batch, whose keys were added.
    pub(crate) fn add_to(&self, call: Call) -> Call {
        let call = call.owner(self.owner);
        match &self.wanted {
            Wanted::Acquire(lease) => call.arg(*lease),
            Wanted::Release => call.arg(names::lock_channel(self.key.name())),
        }
    }
}

impl Collected for Operation {
    fn is_end(&self) -> bool {
        matches!(self.wanted, Wanted::Release)
    }

    fn bytes(&self) -> usize {
        // The channel is the name with some more, for which the rest of the owner's room is enough.
        let names = match &self.wanted {
            Wanted::Acquire(_) => 1,
            Wanted::Release => 2,
        };
        (self.key.name().len() + size_of_val(&OWNER_BUFFER)) * names
    }

    fn is_wanted(&self) -> bool {
        self.caller
            .as_ref()
            .is_none_or(|caller| !caller.told.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_that_was_dropped_has_left_and_one_that_gave_up_has_not() {
        let answer = || Told::Answer(Ok(Value::Nil));
        let (dropped, waiting) = Caller::new();
        drop(waiting);
        assert!(dropped.tell(answer()));
        // Its owner may hold the key by now.
        let (gave_up, waiting) = Caller::new();
        waiting.end();
        assert!(!gave_up.tell(answer()));
        let (told, waiting) = Caller::new();
        assert!(!told.tell(answer()));
        waiting.end();
    }
}
