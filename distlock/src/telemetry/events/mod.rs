//! Every event that this crate logs, under the target `distlock`.
//!
//! Each message says what happened and what happens next; the fields name the key, the owner or the connection.

use std::fmt::Display;
use std::panic::Location;
use std::time::Duration;

use tracing::field::DisplayValue;
use uuid::Uuid;

use super::labels::LockType;
use crate::error::{Error, Loss, show};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::{Kind, Nesting};
use crate::resource::owner::Owner;
use crate::sync::foreign;

pub(super) const TARGET: &str = "distlock";

/// Logs an event of this level.
macro_rules! log {
    ($level:ident, $($event:tt)*) => {
        foreign::tell(|| tracing::$level!($($event)*))
    };
}

// Behind the macro, which it uses.
#[cfg(feature = "redis")]
pub(super) mod servers;

/// A time as errors show it.
fn shown(time: Duration) -> DisplayValue<impl Display> {
    tracing::field::display(show(time))
}

/// An acquisition has to wait, and counts as a waiter from now on.
pub(crate) fn waits(Resource { kind, key }: &Resource, call_site: &Location<'_>) {
    log!(debug, target: TARGET, kind = kind.name(), key = key.text(), %call_site, "waiting for the key");
}

/// The server refused an attempt.
pub(crate) fn attempt_refused(Resource { kind, key }: &Resource, lease_left: Option<Duration>) {
    log!(
        trace, target: TARGET, kind = kind.name(), key = key.text(), lease_left = lease_left.map(shown),
        "the server refused the key; it is attempted again"
    );
}

pub(crate) fn granted(Resource { kind, key }: &Resource, owner: Owner, token: Option<u64>) {
    log!(debug, target: TARGET, kind = kind.name(), key = key.text(), %owner, token, "granted");
}

/// An acquisition ended without a grant.
pub(super) fn refused(error: &Error) {
    log!(debug, target: TARGET, %error, "not granted");
}

/// A guard ended after `held`, and the next waiter of its client has the hold.
pub(crate) fn handed_over(Resource { kind, key }: &Resource, owner: Owner, held: Duration) {
    log!(
        debug, target: TARGET, kind = kind.name(), key = key.text(), %owner, held = shown(held),
        "handed over to the next waiter of this client"
    );
}

/// The last guard of a hold ended after `held`.
pub(crate) fn released(Resource { kind, key }: &Resource, owner: Owner, held: Duration) {
    log!(
        debug, target: TARGET, kind = kind.name(), key = key.text(), %owner, held = shown(held),
        "released; the server is told"
    );
}

/// A hold is lost whose newest guard was taken at `call_site`.
pub(crate) fn lost(
    lock_type: LockType,
    key: &Key,
    owner: Owner,
    loss: Loss,
    call_site: &Location<'_>,
) {
    log!(
        warn, target: TARGET, kind = lock_type.name(), key = key.text(), %owner, reason = %loss, %call_site,
        "hold lost; its scopes are ended"
    );
}

/// A server has lost its part of a Redlock of which a majority is left, or a part of an acquisition that has not come to a guard.
pub(crate) fn part_lost(Resource { kind, key }: &Resource, owner: Owner, loss: Loss) {
    log!(
        info, target: TARGET, kind = kind.name(), key = key.text(), %owner, reason = %loss,
        "a part of a hold was lost; the Redlock is not lost by this"
    );
}

/// A candidate leads from now on.
pub(crate) fn leads(key: &str, term: u64) {
    log!(info, target: TARGET, key, term, "this process leads; the body of the term begins");
}

/// A candidate leads no more.
pub(crate) fn leads_no_more(key: &str, term: u64, reason: &str) {
    log!(info, target: TARGET, key, term, reason, "this process leads no more; the body of the term has ended");
}

pub(crate) fn campaign_failed(key: &str, error: &Error) {
    log!(warn, target: TARGET, key, %error, "the campaign ended with an error; this candidate does not lead any more");
}

/// A guard was alive when the time of a close was over.
pub(crate) fn held_after_close(
    kind: Kind,
    key: &str,
    owner: Owner,
    held: Duration,
    call_site: &Location<'_>,
) {
    log!(
        warn, target: TARGET, kind = kind.name(), key, %owner, held = shown(held), %call_site,
        "still held after the client was closed; end the guard before the program ends"
    );
}

/// The last runtime in which the client had tasks has ended, and something is left to be released.
pub(crate) fn runtime_ended_early(server: &str) {
    log!(
        warn, target: TARGET, server,
        "the runtime ended before all was released; if the program ends now, keys stay taken until their leases end, and permits of a \
         plain semaphore for good: call `Client::close` before the program ends"
    );
}

pub(crate) fn identity_renewed(former: Uuid, new: Uuid) {
    log!(
        info, target: TARGET, %former, %new,
        "the client has a new identity; what it held is left to the process that it was copied from"
    );
}

/// The client has no identity in this copy of its process.
pub(crate) fn identity_failed(former: Uuid, error: &Error) {
    log!(
        error, target: TARGET, %former, %error,
        "the client cannot be made anew in this copy of its process; it is closed until that succeeds"
    );
}

/// The server did not have the hold when it was released. A caller who waits for the release gets an error as well.
pub(crate) fn found_lost(lock_type: LockType, key: &Key, owner: Owner, call_site: &Location<'_>) {
    log!(
        warn, target: TARGET, kind = lock_type.name(), key = key.text(), %owner, reason = %Loss::Gone, %call_site,
        "hold found lost by its release; its owner may have run without the lock"
    );
}

