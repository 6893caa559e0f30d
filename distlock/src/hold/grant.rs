//! What a hold is made from: the client, what the acquisition asks of it, and the grant.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::term::Term;
use crate::backend::Attempt;
use crate::clock::{Clock, Tick};
use crate::resource::identity::Identity;
use crate::telemetry::Meter;

/// What the holds and guards of a client share. It does not keep the client alive.
#[derive(Debug)]
pub(crate) struct GuardClient {
    pub(crate) identity: Arc<Identity>,
    pub(crate) clock: Clock,
}

/// What an acquisition asks of its hold, whether the server grants the hold or another guard hands it over. Made once, with the
/// request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldSettings {
    /// A fixed lease; `None` is the watchdog's.
    pub(crate) lease: Option<Duration>,
    /// The longest time for which it is held: the watchdog renews it no longer, and a fixed lease is cut to it.
    pub(crate) max_hold: Option<Duration>,
    /// The hold stops counting as held this long before its deadline; zero except for a quorum.
    pub(crate) margin: Duration,
    /// Where in the user's code the acquisition was made.
    pub(crate) call_site: &'static Location<'static>,
}

impl HoldSettings {
    /// Whether it ends at a time of its own, while the watchdog would go on to renew it.
    pub(crate) fn has_own_end(&self) -> bool {
        self.lease.is_some() || self.max_hold.is_some()
    }

    /// The term of a guard that has a hold from `since` on. `lease`: that which the server was asked for. `margin`: how long
    /// before its end it counts as ended.
    pub(crate) fn term(&self, since: Tick, lease: Duration, margin: Duration) -> Term {
        let Some(fixed) = self.lease else {
            return Term::kept(since, self.max_hold);
        };
        // Of the two, the server was asked for the shorter one.
        let end = since.after(lease).before(margin);
        match self.max_hold {
            Some(most) if most < fixed.saturating_sub(margin) => Term::UntilLimit(end),
            _ => Term::Until(end),
        }
    }
}

/// An attempt that may have been carried out, or may still be carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InDoubtAttempt {
    /// The connection that it was sent over.
    pub(crate) epoch: u64,
    /// If it was executed before it was given up, the server keeps its hold or its place in the queue until this time at most.
    pub(crate) until: Tick,
}

/// A grant of a backend.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) client: &'a Arc<GuardClient>,
    /// What was asked for.
    pub(crate) attempt: &'a Attempt,
    pub(crate) settings: &'a HoldSettings,
    pub(crate) token: Option<u64>,
    /// When the attempt was queued: the lease counts from then.
    pub(crate) sent: Tick,
    /// When the grant was noticed.
    pub(crate) now: Tick,
    /// The lease that the watchdog renews.
    pub(crate) watchdog: Duration,
    /// How long before the end of each lease the hold counts as ended.
    pub(crate) margin: Duration,
    pub(crate) in_doubt: Option<InDoubtAttempt>,
    /// The connection that the attempt was sent over, or an earlier one.
    pub(crate) epoch: u64,
    pub(crate) meter: Meter,
    /// Whether it is a part of a Redlock.
    pub(crate) is_of_quorum: bool,
}

impl Grant<'_> {
    /// The term of the guard that has the hold.
    pub(super) fn term(&self) -> Term {
        let lease = self.attempt.lease;
        if self.attempt.target.resource.kind.has_lease() {
            self.settings.term(self.sent, lease, self.margin)
        } else {
            Term::Until(self.sent.after(lease))
        }
    }
}
