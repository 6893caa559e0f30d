//! The channels of a server in this process: who subscribes to which topic, and how a message gets there.

use std::collections::HashMap;
use std::sync::Arc;

use super::store::{Name, State, Store};
use crate::backend::{Signal, Subscription, Target, watched};
use crate::resource::key::Key;
use crate::resource::kind::{Family, Line};
use crate::resource::owner::Owner;

/// What a subscription is about: a key, or one waiter in the server's queue for that key.
pub(super) type Topic = (Family, Name, Option<Owner>);

/// The subscribers of one topic.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) signal: watched::Sender,
    /// The number of shares that each client has. A client without shares has no entry.
    shares: HashMap<u64, usize>,
}

/// Subscribes a client to what a waiter of `target` needs to know. The subscription is active at once, if the server is up.
pub(super) fn subscribe(store: &Arc<Store>, client: u64, target: &Target) -> Subscription {
    let kind = target.resource.kind;
    let waiter = (kind.line() == Line::Server).then_some(target.owner);
    let topic = (
        kind.family(),
        Arc::clone(target.resource.key.name()),
        waiter,
    );
    let mut state = store.state.lock();
    // Read under the mutex: a server that is brought up makes all channels active under it.
    let active = store.is_up();
    let channel = state
        .channels
        .entry(topic.clone())
        .or_insert_with(|| Channel {
            signal: watched::Sender::new(Signal {
                active,
                ..Signal::default()
            }),
            shares: HashMap::new(),
        });
    *channel.shares.entry(client).or_default() += 1;
    let signal = channel.signal.subscribe();
    let share = Share {
        store: Arc::clone(store),
        client,
        topic,
    };
    Subscription::new(signal, share)
}

impl State {
    /// Notifies the subscribers of a key, and answers how many clients other than `client` are among them.
    pub(super) fn publish(&mut self, client: u64, family: Family, key: &Key) -> u32 {
        // Nearly always, if nobody waits.
        if self.channels.is_empty() {
            return 0;
        }
        self.publish_on(client, &(family, Arc::clone(key.name()), None))
    }

    /// How many clients are subscribed to a key.
    pub(super) fn subscribers(&self, family: Family, name: &Name) -> u64 {
        let channel = self.channels.get(&(family, Arc::clone(name), None));
        channel.map_or(0, |channel| channel.shares.len() as u64)
    }

    /// Like [`publish`](State::publish), for any topic.
    pub(super) fn publish_on(&mut self, client: u64, topic: &Topic) -> u32 {
        let Some(channel) = self.channels.get(topic) else {
            return 0;
        };
        self.published.push(channel.signal.clone());
        let others = channel.shares.len() - usize::from(channel.shares.contains_key(&client));
        others.try_into().unwrap_or(u32::MAX)
    }
}

/// One share in a channel. The channel is removed with its last share.
struct Share {
    store: Arc<Store>,
    client: u64,
    topic: Topic,
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
