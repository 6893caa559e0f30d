//! What an acquisition, a renewal and a release say to a server, and its answers.

use std::time::Duration;

use super::through::Through;
use crate::clock::Tick;
use crate::error::HeldBy;
use crate::resource::key::Resource;
use crate::resource::owner::Owner;

/// One owner's hold on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is held, or is to be acquired.
    pub resource: Resource,
    /// Who holds it, or is to hold it.
    pub owner: Owner,
    /// The number of permits of a semaphore; 1 for every other kind.
    pub permits: u32,
    /// How long a release leaves the key taken without a holder; zero frees it at once. Locks only.
    pub taken_for: Duration,
    /// Whether an attempt of this owner was not answered and may still arrive. The server then remembers the release, so
    /// that the attempt takes nothing. Plain semaphores only: the owners of other kinds are withdrawn repeatedly.
    pub in_doubt: bool,
}

impl Target {
    /// One permit, or a lock that a release frees at once.
    pub fn of(resource: &Resource, owner: Owner) -> Self {
        Self {
            resource: resource.clone(),
            owner,
            permits: 1,
            taken_for: Duration::ZERO,
            in_doubt: false,
        }
    }

    /// This target for a release at `now` that leaves the key taken until `until`.
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
    /// The lease, counted from now.
    pub lease: Duration,
    /// How long the server keeps the owner in its queue of waiters if the attempt is refused. Each further attempt
    /// renews that time. `None` if the owner does not wait. Kinds without waiters in the server ignore it.
    pub queue_ttl: Option<Duration>,
    /// The hold of another owner that lets this one in. Boxed, because that is rare, and each attempt would have room for it.
    pub through: Option<Box<Through>>,
    /// The highest fencing token that the client has seen. The new token has to be above it.
    pub above: u64,
}

impl Attempt {
    /// An attempt that does not wait: a refusal leaves nothing in the server.
    pub fn new(target: Target, lease: Duration) -> Self {
        Self {
            target,
            lease,
            queue_ttl: None,
            through: None,
            above: 0,
        }
    }
}

/// A hold that is to last longer. Its lease becomes this one, unless more is left of the current one.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The hold.
    pub target: Target,
    /// How often its owner has entered it.
    pub count: u32,
    /// The lease, counted from now.
    pub lease: Duration,
    /// Whether the server is to tell of the next change of the key, as by [`track`](super::Backend::track).
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "the memory server tells nobody of changes")
    )]
    pub track: bool,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempted {
    /// The owner holds the key, with the count 1.
    Granted {
        /// The fencing token of this grant, for kinds that have one.
        token: Option<u64>,
    },
    /// Others block it.
    Held {
        /// How long they will be, unless they renew or release; `None` if no end is known.
        ttl: Option<Duration>,
        /// One of the holders. `None` if the server names none. Boxed, because few attempts are refused.
        holder: Option<Box<HeldBy>>,
    },
    /// There is no semaphore: its permits were never set, or they are gone.
    Unset,
}

impl Attempted {
    /// A refusal that names no holder.
    pub(crate) fn held(ttl: Option<Duration>) -> Self {
        Self::Held { ttl, holder: None }
    }

    /// A refusal by `owner`, and by this number of others.
    pub(crate) fn held_by(ttl: Option<Duration>, owner: Owner, others: usize) -> Self {
        let others = u64::try_from(others).unwrap_or(u64::MAX);
        let holder = Some(Box::new(HeldBy::new(owner.text(), others)));
        Self::Held { ttl, holder }
    }

    /// A refusal by this number of owners of a semaphore, or of permits of an expirable one. It names nobody if there are none.
    pub(crate) fn held_by_many(ttl: Option<Duration>, others: u64, are_permits: bool) -> Self {
        let holder = (others > 0).then(|| Box::new(HeldBy::many(others, are_permits)));
        Self::Held { ttl, holder }
    }

    /// The same with this token, if it is a grant.
    #[cfg(feature = "redis")]
    pub(crate) fn with_token(self, token: Option<u64>) -> Self {
        match self {
            Self::Granted { .. } => Self::Granted { token },
            refused => refused,
        }
    }

    /// Whether the attempt was granted.
    #[cfg(feature = "test-util")]
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

/// The outcome of an attempt on several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptedAll {
    /// The position of the first key that another owner holds. It means nothing if all were granted.
    pub at: usize,
    /// The outcome for all keys.
    pub attempted: Attempted,
}

impl AttemptedAll {
    /// All keys were granted.
    pub(crate) fn granted() -> Self {
        Self {
            at: 0,
            attempted: Attempted::Granted { token: None },
        }
    }
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The hold has ended.
    Freed {
        /// How many other clients were notified.
        others: u32,
    },
    /// The owner held nothing.
    NotOurs,
}
