//! What servers do, and the connections to them.

use std::fmt::Display;
use std::time::Duration;

use super::{TARGET, shown};
use crate::sync::foreign;

/// The server does not publish the messages of a client's releases, for this reason.
pub(crate) fn nobody_is_told(server: &str, why: &str) {
    log!(
        warn, target: TARGET, server, why,
        "the server refuses to publish, so nobody is told when a key is free; waiters look at their keys every 5 s. Give the \
         user the right to publish on the channels of its keys, or use a plan with PUBLISH"
    );
}

/// The server, or what the user may do, does not allow tracking.
pub(crate) fn tracking_refused(server: &str, why: &dyn Display) {
    log!(
        debug, target: TARGET, server, %why,
        "the server does not tell at once when a hold is lost; each loss is found at the next renewal"
    );
}

pub(crate) fn connected(what: &'static str, epoch: u64) {
    log!(debug, target: TARGET, connection = what, epoch, "connected");
}

pub(crate) fn connect_failed(what: &'static str, fault: &dyn Display, pause: Duration) {
    log!(debug, target: TARGET, connection = what, %fault, pause = shown(pause), "cannot connect; retrying after the pause");
}

pub(crate) fn looked_up_before(host: &str, why: &dyn Display) {
    log!(debug, target: TARGET, host, %why, "cannot look the name up; connecting to the addresses that it had before");
}

pub(crate) fn name_not_found(host: &str, why: &dyn Display) {
    log!(debug, target: TARGET, host, %why, "cannot look the name up again; the connections stay");
}

pub(crate) fn name_leads_nowhere(server: &dyn Display, why: &dyn Display) {
    log!(debug, target: TARGET, %server, %why, "the name leads to a server that cannot be used; the connections stay");
}

pub(crate) fn map_of_other_cluster(server: &dyn Display) {
    log!(
        debug, target: TARGET, %server,
        "a node of another cluster is at this address; the map of another node is read"
    );
}

pub(crate) fn name_moved(left: &dyn Display, server: &dyn Display) {
    log!(
        warn, target: TARGET, %left, %server,
        "the name leads to another server; all holds are confirmed there"
    );
}

pub(crate) fn name_rotates(server: &dyn Display) {
    log!(
        warn, target: TARGET, %server,
        "the name leads to one server after another; the client follows it at most once a minute, and clients may lock on \
         different servers; let the name lead to one server, or set `look_up_interval` to 0"
    );
}

/// Two servers of one name say that they are the master.
pub(crate) fn other_master(server: &dyn Display, run: &str, other: &dyn Display, other_run: &str) {
    log!(
        warn, target: TARGET, %server, run, %other, other_run,
        "another server of the same name is a master, too; this client locks on the first one alone, and programs may lock on \
         different servers; let the name lead to one master"
    );
}

pub(crate) fn connection_ended(server: &str, what: &'static str, reason: &str) {
    log!(
        debug, target: TARGET, server, connection = what, reason,
        "connection ended while nothing depended on it, or as it did a short while ago; reconnecting"
    );
}

pub(crate) fn outage_began(server: &str, what: &'static str, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, connection = what, %reason,
        "connection to the lock server lost; reconnecting"
    );
}

pub(crate) fn not_connected_yet(server: &str, what: &'static str, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, connection = what, %reason,
        "no connection to the lock server yet; trying again"
    );
}

pub(crate) fn outage_lasts(server: &str, lasted: Duration, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, lasted = shown(lasted), %reason,
        "still no connection to the lock server; reconnecting"
    );
}

pub(crate) fn outage_over(server: &str, lasted: Duration, is_first: bool) {
    if is_first {
        log!(info, target: TARGET, server, lasted = shown(lasted), "connected to the lock server");
        return;
    }
    log!(info, target: TARGET, server, lasted = shown(lasted), "connected to the lock server again");
}

pub(crate) fn master_switched(service: &str, left: &dyn Display, master: &dyn Display) {
    log!(
        info, target: TARGET, service, %left, %master,
        "another server is the master; all holds are confirmed there"
    );
}

pub(crate) fn sentinel_not_heard(sentinel: &dyn Display, why: &dyn Display) {
    log!(
        warn, target: TARGET, %sentinel, %why,
        "the Sentinel does not let this user subscribe to `+switch-master`; it is asked every 10 s instead, and until then \
         locks may be granted by a server that is no longer the master"
    );
}

pub(crate) fn sentinel_forgotten(sentinel: &dyn Display, service: &str) {
    log!(
        debug, target: TARGET, %sentinel, service,
        "the Sentinel does not answer, and no other one names it any more; it is not asked again"
    );
}

pub(crate) fn slots_changed(nodes: &str) {
    log!(debug, target: TARGET, nodes, "slots of the cluster have moved between nodes");
}

pub(crate) fn server_evicts(server: &dyn Display, policy: &str) {
    log!(
        warn, target: TARGET, %server, policy,
        "the lock server deletes locks when its memory is full; set its `maxmemory-policy` to `noeviction`"
    );
}

pub(crate) fn subscription_failed(channel: &str, fault: &dyn Display) {
    log!(
        warn, target: TARGET, %channel, %fault,
        "cannot subscribe; until it works, the waiters of this channel poll every few seconds"
    );
}

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

pub(crate) fn login_renewed(server: &str, what: &'static str) {
    log!(debug, target: TARGET, server, connection = what, "logged in again with the new credentials");
}

pub(crate) fn login_not_renewed(server: &str, what: &'static str, reason: &dyn Display) {
    log!(
        warn, target: TARGET, server, connection = what, %reason,
        "new credentials cannot be used; the connection keeps the rights that it has"
    );
}

pub(crate) fn not_confirmed(servers: &dyn Display) {
    log!(
        info, target: TARGET, %servers,
        "replicas do not confirm grants, so a failover may lose some; Redisson waits for the connected ones by default, and \
         `replicas=connected` with `replicas_timeout` in the URL does the same"
    );
}
