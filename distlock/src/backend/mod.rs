//! What a lock server can do, in few verbs over [`Kind`] as data.
//!
//! Two implementations, memory and Redis, pass one conformance suite; a differential test drives both with the same
//! operations. Every verb states what is wanted and not a change, so whatever is sent twice does no harm.
//!
//! A backend never sees a guard, a task-local or a waiter.

// `pub` for the decorators of the workspace's tests, which the feature `test-util` opens this module to.
#![cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Tick;
use crate::error::{Cause, Error};
use crate::key::{Key, Resource};
use crate::kind::Kind;
use crate::owner::Owner;
use crate::permit_id::PermitId;

/// The answer of a backend, on its way.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Which owner's hold on which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is held, or is to be.
    pub resource: Resource,
    /// The owner whose hold it is, or is to be.
    pub owner: Owner,
    /// How many permits of a semaphore; 1 for all else.
    pub permits: u32,
    /// How long a release leaves the key taken, though nobody has it any more; of locks alone.
    pub taken_for: Duration,
}

impl Target {
    /// One permit, or a lock, that a release frees at once.
    pub fn of(resource: &Resource, owner: Owner) -> Self {
        Self {
            resource: resource.clone(),
            owner,
            permits: 1,
            taken_for: Duration::ZERO,
        }
    }

    /// The same, to be released at `now`, and left taken until then.
    pub(crate) fn taken_until(mut self, until: Tick, now: Tick) -> Self {
        self.taken_for = until.left(now);
        self
    }
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What is to be acquired, and for which owner.
    pub target: Target,
    /// For how long.
    pub lease: Duration,
    /// Where the server knows of waiters: refused, the owner is one of them for this long, or until it asks again.
    pub place: Option<Duration>,
    /// The owner of the write lock around this read, which lets it in.
    pub inside: Option<Owner>,
    /// The new fencing token has to be above this one.
    pub above: u64,
}

impl Attempt {
    /// An attempt that leaves nothing behind where it is refused.
    pub fn new(target: Target, lease: Duration) -> Self {
        Self {
            target,
            lease,
            place: None,
            inside: None,
            above: 0,
        }
    }
}

/// A hold that goes on: its owner keeps this count, for this lease or the longer one that it has.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The hold.
    pub target: Target,
    /// How often its owner has entered it.
    pub count: u32,
    /// The lease, counted from now.
    pub lease: Duration,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempted {
    /// The owner holds the key, once.
    Granted {
        /// The fencing token of this grant, where the kind has one.
        token: Option<u64>,
    },
    /// Others are in the way, for this long unless they renew or release; `None` where no end is known.
    Held {
        /// What is left of the other's lease.
        ttl: Option<Duration>,
    },
}

impl Attempted {
    /// Was it granted?
    #[cfg(feature = "test-util")]
    pub fn is_granted(self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

/// What a release came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The key is free.
    Freed {
        /// Did others than this client hear of it?
        others_wait: bool,
    },
    /// The owner held nothing.
    NotOurs,
}

/// A change of a semaphore or a latch, or a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the number where there is none: 1 if it was set, else 0.
    TrySet(u32),
    /// Adds to the number: what it is now.
    Add(i32),
    /// Takes all permits: how many they were.
    Drain,
    /// Counts a latch down by one: what is left.
    CountDown,
    /// The number, 0 where there is none.
    Count,
    /// Sets how many permits there are, out or not: how many are free now.
    SetPermits(u32),
    /// How many permits are out.
    AcquiredPermits,
    /// How many permits there are, out or not.
    TotalPermits,
    /// Gives back one permit, whoever has it: 1 if it was out, else 0.
    ReleasePermit(PermitId),
    /// Gives one permit a new lease: 1 if it was out, else 0.
    UpdateLease(PermitId, Duration),
    /// The milliseconds that one permit has left; -1 where it has no end, -2 where it is not out.
    RemainingLease(PermitId),
}

/// Who holds a key, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Each holder's name and count.
    pub holders: Vec<(Vec<u8>, u64)>,
    /// What is left of the lease; `None` where the key is free or has no end set.
    pub ttl: Option<Duration>,
}

/// Why a verb failed.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "what only a server can answer")
)]
pub enum Fault {
    /// It may have been carried out, or not, or may still be.
    Unknown(Cause),
    /// It was not carried out, and may be tried again.
    NotNow(Cause),
    /// The server refuses it to this user.
    Denied(Cause),
    /// The key holds something else.
    WrongType,
    /// The answer cannot be understood, or the script is at fault.
    Protocol(Cause),
}

