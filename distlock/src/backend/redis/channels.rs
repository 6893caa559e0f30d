//! State machine 3: the subscriptions of one client.
//!
//! Each channel goes through Wanted → Subscribing → Live → Lingering → Leaving.
//!
//! Any number of waiters share one subscription. A channel that has lost its last share lingers for a moment before it
//! is unsubscribed, since the next waiter for the same key often comes soon.
//!
//! This is plain data: no connection, no clock, no `.await`. The subscriber task takes from here what to subscribe and
//! to unsubscribe, sends it, and reports the outcome.
//!
//! # Invariants
//! 1. A channel has an entry as long as it has shares, or the server may still count this client among its subscribers.
//! 2. A signal is active only from the server's confirmation to the end of the connection that it was confirmed on.
//! 3. At most one command per channel is unanswered, so a confirmation cannot be mistaken for that of another command.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::Signal;
use crate::clock::Tick;

/// A channel's name.
pub(super) type Channel = Arc<str>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be subscribed with the next command.
    Wanted,
    /// The command to subscribe was sent.
    Subscribing,
    /// Subscribed.
    Live,
    /// Subscribed without any share, until this time.
    Lingering(Tick),
    /// The command to unsubscribe was sent.
    Leaving,
}

#[derive(Debug)]
struct Entry {
    state: State,
    shares: usize,
    signal: watch::Sender<Signal>,
}

/// Signals to change once the mutex around the channels is released: each change wakes waiters. The flag is the new
/// state of the subscription; a message leaves it as it is.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Notifications(Vec<(watch::Sender<Signal>, Option<bool>)>);

impl Notifications {
    /// Wakes the waiters.
    pub(super) fn send(self) {
        for (signal, active) in self.0 {
            signal.send_modify(|signal| {
                signal.active = active.unwrap_or(signal.active);
                signal.version += 1;
                signal.messages += u64::from(active.is_none());
            });
        }
    }
}

/// The channels of one client.
#[derive(Debug)]
pub(super) struct Channels {
    entries: HashMap<Channel, Entry>,
    /// The channels in the state [`Wanted`](State::Wanted), and no others: a channel that is joined and left while
    /// there is no connection leaves nothing behind.
    wanted: BTreeSet<Channel>,
    /// The channels in the state [`Lingering`](State::Lingering), by the end of that time.
    lingering: BTreeSet<(Tick, Channel)>,
    linger: Duration,
}