/// `guards` have handed a hold over that the server had lost. They ended without an error, so the loss is only reported
/// here.
pub(crate) fn ended_before_the_loss(key: &Key, owner: Owner, guards: u32) {
    if guards > 0 {
        log!(
            warn, target: TARGET, key = key.text(), %owner, guards,
            "the lost hold was handed over before the loss was found; this many guards have ended since the server last \
             confirmed it, and some of them may have run without the lock"
        );
    }
}

/// The renewals of so many holds have failed together, the first of which has this key. `others`: how many others have failed that no
/// line tells of; `None` if an outage was told, or other failures a short while ago.
pub(crate) fn renewal_failed(key: &Key, holds: usize, fault: &dyn Display, others: Option<usize>) {
    match others {
        Some(more) => log!(
            warn, target: TARGET, key = key.text(), holds, more, %fault,
            "renewal failed; it is retried until the lease ends"
        ),
        None => log!(
            debug, target: TARGET, key = key.text(), holds, %fault,
            "renewal failed in an outage, or soon after others; it is retried until the lease ends"
        ),
    }
}

pub(crate) fn release_given_up(key: &Key, owner: Owner, fault: &dyn Display, is_over: bool) {
    if is_over {
        log!(
            debug, target: TARGET, key = key.text(), %owner, %fault,
            "release given up; the hold has ended with its lease"
        );
        return;
    }
    log!(
        warn, target: TARGET, key = key.text(), %owner, %fault,
        "release given up; the hold ends with its lease"
    );
}

pub(crate) fn release_refused(key: &Key, owner: Owner, fault: &dyn Display) {
    log!(
        warn, target: TARGET, key = key.text(), %owner, %fault,
        "release refused; it is retried, because the permits have no lease and stay taken until then"
    );
}

/// The caller gets the body's own result, so the error of the release is only reported here.
pub(crate) fn release_failed(error: &Error) {
    log!(warn, target: TARGET, %error, "the guarded body completed, but releasing its lock failed");
}

#[cfg(feature = "macros")]
pub(crate) fn runs_without_lock(error: &Error) {
    log!(warn, target: TARGET, %error, "the lock server is unavailable; the body runs without the lock because of `on_unavailable = \"run\"`");
}

pub(crate) fn installed_client_replaced(former: &str, client: &str) {
    log!(
        warn, target: TARGET, %former, %client,
        "another client was installed already; attributes use the new one now"
    );
}

/// The caller gets an error, or another attempt.
pub(crate) fn late_grant(key: &Key, owner: Owner) {
    log!(debug, target: TARGET, key = key.text(), %owner, "grant arrived too late, after the wait or most of its lease had ended; it is released");
}

pub(crate) fn unconfirmed_grant(key: &Key, fault: &dyn Display) {
    log!(debug, target: TARGET, key = key.text(), %fault, "grant not confirmed; it is released");
}

/// `nesting`: what the acquisition would do in a scope of the guard.
pub(crate) fn waits_for_itself(
    key: &Key,
    nesting: Nesting,
    taken: &Location<'_>,
    call_site: &Location<'_>,
) {
    macro_rules! told {
        ($text:literal) => {
            log!(warn, target: TARGET, key = key.text(), %call_site, held_since = %taken, $text)
        };
    }
    match nesting {
        Nesting::Again | Nesting::Inside => told!(
            "this task waits for a lock that it holds itself, beside its guard; run the inner call inside `guard.scope(..)`, or \
             end the guard first"
        ),
        Nesting::Never(_) => told!(
            "this task waits for a lock that it holds itself, beside its guard; end the guard first, because a scope of this \
             guard does not admit the inner call either"
        ),
        Nesting::Apart => told!(
            "this task waits for permits of a semaphore, and holds some of them itself; if all others do so, it waits for ever: \
             acquire all of its permits at once, or end the guard first"
        ),
    }
}

pub(crate) fn waits_in_a_cycle(key: &Key, cycle: &str) {
    log!(
        warn, target: TARGET, key = key.text(), cycle,
        "possible deadlock: acquisitions wait for each other in a cycle; acquire the keys in one order, or with \
         `multi_lock`, or give them a `wait`"
    );
}

/// `waiters` wait for the key, the first of them for `waited`.
pub(crate) fn waits_long(
    key: &Key,
    waited: Duration,
    waiters: usize,
    call_site: &Location<'_>,
    holders: &[String],
    lease_left: Option<Duration>,
) {
    log!(
        warn, target: TARGET, key = key.text(), waited = shown(waited), waiters, %call_site,
        holders = holders.join(", "), lease_left = lease_left.map(shown),
        "still waiting for the key"
    );
}

/// `waiters` wait for permits, the first of them for `waited`.
pub(crate) fn waits_for_unset_permits(
    key: &Key,
    waited: Duration,
    waiters: usize,
    call_site: &Location<'_>,
) {
    log!(
        warn, target: TARGET, key = key.text(), waited = shown(waited), waiters, %call_site,
        "still waiting for the semaphore, which has no permits yet: nobody has set them"
    );
}

pub(crate) fn more_long_waits(keys: usize) {
    log!(warn, target: TARGET, keys, "acquisitions are still waiting for further keys");
}

/// So many `more` waiters for other keys have done the same.
pub(crate) fn waiter_absent(key: &Key, more: usize) {
    log!(
        warn, target: TARGET, key = key.text(), more,
        "the first waiter is not polled any more; it loses its place to the next one, until it is polled again"
    );
}

/// So many `more` acquisitions have done the same.
pub(crate) fn acquisition_absent(key: &Key, call_site: &Location<'_>, more: usize) {
    log!(
        warn, target: TARGET, key = key.text(), %call_site, more,
        "an acquisition is not polled any more; what was granted to it is released, and it begins anew when it is polled"
    );
}
