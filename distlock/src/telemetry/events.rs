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

/// A time as errors show it.
fn shown(time: Duration) -> DisplayValue<impl Display> {
    tracing::field::display(show(time))
}

/// An acquisition has to wait, and counts as a waiter from now on.
pub(crate) fn waits(Resource { kind, key }: &Resource, call_site: &Location<'_>) {
    log!(debug, target: TARGET, kind = kind.name(), key = key.text(), place = %call_site, "waiting for the key");
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
        warn, target: TARGET, kind = lock_type.name(), key = key.text(), %owner, reason = %loss, place = %call_site,
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

/// A guard was alive when the time of a close was over.
pub(crate) fn held_after_close(
    kind: Kind,
    key: &str,
    owner: Owner,
    held: Duration,
    call_site: &Location<'_>,
) {
    log!(
        warn, target: TARGET, kind = kind.name(), key, %owner, held = shown(held), place = %call_site,
        "still held after the client was closed; end the guard before the program ends"
    );
}

/// The client has another identity from now on.
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
        warn, target: TARGET, kind = lock_type.name(), key = key.text(), %owner, reason = %Loss::Gone, place = %call_site,
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

/// `is_outage`: the log has reported the outage already.
pub(crate) fn renewal_failed(holds: usize, fault: &dyn Display, is_outage: bool) {
    if is_outage {
        log!(debug, target: TARGET, holds, %fault, "renewal failed during an outage; it is retried until the lease ends");
        return;
    }
    log!(warn, target: TARGET, holds, %fault, "renewal failed; it is retried until the lease ends");
}

/// The server does not publish the messages of a client's releases, for this reason.
#[cfg(feature = "redis")]
pub(crate) fn nobody_is_told(server: &str, why: &str) {
    log!(
        warn, target: TARGET, server, why,
        "the server refuses to publish, so nobody is told when a key is free; waiters look at their keys every 5 s. Give the \
         user the right to publish on the channels of its keys, or use a plan with PUBLISH"
    );
}

/// The server, or what the user may do, does not allow tracking.
#[cfg(feature = "redis")]
pub(crate) fn tracking_refused(server: &str, why: &dyn Display) {
    log!(
        debug, target: TARGET, server, %why,
        "the server does not tell at once when a hold is lost; each loss is found at the next renewal"
    );
}

pub(crate) fn release_given_up(key: &Key, owner: Owner, fault: &dyn Display) {
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

pub(crate) fn installed_client_replaced(former: Uuid, client: Uuid) {
    log!(
        warn, target: TARGET, %former, %client,
        "another client was installed already; attributes use the new one now"
    );
}

pub(crate) fn late_grant(key: &Key, owner: Owner) {
    log!(warn, target: TARGET, key = key.text(), %owner, "grant arrived too late, after the wait or most of its lease had ended; it is released");
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
            log!(warn, target: TARGET, key = key.text(), place = %call_site, held_since = %taken, $text)
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
        warn, target: TARGET, key = key.text(), waited = shown(waited), waiters, place = %call_site,
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
        warn, target: TARGET, key = key.text(), waited = shown(waited), waiters, place = %call_site,
        "still waiting for the semaphore, which has no permits yet: nobody has set them"
    );
}

pub(crate) fn more_long_waits(keys: usize) {
    log!(warn, target: TARGET, keys, "acquisitions are still waiting for further keys");
}

pub(crate) fn waiter_absent(key: &Key) {
    log!(
        warn, target: TARGET, key = key.text(),
        "the first waiter is not polled any more; it loses its place to the next one, until it is polled again"
    );
}

pub(crate) fn acquisition_absent(key: &Key) {
    log!(
        warn, target: TARGET, key = key.text(),
        "an acquisition is not polled any more; what was granted to it is released, and it begins anew when it is polled"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn connected(what: &'static str, epoch: u64) {
    log!(debug, target: TARGET, connection = what, epoch, "connected");
}

#[cfg(feature = "redis")]
pub(crate) fn connect_failed(what: &'static str, fault: &dyn Display, pause: Duration) {
    log!(debug, target: TARGET, connection = what, %fault, pause = shown(pause), "cannot connect; retrying after the pause");
}

#[cfg(feature = "redis")]
pub(crate) fn looked_up_before(host: &str, why: &dyn Display) {
    log!(debug, target: TARGET, host, %why, "cannot look the name up; connecting to the addresses that it had before");
}

#[cfg(feature = "redis")]
pub(crate) fn name_not_found(host: &str, why: &dyn Display) {
    log!(debug, target: TARGET, host, %why, "cannot look the name up again; the connections stay");
}

#[cfg(feature = "redis")]
pub(crate) fn name_leads_nowhere(server: &dyn Display, why: &dyn Display) {
    log!(debug, target: TARGET, %server, %why, "the name leads to a server that cannot be used; the connections stay");
}

#[cfg(feature = "redis")]
pub(crate) fn name_moved(left: &dyn Display, server: &dyn Display) {
    log!(
        warn, target: TARGET, %left, %server,
        "the name leads to another server; all holds are confirmed there"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn name_rotates(server: &dyn Display) {
    log!(
        warn, target: TARGET, %server,
        "the name leads to one server after another; the client follows it at most once a minute, and clients may lock on \
         different servers; let the name lead to one server, or set `look_up_interval` to 0"
    );
}

/// Two servers of one name say that they are the master.
#[cfg(feature = "redis")]
pub(crate) fn other_master(server: &dyn Display, run: &str, other: &dyn Display, other_run: &str) {
    log!(
        warn, target: TARGET, %server, run, %other, other_run,
        "another server of the same name is a master, too; this client locks on the first one alone, and programs may lock on \
         different servers; let the name lead to one master"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn connection_ended(server: &str, what: &'static str, reason: &str) {
    log!(
        debug, target: TARGET, server, connection = what, reason,
        "connection ended while nothing depended on it, or as it did a short while ago; reconnecting"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn outage_began(server: &str, what: &'static str, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, connection = what, %reason,
        "connection to the lock server lost; reconnecting"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn not_connected_yet(server: &str, what: &'static str, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, connection = what, %reason,
        "no connection to the lock server yet; trying again"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn outage_lasts(server: &str, lasted: Duration, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, lasted = shown(lasted), %reason,
        "still no connection to the lock server; reconnecting"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn outage_over(server: &str, lasted: Duration, is_first: bool) {
    if is_first {
        log!(info, target: TARGET, server, lasted = shown(lasted), "connected to the lock server");
        return;
    }
    log!(info, target: TARGET, server, lasted = shown(lasted), "connected to the lock server again");
}

#[cfg(feature = "redis")]
pub(crate) fn master_switched(service: &str, left: &dyn Display, master: &dyn Display) {
    log!(
        info, target: TARGET, service, %left, %master,
        "another server is the master; all holds are confirmed there"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn sentinel_not_heard(sentinel: &dyn Display, why: &dyn Display) {
    log!(
        warn, target: TARGET, %sentinel, %why,
        "the Sentinel does not let this user subscribe to `+switch-master`; it is asked every 10 s instead, and until then \
         locks may be granted by a server that is no longer the master"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn sentinel_forgotten(sentinel: &dyn Display, service: &str) {
    log!(
        debug, target: TARGET, %sentinel, service,
        "the Sentinel does not answer, and no other one names it any more; it is not asked again"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn slots_changed(nodes: &str) {
    log!(debug, target: TARGET, nodes, "slots of the cluster have moved between nodes");
}

#[cfg(feature = "redis")]
pub(crate) fn server_evicts(server: &dyn Display, policy: &str) {
    log!(
        warn, target: TARGET, %server, policy,
        "the lock server deletes locks when its memory is full; set its `maxmemory-policy` to `noeviction`"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn subscription_failed(channel: &str, fault: &dyn Display) {
    log!(
        warn, target: TARGET, %channel, %fault,
        "cannot subscribe; until it works, the waiters of this channel poll every few seconds"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn odd_message(channel: &[u8], bytes: usize) {
    let channel = String::from_utf8_lossy(channel);
    log!(debug, target: TARGET, %channel, bytes, "unknown message ignored");
}

/// Some of the system's authorities cannot be used. The others are trusted.
#[cfg(feature = "_rustls")]
pub(crate) fn broken_authorities(used: usize, refused: usize, unread: &str) {
    log!(
        warn, target: TARGET, used, refused, unread,
        "some certificates in the system's store of authorities cannot be used; the others are trusted"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn login_renewed(server: &str, what: &'static str) {
    log!(debug, target: TARGET, server, connection = what, "logged in again with the new credentials");
}

#[cfg(feature = "redis")]
pub(crate) fn login_not_renewed(server: &str, what: &'static str, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, connection = what, %reason,
        "new credentials cannot be used; the connection keeps the rights that it has"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn not_confirmed(servers: &dyn Display) {
    log!(
        info, target: TARGET, %servers,
        "replicas do not confirm grants, so a failover may lose some; Redisson waits for the connected ones by default, and \
         `replicas=connected` with `replicas_timeout` in the URL does the same"
    );
}