impl Channels {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            wanted: BTreeSet::new(),
            lingering: BTreeSet::new(),
            linger,
        }
    }

    /// Adds a share in a channel. The flag says whether there is a command to send for it.
    pub(super) fn join(&mut self, channel: &Channel) -> (watch::Receiver<Signal>, bool) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return (self.insert(channel), true);
        };
        entry.shares += 1;
        if let State::Lingering(until) = entry.state {
            entry.state = State::Live;
            self.lingering.remove(&(until, Arc::clone(channel)));
        }
        (entry.signal.subscribe(), false)
    }

    fn insert(&mut self, channel: &Channel) -> watch::Receiver<Signal> {
        let (signal, receiver) = watch::channel(Signal::default());
        let entry = Entry {
            state: State::Wanted,
            shares: 1,
            signal,
        };
        self.entries.insert(Arc::clone(channel), entry);
        self.wanted.insert(Arc::clone(channel));
        receiver
    }

    /// Removes a share in a channel.
    pub(super) fn leave(&mut self, channel: &Channel, now: Tick) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return;
        };
        entry.shares = entry.shares.saturating_sub(1);
        if entry.shares > 0 {
            return;
        }
        match entry.state {
            State::Wanted => {
                self.entries.remove(channel);
                self.wanted.remove(channel);
            }
            State::Live => self.begin_lingering(channel, now),
            // The confirmation decides: without shares the channel lingers then, or is removed.
            State::Subscribing | State::Lingering(_) | State::Leaving => {}
        }
    }

    fn begin_lingering(&mut self, channel: &Channel, now: Tick) {
        let until = now.after(self.linger);
        if let Some(entry) = self.entries.get_mut(channel) {
            entry.state = State::Lingering(until);
            self.lingering.insert((until, Arc::clone(channel)));
        }
    }

    /// Takes at most `most` of the channels to subscribe. The caller sends the command.
    pub(super) fn take_wanted(&mut self, most: usize) -> Vec<Channel> {
        let mut send = Vec::new();
        while send.len() < most {
            let Some(channel) = self.wanted.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.get_mut(&channel) {
                entry.state = State::Subscribing;
                send.push(channel);
            }
        }
        send
    }

    /// Takes at most `most` of the channels whose lingering has ended. The caller sends the command to unsubscribe.
    pub(super) fn take_lingered(&mut self, now: Tick, most: usize) -> Vec<Channel> {
        let mut send = Vec::new();
        while send.len() < most
            && self
                .lingering
                .first()
                .is_some_and(|(until, _)| *until <= now)
        {
            let Some((_, channel)) = self.lingering.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.get_mut(&channel) {
                entry.state = State::Leaving;
                send.push(channel);
            }
        }
        send
    }

    /// When the lingering of a channel ends next.
    pub(super) fn next_end(&self) -> Tick {
        self.lingering
            .first()
            .map_or(Tick::NEVER, |(until, _)| *until)
    }

    /// The server has confirmed the subscription.
    pub(super) fn subscribed(&mut self, channels: &[Channel], now: Tick) -> Notifications {
        let mut notifications = Notifications::default();
        for channel in channels {
            let Some(entry) = self.entries.get_mut(channel) else {
                continue;
            };
            if entry.state != State::Subscribing {
                continue;
            }
            entry.state = State::Live;
            notifications.0.push((entry.signal.clone(), Some(true)));
            if entry.shares == 0 {
                self.begin_lingering(channel, now);
            }
        }
        notifications
    }

    /// The server has confirmed the end of the subscription. A channel that got a new share meanwhile is wanted again.
    pub(super) fn unsubscribed(&mut self, channels: &[Channel]) -> Notifications {
        let mut notifications = Notifications::default();
        for channel in channels {
            let Some(entry) = self.entries.get(channel) else {
                continue;
            };
            if entry.state == State::Leaving {
                self.drop_subscription(channel, &mut notifications);
            }
        }
        notifications
    }

    /// The connection is gone, and with it every subscription.
    pub(super) fn disconnected(&mut self) -> Notifications {
        let mut notifications = Notifications::default();
        let channels: Vec<Channel> = self.entries.keys().cloned().collect();
        for channel in &channels {
            self.drop_subscription(channel, &mut notifications);
        }
        self.lingering.clear();
        notifications
    }

    /// A channel is not subscribed any more: without shares its entry is removed, with shares it is wanted again.
    fn drop_subscription(&mut self, channel: &Channel, notifications: &mut Notifications) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return;
        };
        if entry.shares == 0 {
            self.entries.remove(channel);
        } else if entry.state != State::Wanted {
            entry.state = State::Wanted;
            notifications.0.push((entry.signal.clone(), Some(false)));
            self.wanted.insert(Arc::clone(channel));
        }
    }

    /// A message has arrived.
    pub(super) fn message(&self, channel: &str) -> Notifications {
        let signal = self
            .entries
            .get(channel)
            .map(|entry| (entry.signal.clone(), None));
        Notifications(signal.into_iter().collect())
    }

    /// How many of this client's connections the server counts as subscribers of a channel: one or none.
    pub(super) fn subscribers(&self, channel: &str) -> i64 {
        let state = self.entries.get(channel).map(|entry| entry.state);
        i64::from(matches!(
            state,
            Some(State::Live | State::Lingering(_) | State::Leaving)
        ))
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to keep a connection for.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
