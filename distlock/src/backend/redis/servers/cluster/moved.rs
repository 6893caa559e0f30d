//! The client goes to another cluster, because the names of the URL lead there.

use std::net::SocketAddr;

use super::Cluster;
use super::map::no_map;
use super::slots::OwnedSlots;
use super::topology::owned_slots;
use crate::backend::Fault;
use crate::backend::redis::connection::{Address, Connector, ask_node_at};

/// The slots and their owners, as the node at this address says that a name stands for.
pub(super) async fn map_at(
    connector: &Connector,
    name: &Address,
    at: SocketAddr,
) -> Result<Vec<OwnedSlots>, Fault> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let answer = ask_node_at(connector, name, at, &question).await?;
    let asked = Address::Tcp {
        host: at.ip().to_string(),
        port: at.port(),
    };
    owned_slots(&answer, &asked).ok_or_else(no_map)
}

impl Cluster {
    /// Whether one of these owners has slots of this cluster, as far as the client knows.
    pub(super) fn has_one_of(&self, owned: &[OwnedSlots]) -> bool {
        let state = self.state.read();
        let owners = state.map.owners();
        owned.iter().any(|one| owners.contains(&one.owner))
    }

    /// From now on all slots are those of another cluster. What the nodes of this one answer after that is not believed.
    pub(super) fn move_to(&self, owned: &[OwnedSlots]) {
        let number = self.shared.epochs.next();
        let mut state = self.state.write();
        state.moves += 1;
        let _is_changed = state.map.replace(owned, number);
        let left = std::mem::take(&mut state.nodes);
        // Leaving a connection wakes tasks, and a waker may run any code.
        drop(state);
        for node in left.values() {
            node.links().for_each(|link| link.leave());
            node.forget();
        }
        // Before they are dropped: their channels need another place.
        self.changed();
    }
}
