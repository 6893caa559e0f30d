//! A grant, and an attempt that may become one.

use std::panic::Location;
use std::time::Duration;

use crate::backend::Target;
use crate::clock::Tick;
use crate::telemetry::Meter;

/// An attempt that may have been carried out, or may still be carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InDoubtAttempt {
    /// The connection that it was sent over.
    pub(crate) epoch: u64,
    /// The server keeps a hold or a waiter that it made until then at most, if it was executed before it was given up.
    pub(crate) until: Tick,
}

/// A grant of a backend.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) target: &'a Target,
    pub(crate) token: Option<u64>,
    /// When the attempt was queued: the lease counts from then.
    pub(crate) sent: Tick,
    /// When the grant was noticed.
    pub(crate) now: Tick,
    pub(crate) lease: Duration,
    /// The lease that the watchdog renews.
    pub(crate) watchdog: Duration,
    pub(crate) in_doubt: Option<InDoubtAttempt>,
    /// The connection that the attempt was sent over, or an earlier one.
    pub(crate) epoch: u64,
    /// Where in the user's code the acquisition was made.
    pub(crate) call_site: &'static Location<'static>,
    pub(crate) meter: Meter,
}
