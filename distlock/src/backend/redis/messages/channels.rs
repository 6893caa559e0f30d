//! State machine 3: the subscriptions of one client.
//!
//! Each channel goes through Wanted → Subscribing → Live → Lingering → Leaving.
//!
//! A channel has a place: the server that it is subscribed at. In a cluster, it moves to another place with its slot, and is
//! wanted there.
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
//! 3. At most one command per channel is unanswered at its place, so a confirmation cannot be mistaken for that of another
//!    command. What another place still answers does not count.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Signal, watched};
use crate::clock::Tick;
use crate::foreign;

/// A channel's name.
pub(crate) type Channel = Arc<str>;

/// The number of a server.
pub(crate) type Place = u32;

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
    place: Place,
    state: State,
    shares: usize,
    signal: watched::Sender,
}

/// Signals to change once the mutex around the channels is released: each change wakes waiters. The flag is the new
/// state of the subscription; a message leaves it as it is.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Notifications {
    changes: Vec<(watched::Sender, Option<bool>)>,
    /// The signals of channels that were removed. Dropping one wakes those that still watch it.
    ended: Vec<watched::Sender>,
}

impl Notifications {
    /// Wakes the waiters.
    pub(super) fn send(self) {
        foreign::each(self.changes, |(signal, active)| {
            signal.send_modify(|signal| {
                signal.active = active.unwrap_or(signal.active);
                signal.version += 1;
                signal.messages += u64::from(active.is_none());
            });
        });
    }
}

/// The channels of one client.
#[derive(Debug)]
pub(super) struct Channels {
    entries: HashMap<Channel, Entry>,
    /// The channels in the state [`Wanted`](State::Wanted), and no others. A channel that is joined and left without a
    /// connection is removed from here.
    wanted: BTreeSet<(Place, Channel)>,
    /// The channels in the state [`Lingering`](State::Lingering), by their place and the end of that time.
    lingering: BTreeSet<(Place, Tick, Channel)>,
    linger: Duration,
    /// Before all other names.
    first_name: Channel,
}

