//! The request of an acquisition, and the attempts that are made from it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::Through;
use crate::clock::Tick;
use crate::config::{Backoff, MaxWaiters, SPIN_BACKOFF};
use crate::error::{Blocker, Error, HeldBy};
use crate::hold::{Around, HoldSettings};
use crate::local::{Joining, QueueSlot, Registry, Wait};
use crate::resource::key::{Key, Resource};
use crate::session::Session;
use crate::telemetry::{LockType, Meter};

/// One requested key.
#[derive(Clone, Debug)]
pub(crate) struct RequestedKey {
    pub(crate) resource: Resource,
    /// How many permits of a semaphore; 1 for everything else.
    pub(crate) permits: u32,
    /// The pauses between two attempts of a waiter that does not listen for messages, if they are not the default. Boxed, because that
    /// is rare, and each waiter has room for it.
    pub(crate) backoff: Option<Box<Backoff>>,
    /// The hold of another owner that admits this one. Boxed, as in an [`Attempt`](crate::backend::Attempt).
    pub(crate) through: Option<Box<Through>>,
    /// What counts the waits for this key. That of the first key counts the acquisition.
    pub(crate) meter: Meter,
}

impl RequestedKey {
    /// The pauses between two attempts of a waiter that does not listen for messages.
    pub(super) fn backoff(&self) -> Backoff {
        self.backoff.as_deref().copied().unwrap_or(SPIN_BACKOFF)
    }
}

/// The request of an acquisition: one key, or several keys of one client that are granted together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) requested: SmallVec<[RequestedKey; 1]>,
    /// What the metrics count it and its holds as.
    pub(crate) lock_type: LockType,
    /// When the caller began to wait.
    pub(crate) since: Tick,
    /// How long the caller waits; `None` is without limit.
    pub(crate) wait: Option<Duration>,
    /// What it asks of its holds.
    pub(crate) hold: HoldSettings,
    /// Whether there is no guard until other requests are granted as well.
    pub(crate) is_part: bool,
    /// Whether a hold of another guard may be handed over to it.
    pub(crate) takes_over: bool,
    /// How many waiters there may already be, of its key and in total, when the acquisition begins to wait.
    pub(crate) max_waiters: MaxWaiters,
    /// The scopes around it.
    pub(crate) around: Option<Arc<dyn Around>>,
}

impl Request {
    pub(crate) fn deadline(&self) -> Tick {
        self.wait.map_or(Tick::NEVER, |wait| self.since.after(wait))
    }

    pub(super) fn has_several_keys(&self) -> bool {
        self.requested.len() > 1
    }

    /// Whether this is a single attempt, without any waiting.
    pub(crate) fn is_single_try(&self) -> bool {
        self.wait.is_some_and(|wait| wait.is_zero())
    }

    /// The acquisition waits until then for the answer to a question, such as whether two clients use one server. A single attempt has
    /// no such time: the backend limits each question, as it limits the attempt.
    pub(crate) fn answers_by(&self) -> Tick {
        if self.is_single_try() {
            Tick::NEVER
        } else {
            self.deadline()
        }
    }

    /// The error for a wait that ended before this key was granted.
    pub(crate) fn timed_out(
        &self,
        session: &Session,
        key: &Key,
        blocker: Blocker,
        holder: Option<Box<HeldBy>>,
    ) -> Error {
        // A single attempt waits for its answer and not for the lock.
        let waited = if self.is_single_try() {
            Duration::ZERO
        } else {
            self.waited(session)
        };
        session.timed_out(key, waited, blocker, holder)
    }

    /// The error for a wait that is over while the server is asked for another key than the one that is waited for.
    pub(crate) fn timed_out_beside(&self, session: &Session, key: &Key) -> Error {
        match session.outages.known(key) {
            Some(fault) => fault.into_error(key, self.waited(session)),
            None => self.timed_out(session, key, Blocker::Unanswered, None),
        }
    }

    /// The error for keys that were all granted, but not so soon after each other that they are held together, for this long.
    pub(crate) fn not_held_together(&self, after: Duration) -> Error {
        let key = self.requested[0].resource.key.text();
        let why = "the lease of the first grant was over when the last one arrived";
        Error::unavailable(key, after, why)
    }

    /// How long it has waited.
    pub(crate) fn waited(&self, session: &Session) -> Duration {
        session.now().since(self.since)
    }

    /// The error for a wait that ended because the client was closed.
    pub(crate) fn closed(&self) -> Error {
        Error::closed(self.requested[0].resource.key.text())
    }

    /// The lease that is asked for: the fixed one, or the first one that the watchdog renews.
    pub(crate) fn first_lease(&self, session: &Session) -> Duration {
        let lease = self.hold.lease.unwrap_or(session.config.watchdog_timeout);
        // The guard ends at that time, and the lease in the server by the margin later.
        let with_margin = |most: Duration| most.saturating_add(session.config.lease_margin);
        self.hold
            .max_hold
            .map_or(lease, |most| lease.min(with_margin(most)))
    }

    /// The description of its wait for the key with this index.
    pub(super) fn wait_for(&self, at: usize, session: &Session, slot: &QueueSlot<'_>) -> Wait {
        let resources = self.requested.iter().map(|one| one.resource.clone());
        let around = self.around.as_ref();
        let inside = around.map(|around| around.holds(session.id));
        Wait {
            resources: resources.collect(),
            at,
            since: self.since,
            call_site: self.hold.call_site,
            inside: inside.unwrap_or_default(),
            due: self.since.after(session.config.warn_after),
            deadline: self.deadline(),
            waker: Arc::clone(slot.waker()),
        }
    }

    /// How the acquisition waits in the queue of the key with this index.
    pub(super) fn joining(&self, at: usize, takes_over: bool) -> Joining<'_> {
        let requested = &self.requested[at];
        // A hold that was handed over is kept by the watchdog, and has no fixed lease.
        let takes_over = takes_over && self.takes_over && self.hold.lease.is_none();
        Joining {
            resource: &requested.resource,
            since: self.since,
            takes_over,
            settings: &self.hold,
            is_let_in: requested.through.is_some(),
            rank: None,
            collects: takes_over && self.has_several_keys(),
        }
    }
}

/// A request, and the client that carries it out.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) registry: Arc<Registry>,
    pub(crate) request: Request,
}

impl ClientRequest {
    /// The requested key, or the first of several keys.
    pub(crate) fn requested(&self) -> &RequestedKey {
        &self.request.requested[0]
    }

    /// The lease that this client asks its server for.
    pub(crate) fn first_lease(&self) -> Duration {
        self.request.first_lease(&self.registry.session)
    }

    /// Whether a single attempt failed for a reason that may pass, so that a wait helps.
    pub(crate) fn may_pass(&self, error: &Error) -> bool {
        let outages = &self.registry.session.outages;
        let is_login_refused = |one: &RequestedKey| outages.is_login_refused(&one.resource.key);
        error.is_busy()
            || error.is_unavailable()
            // The server denies a command for good, and a login only for now.
            || matches!(error, Error::Denied { .. })
                && self.request.requested.iter().any(is_login_refused)
    }

    pub(crate) fn requested_mut(&mut self) -> &mut RequestedKey {
        &mut self.request.requested[0]
    }
}
