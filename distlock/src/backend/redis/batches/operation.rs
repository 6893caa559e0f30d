//! An attempt or a release that travels with others.

use redis::Value;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::collector::Collected;
use crate::backend::redis::reply;
use crate::backend::{Attempt, Fault, Target};
use crate::config::{
    ALONE_AT_ONCE, BATCHES_AT_ONCE, READER_BATCHES_AT_ONCE, READERS_ALONE_AT_ONCE,
};
use crate::resource::key::Key;
use crate::resource::kind::Kind;
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

/// Which operations go together. Each kind of batch has a script of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Those of plain locks.
    Locks,
    /// Those of readers.
    Readers,
}

impl BatchKind {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Read => Self::Readers,
            _ => Self::Locks,
        }
    }

    /// How many operations are unanswered before what comes up next is collected.
    pub(super) fn alone_at_once(self) -> usize {
        match self {
            Self::Locks => ALONE_AT_ONCE,
            Self::Readers => READERS_ALONE_AT_ONCE,
        }
    }

    /// How many of them a runtime has under way before what comes up next waits for an answer.
    pub(super) fn at_once(self) -> usize {
        match self {
            Self::Locks => BATCHES_AT_ONCE,
            Self::Readers => READER_BATCHES_AT_ONCE,
        }
    }

    /// How often the call of a batch has the name of a lock, at most: as it is, or as a part of other names.
    fn names_of_a_lock(self, verb: Verb) -> usize {
        match (self, verb) {
            // The lock.
            (Self::Locks, Verb::Acquire) => 1,
            // The lock and its channel.
            (Self::Locks, Verb::Release) => 2,
            // The lock, its turn, its mark, the stem of its timeouts, and its channel.
            (Self::Readers, _) => 5,
        }
    }
}

/// What an operation does with its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Acquires all of them, or none.
    Acquire,
    /// Releases each of them, and publishes to its channel.
    Release,
}

pub(crate) struct OneLock {
    pub(super) key: Key,
    pub(super) owner: Owner,
    /// To acquire it, in milliseconds.
    pub(super) lease: u64,
}

/// An attempt or a release that travels with others.
pub(crate) struct Operation {
    kind: BatchKind,
    pub(super) verb: Verb,
    /// At least one.
    pub(super) locks: SmallVec<[OneLock; 1]>,
    /// `None` if nobody waits for the answer.
    caller: Option<Caller>,
}

impl Operation {
    /// An attempt at one lock.
    pub(crate) fn attempt(attempt: &Attempt) -> Self {
        let kind = BatchKind::of(attempt.target.resource.kind);
        Self::new(kind, Verb::Acquire, [OneLock::attempted(attempt)])
    }

    /// An attempt at several locks.
    pub(crate) fn attempt_all(attempts: &[Attempt]) -> Self {
        let locks = attempts.iter().map(OneLock::attempted);
        Self::new(BatchKind::Locks, Verb::Acquire, locks)
    }

    /// The release of one lock.
    pub(crate) fn release(target: &Target) -> Self {
        let kind = BatchKind::of(target.resource.kind);
        Self::new(kind, Verb::Release, [OneLock::released(target)])
    }

    /// The release of several locks.
    pub(crate) fn release_all(targets: &[Target]) -> Self {
        let locks = targets.iter().map(OneLock::released);
        Self::new(BatchKind::Locks, Verb::Release, locks)
    }

    fn new(kind: BatchKind, verb: Verb, locks: impl IntoIterator<Item = OneLock>) -> Self {
        Self {
            kind,
            verb,
            locks: locks.into_iter().collect(),
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
            kind: self.kind,
            verb: Verb::Release,
            locks: self.locks,
            caller: None,
        })
    }

    /// The first key. The others are on the same server.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.locks.first().map(|lock| &lock.key)
    }

    /// The names of its locks.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|lock| &**lock.key.name())
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
        // Other names than the lock's have some more, for which the rest of the owner's room is enough.
        let names = self.kind.names_of_a_lock(self.verb);
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
