//! Channels.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::store::{Name, State, Store};
use crate::backend::Signal;
use crate::key::Key;
use crate::kind::Family;
use crate::owner::Owner;

/// What is listened to: what happens to a key, or to one waiter of it.
pub(super) type Topic = (Family, Name, Option<Owner>);

/// The subscribers of one topic, and how many shares each client has.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) signal: watch::Sender<Signal>,
    pub(super) shares: HashMap<u64, usize>,
}

impl State {
    /// Tells those who listen to a key, and answers whether there are any but this client.
    pub(super) fn publish(&mut self, client: u64, family: Family, key: &Key) -> bool {
        self.publish_on(client, &(family, Arc::clone(key.name()), None))
    }

    /// The same of any topic.
    pub(super) fn publish_on(&mut self, client: u64, topic: &Topic) -> bool {
        let Some(channel) = self.channels.get(topic) else {
            return false;
        };
        self.news.push(channel.signal.clone());
        channel.shares.keys().any(|other| *other != client)
    }
}

/// One share in a channel; the last one to go takes the channel along.
pub(super) struct Share {
    pub(super) store: Arc<Store>,
    pub(super) client: u64,
    pub(super) topic: Topic,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        let Some(channel) = state.channels.get_mut(&self.topic) else {
            return;
        };
        if let Some(shares) = channel.shares.get_mut(&self.client) {
            *shares -= 1;
            if *shares == 0 {
                channel.shares.remove(&self.client);
            }
        }
        if channel.shares.is_empty() {
            state.channels.remove(&self.topic);
        }
    }
}
