//! A grant, and an attempt that may become one.

use std::sync::Arc;
use std::time::Duration;

use super::guard_client::GuardClient;
use super::hold_settings::HoldSettings;
use super::term::Term;
use crate::backend::Attempt;
use crate::clock::Tick;
use crate::telemetry::Meter;

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
