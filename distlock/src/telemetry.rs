//! Every event that this crate logs, under the target `distlock`.
//!
//! Keys are in events, never in metric labels: there are too many of them.

use std::fmt::Display;
#[cfg(feature = "redis")]
use std::time::Duration;

use crate::error::{Error, Loss};
use crate::key::Key;
use crate::owner::Owner;

const TARGET: &str = "distlock";

pub(crate) fn lost(key: &Key, owner: Owner, loss: Loss) {
    tracing::warn!(target: TARGET, key = key.text(), %owner, reason = %loss, "hold lost");
}

pub(crate) fn renewal_failed(holds: usize, fault: &dyn Display) {
    tracing::warn!(target: TARGET, holds, %fault, "renewal failed, it is tried again until the lease ends");
}

pub(crate) fn release_given_up(key: &Key, owner: Owner, fault: &dyn Display) {
    tracing::warn!(
        target: TARGET, key = key.text(), %owner, %fault,
        "release given up, what is left of the hold ends with its lease"
    );
}

pub(crate) fn release_denied(key: &Key, owner: Owner, fault: &dyn Display) {
    tracing::warn!(
        target: TARGET, key = key.text(), %owner, %fault,
        "release denied, it is tried again, for no lease would end what is left of the hold"
    );
}

/// A body's own result is passed on, and what its release said is only told here.
pub(crate) fn release_failed(error: &Error) {
    tracing::warn!(target: TARGET, %error, "the guarded body ended and its hold was not released as it should");
}

#[cfg(feature = "macros")]
pub(crate) fn runs_without_lock(error: &Error) {
    tracing::warn!(target: TARGET, %error, "the body runs without the lock, as `on_unavailable = \"run\"` says");
}

pub(crate) fn late_grant(key: &Key, owner: Owner) {
    tracing::warn!(target: TARGET, key = key.text(), %owner, "grant came too late to be of use, given back");
}

pub(crate) fn waits_for_itself(key: &Key) {
    tracing::warn!(
        target: TARGET, key = key.text(),
        "this task waits without limit for a lock that it holds itself: run the inner call inside `guard.scope(..)`, \
         or give it a `wait`"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn connected(what: &'static str, epoch: u64) {
    tracing::debug!(target: TARGET, connection = what, epoch, "connected");
}

#[cfg(feature = "redis")]
pub(crate) fn disconnected(what: &'static str, reason: &str) {
    tracing::warn!(target: TARGET, connection = what, reason, "connection lost");
}

#[cfg(feature = "redis")]
pub(crate) fn connect_failed(what: &'static str, fault: &dyn Display, pause: Duration) {
    tracing::warn!(target: TARGET, connection = what, %fault, ?pause, "cannot connect, trying again");
}

#[cfg(feature = "redis")]
pub(crate) fn subscription_failed(fault: &dyn Display) {
    tracing::warn!(
        target: TARGET, %fault,
        "cannot subscribe: waiters ask again every few seconds until it works"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn odd_message(channel: &[u8], bytes: usize) {
    let channel = String::from_utf8_lossy(channel);
    tracing::debug!(target: TARGET, %channel, bytes, "message of no known meaning passed over");
}
