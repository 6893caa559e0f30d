//! An attempt or a release that travels with others.

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
pub(crate) struct Caller(oneshot::Sender<Told>);

impl Caller {
    /// A caller, and what it waits with. It waits for as long as nobody drops it.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Told>) {
        let (told, waiting) = oneshot::channel();
        (Self(told), waiting)
    }

    /// Tells the caller. Returns whether it was dropped while it waited.
    pub(crate) fn tell(self, told: Told) -> bool {
        foreign::answer(self.0, told).is_err()
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
            .is_none_or(|caller| !caller.0.is_closed())
    }
}
