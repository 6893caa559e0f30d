//! Finds out whether two clients use one server, by a hold that one of them has there.
//!
//! An acquisition that asks for one key with two such clients is refused by its own owner, and would wait for itself.

use crate::backend::Renewal;
use crate::clock::Tick;
use crate::config::MIN_LEASE;
use crate::hold::Hold;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Nesting;
use crate::session::Session;

/// Whether this hold of another client blocks an acquisition of the resource, if both clients use one server.
pub(crate) fn excludes(hold: &Hold, resource: &Resource) -> bool {
    let Resource { kind, key } = &hold.resource;
    key.name() == resource.key.name()
        && (kind.same_data().contains(&resource.kind)
            || resource.kind.within(*kind) != Nesting::Apart)
}

/// Whether the server of this client has that hold of another client. Changes nothing there. The key is that of the hold, as
/// this client knows it. The result is `None` if the server has not answered
/// by the time `by`.
pub(crate) async fn has_hold(session: &Session, key: &Key, hold: &Hold, by: Tick) -> Option<bool> {
    let mut target = hold.target();
    target.resource.key = key.clone();
    // States what the server has. Each user that can hold the key has the rights for it.
    let renewal = Renewal {
        target,
        // A hold that is being handed over has no guard for a moment.
        count: hold.count().max(1),
        // The server keeps the lease that it has, which is longer.
        lease: MIN_LEASE,
        track: false,
    };
    let renewals = [renewal];
    crate::sync::select! {
        // In this order: an answer that has arrived counts, even if the time is over.
        biased;
        answer = session.backend.renew(&renewals) => match answer.as_slice() {
            [Ok(has)] => Some(*has),
            _ => None,
        },
        () = session.clock.sleep_until(by) => None,
    }
}

/// The name that errors use for the servers of two clients, if both are one server.
pub(crate) fn both(one: &Session, other: &Session) -> String {
    format!("{} and {}", one.backend.servers(), other.backend.servers())
}
