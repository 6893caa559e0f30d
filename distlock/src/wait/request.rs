//! What an acquisition asks for, and the attempts that it makes of it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::attempt::{Attempts, HoldTerms};
use crate::backend::{Attempt, Target};
use crate::clock::Tick;
use crate::config::MAX_LEASE;
use crate::error::{Blocker, Error};
use crate::hold::{HoldRef, Session};
use crate::key::{Key, Resource};
use crate::owner::Owner;

/// One key that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct RequestedKey {
    pub(crate) resource: Resource,
    /// How many permits of a semaphore; 1 of all else.
    pub(crate) permits: u32,
    /// First and longest pause between two attempts, where nobody listens for messages.
    pub(crate) pause: (Duration, Duration),
    /// The owner of the hold around, which lets this one in beside itself.
    pub(crate) inside: Option<Owner>,
}

/// What is asked for: one key, or several of one client that are granted together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) requested: SmallVec<[RequestedKey; 1]>,
    /// When the caller began to wait.
    pub(crate) since: Tick,
    /// How long it waits; without limit where there is none.
    pub(crate) wait: Option<Duration>,
    /// A fixed lease; the watchdog's where there is none.
    pub(crate) lease: Option<Duration>,
    /// For how long the watchdog renews it at most.
    pub(crate) max_hold: Option<Duration>,
    /// May a hold be handed to it that another of its client has had?
    pub(crate) hands_on: bool,
    /// How many may wait already, for its key and for all, where this one has to.
    pub(crate) max_waiters: (u32, u32),
}

/// What was granted, in the order in which it was asked for.
pub(crate) type HoldRefs = SmallVec<[Arc<HoldRef>; 1]>;

impl Request {
    pub(crate) fn deadline(&self) -> Tick {
        self.wait.map_or(Tick::NEVER, |wait| self.since.after(wait))
    }

    /// The wait is over, and this key was not to be had.
    pub(crate) fn timed_out(&self, key: &Key, now: Tick, blocker: Blocker) -> Error {
        Error::Timeout {
            key: key.text().to_owned(),
            waited: now.since(self.since),
            blocker,
        }
    }

    /// Attempts under new owners, of one that `waits` or one that asks once.
    pub(super) fn attempts(&self, session: &Arc<Session>, waits: bool) -> Attempts {
        let attempt = |requested: &RequestedKey| {
            let mut target = Target::of(&requested.resource, session.new_owner());
            target.permits = requested.permits;
            let lease = match requested.resource.kind.has_lease() {
                true => self.first_lease(session),
                false => MAX_LEASE,
            };
            let mut attempt = Attempt::new(target, lease);
            attempt.inside = requested.inside;
            if waits && requested.resource.kind.has_places() {
                attempt.place = Some(session.config.waiter_timeout);
            }
            attempt
        };
        let attempts = self.requested.iter().map(attempt).collect();
        let terms = HoldTerms {
            fixed: self.lease.is_some(),
            max_hold: self.max_hold,
        };
        Attempts::new(session, attempts, terms)
    }

    /// The lease that is asked for: fixed, or the first of those that the watchdog renews.
    pub(crate) fn first_lease(&self, session: &Session) -> Duration {
        let lease = self.lease.unwrap_or(session.config.watchdog_timeout);
        self.max_hold.map_or(lease, |most| lease.min(most))
    }
}
