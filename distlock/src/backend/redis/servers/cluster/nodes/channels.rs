//! At which nodes the channels are subscribed: at those that have their slots.

use std::collections::BTreeSet;

use super::Nodes;
use crate::backend::Subscription;
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::node::Node;
use crate::backend::redis::slot::slot_of;

impl Nodes {
    /// Has the channels subscribed at the nodes that have their slots.
    pub(crate) fn move_channels(&self) {
        self.move_channels_of(|_| true);
    }

    pub(super) fn move_channels_of(&self, is_meant: impl Fn(u16) -> bool) {
        let mut former = BTreeSet::new();
        for (channel, number) in self.shared.subscriptions.servers() {
            let slot = slot_of(&channel);
            if !is_meant(slot) {
                continue;
            }
            let node = self.node(slot).node;
            if node.number() != number {
                node.subscriber().take_over(&channel);
                former.insert(number);
            }
        }
        if self.publishes() != Publish::Plain {
            // A node that loses a slot ends its sharded subscriptions, and the connection is replaced then.
            return;
        }
        self.state.write().left_by_channels.extend(former);
    }

    /// Ends the plain subscriptions to channels that have moved: the former nodes keep them. They end with the connection, and those
    /// that stay there are made again, so this is done once for many slots.
    pub(in super::super) fn end_left_subscriptions(&self) {
        let left = std::mem::take(&mut self.state.write().left_by_channels);
        for number in left {
            // A node that is forgotten has no connection for messages any more.
            if let Some(node) = self.numbered(number) {
                let link = node.subscriber().link();
                let _was_up = link.replace(link.epoch());
            }
        }
    }

    /// A share in the subscription to a channel of a slot.
    pub(crate) fn subscribe(&self, slot: u16, channel: String) -> Subscription {
        let node = self.node(slot).node;
        self.subscribe_at(&node, slot, channel)
    }

    /// The same at a node that had the slot a moment ago.
    pub(super) fn subscribe_at(&self, node: &Node, slot: u16, channel: String) -> Subscription {
        let subscription = node.subscriber().subscribe(channel);
        // Who has moved the channels of the slot meanwhile has not found this one.
        if self.node(slot).node.number() != node.number() {
            self.move_channels_of(|one| one == slot);
        }
        subscription
    }
}
