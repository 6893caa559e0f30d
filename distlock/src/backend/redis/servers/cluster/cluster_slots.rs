//! What a cluster learns from the subscriptions at its nodes.

use std::sync::Weak;

use super::Cluster;
use super::follow::Told;
use crate::backend::redis::messages::{ServerNumber, Slots};
use crate::backend::redis::reply::Elsewhere;

/// What the subscriptions at the nodes tell.
pub(super) struct ClusterSlots(pub(super) Weak<Cluster>);

impl Slots for ClusterSlots {
    fn sent_elsewhere(&self, number: ServerNumber, redirects: &[Elsewhere]) {
        let Some(cluster) = self.0.upgrade() else {
            return;
        };
        let mut is_changed = false;
        if let Some(node) = cluster.nodes.numbered(number) {
            for redirect in redirects {
                // What is no redirect teaches nothing; the map is read anyway.
                let told = cluster.told_elsewhere(&node, redirect);
                is_changed |= matches!(told, Ok(Told::NewOwner(_)));
            }
        }
        // Once for all of them, because this looks at each channel of the client.
        if is_changed {
            cluster.nodes.changed();
        } else {
            // The client may have learned that before, when the channels were not subscribed yet.
            cluster.nodes.move_channels();
        }
    }

    fn lost_slot(&self, _number: ServerNumber) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.want_map();
        }
    }
}
