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

mod change;
mod fault;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod subscription;

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

pub use self::change::Change;
pub(crate) use self::fault::unsupported;
pub use self::fault::{Fault, cause};
pub use self::subscription::{Signal, Subscription};
use crate::clock::Tick;
use crate::key::Resource;
use crate::owner::Owner;

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

/// Who holds a key, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Each holder's name and count.
    pub holders: Vec<(Vec<u8>, u64)>,
    /// What is left of the lease; `None` where the key is free or has no end set.
    pub ttl: Option<Duration>,
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
