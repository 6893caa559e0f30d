//! State machine 3: which channels one client listens to, by how many shares: Wanted → Subscribing → Live → Lingering →
//! Leaving.
//!
//! Plain data: no connection, no clock, no `.await`. The subscriber task sends what it is told to send, one command at a
//! time for each channel, and reports what came of it.
//!
//! # Invariants
//! 1. A channel is here while somebody has a share in it, or the server may still think that we listen.
//! 2. `live` is said only between the server's confirmation and the end of that very connection.
//! 3. For each channel at most one command is under way, so a confirmation is never taken for another's.

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
    Subscribing,
    Live,
    /// Subscribed, with nobody listening any more; until this time.
    Lingering(Tick),
    Leaving,
}

#[derive(Debug)]
struct Entry {
    state: State,
    shares: usize,
    signal: watch::Sender<Signal>,
}

/// What a channel's listeners are to be told, once no mutex is held.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct News(Vec<(watch::Sender<Signal>, Option<bool>)>);

impl News {
    /// Wakes the listeners.
    pub(super) fn tell(self) {
        for (signal, live) in self.0 {
            signal.send_modify(|signal| {
                signal.active = live.unwrap_or(signal.active);
                signal.version += 1;
            });
        }
    }
}

/// The channels of one client.
#[derive(Debug)]
pub(super) struct Channels {
    entries: HashMap<Channel, Entry>,
    /// Exactly those in that state: what is wanted and given up while nothing can be sent leaves nothing.
    wanted: BTreeSet<Channel>,
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

    /// Another share in a channel. The flag says whether something is to be sent.
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

    /// A share goes.
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

    /// The channels to subscribe now, at most `most`.
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

    /// The channels to unsubscribe at `now`, at most `most`.
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

    /// When a channel's lingering ends next.
    pub(super) fn next_end(&self) -> Tick {
        self.lingering
            .first()
            .map_or(Tick::NEVER, |(until, _)| *until)
    }

    /// The server confirmed the subscription.
    pub(super) fn subscribed(&mut self, channels: &[Channel], now: Tick) -> News {
        let mut news = News::default();
        for channel in channels {
            let Some(entry) = self.entries.get_mut(channel) else {
                continue;
            };
            if entry.state != State::Subscribing {
                continue;
            }
            entry.state = State::Live;
            news.0.push((entry.signal.clone(), Some(true)));
            if entry.shares == 0 {
                self.begin_lingering(channel, now);
            }
        }
        news
    }

    /// The server confirmed that we listen no more. Who came meanwhile wants the channel again.
    pub(super) fn unsubscribed(&mut self, channels: &[Channel]) -> News {
        let mut news = News::default();
        for channel in channels {
            let Some(entry) = self.entries.get(channel) else {
                continue;
            };
            if entry.state == State::Leaving {
                self.fall(channel, &mut news);
            }
        }
        news
    }

    /// The connection is gone, and with it every subscription.
    pub(super) fn disconnected(&mut self) -> News {
        let mut news = News::default();
        let channels: Vec<Channel> = self.entries.keys().cloned().collect();
        for channel in &channels {
            self.fall(channel, &mut news);
        }
        self.lingering.clear();
        news
    }

    /// A channel is not subscribed any more: it goes, or is wanted again.
    fn fall(&mut self, channel: &Channel, news: &mut News) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return;
        };
        if entry.shares == 0 {
            self.entries.remove(channel);
        } else if entry.state != State::Wanted {
            entry.state = State::Wanted;
            news.0.push((entry.signal.clone(), Some(false)));
            self.wanted.insert(Arc::clone(channel));
        }
    }

    /// A message came in.
    pub(super) fn message(&self, channel: &str) -> News {
        let signal = self
            .entries
            .get(channel)
            .map(|entry| (entry.signal.clone(), None));
        News(signal.into_iter().collect())
    }

    /// How many of this client's connections the server counts as listeners of a channel: one or none.
    pub(super) fn listens(&self, channel: &str) -> i64 {
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

    /// Is there anything to keep a connection for?
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
