//! An attempt or a release that travels with others.

use redis::Value;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::collector::Collected;
use crate::backend::redis::names;
use crate::backend::redis::reply;
use crate::backend::redis::script::Call;
use crate::backend::{Attempt, Fault, Target};
use crate::resource::key::Key;
use crate::resource::owner::{OWNER_BUFFER, Owner};
use crate::sync::foreign;

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

/// What an operation does with its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Acquires all of them, or none.
    Acquire,
    /// Releases each of them, and publishes to its channel.
    Release,
}

/// A lock of an operation.
pub(crate) struct OneLock {
    key: Key,
    owner: Owner,
    /// To acquire it, in milliseconds.
    lease: u64,
}

/// An attempt or a release that travels with others.
pub(crate) struct Operation {
    verb: Verb,
    /// At least one.
    locks: SmallVec<[OneLock; 1]>,
    /// Its locks are acquired or released together. Its answer is that of the script for several locks, also if it has only one.
    is_of_several: bool,
    /// `None` if nobody waits for the answer.
    caller: Option<Caller>,
}

impl Operation {
    /// An attempt at one lock.
    pub(crate) fn attempt(attempt: &Attempt) -> Self {
        Self::new(Verb::Acquire, false, [OneLock::attempted(attempt)])
    }

    /// An attempt at several locks.
    pub(crate) fn attempt_all(attempts: &[Attempt]) -> Self {
        Self::new(Verb::Acquire, true, attempts.iter().map(OneLock::attempted))
    }

    /// The release of one lock.
    pub(crate) fn release(target: &Target) -> Self {
        Self::new(Verb::Release, false, [OneLock::released(target)])
    }

    /// The release of several locks.
    pub(crate) fn release_all(targets: &[Target]) -> Self {
        Self::new(Verb::Release, true, targets.iter().map(OneLock::released))
    }

    fn new(verb: Verb, is_of_several: bool, locks: impl IntoIterator<Item = OneLock>) -> Self {
        Self {
            verb,
            locks: locks.into_iter().collect(),
            is_of_several,
            caller: None,
        }
    }

    /// The same operation, whose caller waits for the answer.
    pub(crate) fn of(self, caller: Caller) -> Self {
        let caller = Some(caller);
        Self { caller, ..self }
    }

    /// The caller, if one waits for the answer.
    pub(crate) fn into_caller(self) -> Option<Caller> {
        self.caller
    }

    /// Tells the caller the answer. Returns what withdraws this attempt, if its caller has left and it may have been granted.
    pub(crate) fn tell(self, answer: Result<Value, Fault>, may_be_granted: bool) -> Option<Self> {
        let has_left = self.caller?.tell(Told::Answer(answer));
        let is_withdrawn = has_left && may_be_granted && self.verb == Verb::Acquire;
        is_withdrawn.then_some(Self {
            verb: Verb::Release,
            locks: self.locks,
            is_of_several: self.is_of_several,
            caller: None,
        })
    }

    /// The first key. The others are on the same server.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.locks.first().map(|lock| &lock.key)
    }

    /// The names of its locks.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|lock| &**lock.key.name())
    }

    /// Adds the arguments to the call of a batch, whose keys were added.
    pub(crate) fn add_to(&self, call: Call) -> Call {
        let several = self.locks.len() > 1;
        let call = if several {
            call.arg(self.locks.len())
        } else {
            call
        };
        self.locks.iter().fold(call, |call, lock| {
            let call = call.owner(lock.owner);
            match self.verb {
                Verb::Acquire => call.arg(lock.lease),
                Verb::Release => call.arg(names::lock_channel(lock.key.name())),
            }
        })
    }
}

impl OneLock {
    fn attempted(attempt: &Attempt) -> Self {
        Self {
            lease: reply::millis(attempt.lease),
            ..Self::released(&attempt.target)
        }
    }

    fn released(target: &Target) -> Self {
        Self {
            key: target.resource.key.clone(),
            owner: target.owner,
            lease: 0,
        }
    }
}

impl Collected for Operation {
    fn is_end(&self) -> bool {
        self.verb == Verb::Release
    }

    fn locks(&self) -> usize {
        self.locks.len()
    }

    fn bytes(&self) -> usize {
        // The channel is the name with some more, for which the rest of the owner's room is enough.
        let names = match self.verb {
            Verb::Acquire => 1,
            Verb::Release => 2,
        };
        let of_each = self
            .names()
            .map(|name| (name.len() + size_of_val(&OWNER_BUFFER)) * names);
        of_each.sum()
    }

    fn is_wanted(&self) -> bool {
        self.caller
            .as_ref()
            .is_none_or(|caller| !caller.0.is_closed())
    }
}