impl Fault {
    /// Will trying again not help?
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Unknown(_) | Self::NotNow(_))
    }

    /// Is it certain that nothing was carried out?
    pub(crate) fn was_refused(&self) -> bool {
        matches!(self, Self::NotNow(_) | Self::Denied(_) | Self::WrongType)
    }

    /// As users see it, after trying for `after`.
    pub(crate) fn into_error(self, key: &Key, after: Duration) -> Error {
        let key = key.text().to_owned();
        match self {
            Self::Unknown(cause) | Self::NotNow(cause) => Error::Unavailable { key, after, cause },
            Self::Denied(cause) => Error::Denied { key, cause },
            Self::WrongType => Error::WrongType { key },
            Self::Protocol(cause) => Error::Protocol { key, cause },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(cause) => write!(f, "outcome unknown: {cause}"),
            Self::NotNow(cause) => write!(f, "not carried out: {cause}"),
            Self::Denied(cause) => write!(f, "denied: {cause}"),
            Self::WrongType => f.write_str("the key holds another type of value"),
            Self::Protocol(cause) => write!(f, "unexpected answer: {cause}"),
        }
    }
}

/// What a waiter learns from a key's channel. Messages are hints, and many may show as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// The subscription stands: messages will come.
    pub active: bool,
    /// Moves with each message, and whenever the subscription begins to stand or falls.
    pub version: u64,
}

/// A share in the subscription to a key's channel; it ends with its last share.
pub struct Subscription {
    signal: watch::Receiver<Signal>,
    _share: Box<dyn Send + Sync>,
}

impl Subscription {
    /// A share that hears `signal`; `share` is dropped with it.
    pub fn new(signal: watch::Receiver<Signal>, share: impl Send + Sync + 'static) -> Self {
        Self {
            signal,
            _share: Box::new(share),
        }
    }

    /// What the subscription says, for who passes it on.
    #[cfg(feature = "test-util")]
    pub fn signal(&self) -> watch::Receiver<Signal> {
        self.signal.clone()
    }

    /// Completes when it makes sense to ask again: at news, or where the subscription did not stand, when it does.
    pub(crate) async fn changed(&mut self, was_active: bool) {
        if was_active {
            self.next_version().await;
        } else {
            self.activated().await;
        }
    }

    /// Completes when the subscription stands.
    async fn activated(&mut self) {
        if self.signal.wait_for(|signal| signal.active).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.signal.borrow().active
    }

    /// From here on, only what is new counts as news.
    pub(crate) fn mark_seen(&mut self) {
        self.signal.mark_unchanged();
    }

    /// Completes at news since the last mark: a message, or a change of the subscription itself.
    async fn next_version(&mut self) {
        if self.signal.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A lock server.
///
/// Nobody above waits for a reply with a timer of its own: each verb answers within some response timeouts, with
/// [`Fault::Unknown`] where the server did not. Renewals and releases never stand behind attempts.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Takes the key for the owner, once, where it is free or already this owner's. Dropped unanswered, it may still
    /// be carried out.
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted>;

    /// Takes several keys of locks together, or none: the place of the first that is another's, or of any where all were
    /// granted. In one round trip where the server can.
    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, (usize, Attempted)>;

    /// Renews holds of one family: for each, whether it is still its owner's.
    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>>;

    /// Ends an owner's hold, whatever its count, and tells who waits. A lock with a [`taken_for`](Target::taken_for) is left taken
    /// for that time.
    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released>;

    /// Ends several owners' holds on locks, each as [`release`](Backend::release) does.
    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>>;

    /// Ends an owner of whom nobody knows what it has: a place among the waiters, a hold, or nothing. An attempt of this
    /// owner that comes later gets nothing that lasts.
    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        self.release(target)
    }

    /// Frees a key, whoever holds it; whether anyone did.
    fn force_release<'a>(&'a self, resource: &'a Resource) -> Reply<'a, bool>;

    /// Who holds a key.
    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected>;

    /// Changes the number of a semaphore or a latch; under the same owner it counts once, however often it is sent.
    fn adjust<'a>(&'a self, target: &'a Target, change: Change) -> Reply<'a, i64>;

    /// Listens for what a waiter of this target wants to hear of. Answers at once; the subscription stands when its
    /// signal says so.
    fn subscribe(&self, target: &Target) -> Subscription;

    /// Which connection commands travel over: those sent over the same one are carried out in order.
    fn epoch(&self) -> u64;

    /// Channels that this client keeps, or still has to leave.
    #[cfg(feature = "test-util")]
    fn channels(&self) -> usize {
        0
    }
}

/// The answer to a verb that a kind does not have.
pub(crate) fn unsupported(kind: Kind, verb: &str) -> Fault {
    Fault::Protocol(cause(format!("a {kind:?} cannot {verb}")))
}

/// A cause that is only a text.
pub fn cause(text: impl Into<String>) -> Cause {
    let boxed: Box<dyn std::error::Error + Send + Sync> = text.into().into();
    Arc::from(boxed)
}
