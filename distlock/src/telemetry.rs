//! Every event that this crate logs, under the target `distlock`.
//!
//! Keys are in events, never in metric labels: there are too many of them.

use crate::backend::{Fault, Target};
use crate::error::{Error, Loss};
use crate::key::Key;
use crate::owner::Owner;

const TARGET: &str = "distlock";

pub(crate) fn lost(key: &Key, owner: Owner, loss: Loss) {
    tracing::warn!(target: TARGET, key = key.text(), %owner, reason = %loss, "lock lost");
}

pub(crate) fn renewal_failed(holds: usize, fault: &Fault) {
    tracing::warn!(target: TARGET, holds, %fault, "renewal failed, it is tried again until the lease ends");
}

pub(crate) fn release_given_up(target: &Target, fault: &Fault) {
    tracing::warn!(
        target: TARGET, key = target.key.text(), owner = %target.owner, %fault,
        "release given up, the lease frees the lock"
    );
}

/// A body's own result is passed on, and what its release said is only told here.
pub(crate) fn release_failed(error: &Error) {
    tracing::warn!(target: TARGET, %error, "the guarded body ended and its lock was not released as it should");
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
