//! How a client listens to the messages of a server, and what it is told of a cluster's slots meanwhile.

use std::sync::Arc;

use super::channels::ServerNumber;
use crate::backend::redis::reply::Elsewhere;

/// How a client listens.
#[derive(Clone)]
pub(crate) enum PubSubMode {
    /// By SUBSCRIBE.
    Plain,
    /// By SSUBSCRIBE, at the node that has the channel's slot.
    Sharded(Arc<dyn Slots>),
    /// Both ways.
    Both(Arc<dyn Slots>),
}

/// What a cluster's node tells about its slots while channels are subscribed there.
pub(crate) trait Slots: Send + Sync {
    /// The node with this number has sent these subscriptions elsewhere.
    fn sent_elsewhere(&self, number: ServerNumber, redirects: &[Elsewhere]);

    /// The node with this number has ended a subscription unasked, because it has lost a slot.
    fn lost_slot(&self, number: ServerNumber);
}

impl PubSubMode {
    pub(super) fn slots(&self) -> Option<&Arc<dyn Slots>> {
        match self {
            Self::Plain => None,
            Self::Sharded(slots) | Self::Both(slots) => Some(slots),
        }
    }
}