impl Channels {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            wanted: BTreeSet::new(),
            lingering: BTreeSet::new(),
            linger,
            first_name: Channel::from(""),
        }
    }

    /// Adds a share in a channel, which is subscribed at `place` unless it has a place already. The flag says whether there is
    /// a command to send for it.
    pub(super) fn join(&mut self, channel: &Channel, place: Place) -> (watched::Receiver, bool) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return (self.insert(channel, place), true);
        };
        entry.shares += 1;
        if let State::Lingering(until) = entry.state {
            entry.state = State::Live;
            let lingering = (entry.place, until, Arc::clone(channel));
            self.lingering.remove(&lingering);
        }
        (entry.signal.subscribe(), false)
    }

    fn insert(&mut self, channel: &Channel, place: Place) -> watched::Receiver {
        let (signal, receiver) = watched::channel(Signal::default());
        let entry = Entry {
            place,
            state: State::Wanted,
            shares: 1,
            signal,
        };
        self.entries.insert(Arc::clone(channel), entry);
        self.wanted.insert((place, Arc::clone(channel)));
        receiver
    }

    /// Removes a share in a channel. Returns the place whose task wakes too late for the end of the channel's lingering, if
    /// there is one.
    pub(super) fn leave(&mut self, channel: &Channel, now: Tick) -> (Option<Place>, Notifications) {
        let mut notifications = Notifications::default();
        let Some(entry) = self.entries.get_mut(channel) else {
            return (None, notifications);
        };
        entry.shares = entry.shares.saturating_sub(1);
        if entry.shares > 0 {
            return (None, notifications);
        }
        let (place, state) = (entry.place, entry.state);
        let before = self.next_end(place);
        match state {
            State::Wanted => {
                let removed = self.entries.remove(channel);
                notifications
                    .ended
                    .extend(removed.map(|entry| entry.signal));
                self.wanted.remove(&(place, Arc::clone(channel)));
            }
            State::Live => self.begin_lingering(channel, now),
            // The confirmation decides: without shares the channel lingers then, or is removed.
            State::Subscribing | State::Lingering(_) | State::Leaving => {}
        }
        // The task sleeps until `before`. It need not wake for channels that linger until later.
        let late = (self.next_end(place) < before).then_some(place);
        (late, notifications)
    }

    fn begin_lingering(&mut self, channel: &Channel, now: Tick) {
        let until = now.after(self.linger);
        if let Some(entry) = self.entries.get_mut(channel) {
            entry.state = State::Lingering(until);
            let lingering = (entry.place, until, Arc::clone(channel));
            self.lingering.insert(lingering);
        }
    }

    /// Takes at most `most` of the channels to subscribe at a place. The caller sends the command.
    pub(super) fn take_wanted(&mut self, place: Place, most: usize) -> Vec<Channel> {
        let from = (place, Arc::clone(&self.first_name));
        let here = self.wanted.range(from..).take_while(|one| one.0 == place);
        let send: Vec<Channel> = here.take(most).map(|(_, name)| Arc::clone(name)).collect();
        for channel in &send {
            self.wanted.remove(&(place, Arc::clone(channel)));
            if let Some(entry) = self.entries.get_mut(channel) {
                entry.state = State::Subscribing;
            }
        }
        send
    }

    /// Takes at most `most` of the channels at a place whose lingering has ended. The caller sends the command to
    /// unsubscribe.
    pub(super) fn take_lingered(&mut self, place: Place, now: Tick, most: usize) -> Vec<Channel> {
        let mut send = Vec::new();
        while send.len() < most {
            let Some(lingering) = self.next_lingering(place) else {
                break;
            };
            if lingering.1 > now {
                break;
            }
            let lingering = lingering.clone();
            self.lingering.remove(&lingering);
            let (_, _, channel) = lingering;
            if let Some(entry) = self.entries.get_mut(&channel) {
                entry.state = State::Leaving;
                send.push(channel);
            }
        }
        send
    }

    fn next_lingering(&self, place: Place) -> Option<&(Place, Tick, Channel)> {
        let from = (place, Tick::default(), Arc::clone(&self.first_name));
        self.lingering
            .range(from..)
            .next()
            .filter(|one| one.0 == place)
    }

    /// When the lingering of a channel at a place ends next.
    pub(super) fn next_end(&self, place: Place) -> Tick {
        self.next_lingering(place)
            .map_or(Tick::NEVER, |(_, until, _)| *until)
    }

    /// The server at a place has confirmed the subscription.
    pub(super) fn subscribed(
        &mut self,
        place: Place,
        channels: &[Channel],
        now: Tick,
    ) -> Notifications {
        let mut notifications = Notifications::default();
        for channel in channels {
            let Some(entry) = self.entries.get_mut(channel) else {
                continue;
            };
            if entry.state != State::Subscribing || entry.place != place {
                continue;
            }
            entry.state = State::Live;
            notifications
                .changes
                .push((entry.signal.clone(), Some(true)));
            if entry.shares == 0 {
                self.begin_lingering(channel, now);
            }
        }
        notifications
    }

    /// The server at a place did not subscribe to the channel. With shares it is wanted again.
    pub(super) fn refused(&mut self, place: Place, channel: &Channel) -> Notifications {
        let mut notifications = Notifications::default();
        let entry = self.entries.get(channel);
        if entry.is_some_and(|entry| entry.state == State::Subscribing && entry.place == place) {
            self.drop_subscription(channel, &mut notifications);
        }
        notifications
    }

    /// The server at a place has confirmed the end of the subscription. A channel that got a new share meanwhile is wanted
    /// again.
    pub(super) fn unsubscribed(&mut self, place: Place, channels: &[Channel]) -> Notifications {
        let mut notifications = Notifications::default();
        for channel in channels {
            if self.is_leaving(place, channel) {
                self.drop_subscription(channel, &mut notifications);
            }
        }
        notifications
    }

    /// Whether the end of the subscription was asked for at a place.
    pub(super) fn is_leaving(&self, place: Place, channel: &str) -> bool {
        let entry = self.entries.get(channel);
        entry.is_some_and(|entry| entry.state == State::Leaving && entry.place == place)
    }

    /// The connection to a place is gone, and with it every subscription there.
    pub(super) fn disconnected(&mut self, place: Place) -> Notifications {
        let mut notifications = Notifications::default();
        let here = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.place == place);
        let channels: Vec<Channel> = here.map(|(channel, _)| Arc::clone(channel)).collect();
        for channel in &channels {
            self.drop_subscription(channel, &mut notifications);
        }
        notifications
    }

    /// The channel is to be subscribed at this place, and no more where it is: its slot has moved.
    pub(super) fn move_to(&mut self, place: Place, channel: &Channel) -> Notifications {
        let mut notifications = Notifications::default();
        if self
            .entries
            .get(channel)
            .is_none_or(|entry| entry.place == place)
        {
            return notifications;
        }
        self.drop_subscription(channel, &mut notifications);
        if let Some(entry) = self.entries.get_mut(channel) {
            self.wanted.remove(&(entry.place, Arc::clone(channel)));
            entry.place = place;
            self.wanted.insert((place, Arc::clone(channel)));
        }
        notifications
    }

    /// The place of a channel.
    pub(super) fn place(&self, channel: &str) -> Option<Place> {
        self.entries.get(channel).map(|entry| entry.place)
    }

    /// The channels and their places.
    pub(super) fn places(&self) -> Vec<(Channel, Place)> {
        let entries = self.entries.iter();
        entries
            .map(|(channel, entry)| (Arc::clone(channel), entry.place))
            .collect()
    }

    /// A channel is not subscribed any more: without shares its entry is removed, with shares it is wanted again.
    fn drop_subscription(&mut self, channel: &Channel, notifications: &mut Notifications) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return;
        };
        if let State::Lingering(until) = entry.state {
            let lingering = (entry.place, until, Arc::clone(channel));
            self.lingering.remove(&lingering);
        }
        if entry.shares == 0 {
            let removed = self.entries.remove(channel);
            notifications
                .ended
                .extend(removed.map(|entry| entry.signal));
        } else if entry.state != State::Wanted {
            entry.state = State::Wanted;
            notifications
                .changes
                .push((entry.signal.clone(), Some(false)));
            self.wanted.insert((entry.place, Arc::clone(channel)));
        }
    }

    /// A message has arrived.
    pub(super) fn message(&self, channel: &str) -> Notifications {
        let signal = self
            .entries
            .get(channel)
            .map(|entry| (entry.signal.clone(), None));
        Notifications {
            changes: signal.into_iter().collect(),
            ended: Vec::new(),
        }
    }

    /// How many of this client's connections the server at a place counts as subscribers of a channel: one or none.
    pub(super) fn subscribers(&self, place: Place, channel: &str) -> i64 {
        let here = self
            .entries
            .get(channel)
            .filter(|entry| entry.place == place);
        i64::from(matches!(
            here.map(|entry| entry.state),
            Some(State::Live | State::Lingering(_) | State::Leaving)
        ))
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to keep a connection to a place for.
    pub(super) fn is_empty(&self, place: Place) -> bool {
        !self.entries.values().any(|entry| entry.place == place)
    }
}

#[cfg(test)]
mod tests;
