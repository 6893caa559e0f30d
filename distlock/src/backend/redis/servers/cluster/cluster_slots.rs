//! What a cluster learns from the subscriptions at its nodes.

use std::sync::Weak;

use super::Cluster;
use crate::backend::redis::messages::{ServerNumber, Slots};
use crate::backend::redis::reply::Elsewhere;

/// What the subscriptions at the nodes tell.
pub(super) struct ClusterSlots(pub(super) Weak<Cluster>);

impl Slots for ClusterSlots {
    fn sent_elsewhere(&self, number: ServerNumber, elsewhere: &Elsewhere) {
        let Some(cluster) = self.0.upgrade() else {
            return;
        };
        if let Some(node) = cluster.nodes.numbered(number) {
            // What is no redirect teaches nothing; the map is read anyway.
            let _node_to_ask = cluster.sent_elsewhere(&node, elsewhere);
        }
        // The client may have learned that before, when the channel was not subscribed yet.
        cluster.nodes.move_channels();
    }

    fn lost_slot(&self, _number: ServerNumber) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.want_map();
        }
    }
}
