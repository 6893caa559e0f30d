//! What a cluster learns from the subscriptions at its nodes.

use std::sync::Weak;

use super::Cluster;
use crate::backend::redis::messages::{ServerNumber, Slots};
use crate::backend::redis::reply::Elsewhere;

/// What the subscriptions at the nodes tell.
pub(super) struct ClusterSlots(pub(super) Weak<Cluster>);

impl Slots for ClusterSlots {
    fn sent_elsewhere(&self, number: ServerNumber, redirects: &[Elsewhere]) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.subscriptions_sent_elsewhere(number, redirects);
        }
    }

    fn lost_slot(&self, _number: ServerNumber) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.want_map();
        }
    }
}
