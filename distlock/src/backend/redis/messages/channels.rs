//! State machine 3: the subscriptions of one client.
//!
//! Each channel goes through Wanted → Subscribing → Live → Lingering → Leaving. One that the server refuses is
//! Refused for a moment, and Wanted again after that.
//!
//! A channel is subscribed at one server. In a cluster, it moves to another server with its slot, and is wanted there.
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
//! 3. At most one command per channel is unanswered at its server, so a confirmation cannot be mistaken for that of another
//!    command. What another server still answers does not count.
//! 4. A channel has at most one planned look. One that lingers or was refused has a look by the end of that time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::notifications::Notifications;
use crate::backend::{Signal, watched};
use crate::clock::Tick;
use crate::sync::table;

/// A channel's name.
pub(crate) type Channel = Arc<str>;

pub(crate) type ServerNumber = u32;

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
    /// The server has refused the subscription. It is not asked again before this time.
    Refused(Tick),
}

#[derive(Debug)]
struct Entry {
    server: ServerNumber,
    state: State,
    shares: u32,
    signal: watched::Sender,
    /// When its state is looked at, if that is planned.
    look_at: Option<Tick>,
}

#[derive(Debug)]
pub(super) struct Channels {
    entries: HashMap<Channel, Entry, RandomState>,
    /// The channels in the state [`Wanted`](State::Wanted), and no others. A channel that is joined and left without a
    /// connection is removed from here.
    wanted: BTreeSet<(ServerNumber, Channel)>,
    /// The planned looks at channels, by their server and time. A look stays when the lingering of its channel ends, because a
    /// channel is often left and joined many times within that time.
    timed: BTreeSet<(ServerNumber, Tick, Channel)>,
    linger: Duration,
    /// Before all other names.
    first_name: Channel,
}

impl Channels {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            entries: HashMap::default(),
            wanted: BTreeSet::new(),
            timed: BTreeSet::new(),
            linger,
            first_name: Channel::from(""),
        }
    }

    /// Adds a share in a channel, which is subscribed at `server` unless it is at another one already. The flag says whether there is
    /// a command to send for it.
    pub(super) fn join(
        &mut self,
        channel: &Channel,
        server: ServerNumber,
    ) -> (watched::Receiver, bool) {
        let Some(entry) = self.entries.get_mut(channel) else {
            return (self.insert(channel, server), true);
        };
        entry.shares += 1;
        if let State::Lingering(_) = entry.state {
            entry.state = State::Live;
        }
        // If it is being unsubscribed, it is wanted again as soon as that is confirmed.
        (entry.signal.subscribe(), false)
    }

    fn insert(&mut self, channel: &Channel, server: ServerNumber) -> watched::Receiver {
        let (signal, receiver) = watched::channel(Signal::default());
        let entry = Entry {
            server,
            state: State::Wanted,
            shares: 1,
            signal,
            look_at: None,
        };
        self.entries.insert(Arc::clone(channel), entry);
        self.wanted.insert((server, Arc::clone(channel)));
        receiver
    }

    /// Removes a share in a channel. Returns the server whose task wakes too late for the end of the channel's lingering, if
    /// there is one.
    pub(super) fn leave(&mut self, channel: &Channel, now: Tick) -> Option<ServerNumber> {
        let entry = self.entries.get_mut(channel)?;
        // Each share leaves once, so the number is not 0 before. Saturating, because drops call this and must not panic.
        entry.shares = entry.shares.saturating_sub(1);
        if entry.shares > 0 {
            return None;
        }
        let server = entry.server;
        match entry.state {
            State::Wanted | State::Refused(_) => {
                self.cancel_look(channel);
                self.remove(channel);
                self.wanted.remove(&(server, Arc::clone(channel)));
                None
            }
            State::Live => self.begin_lingering(channel, now).then_some(server),
            // The confirmation decides: without shares the channel lingers then, or is removed.
            State::Subscribing | State::Lingering(_) | State::Leaving => None,
        }
    }

    /// Returns whether the task of the server wakes too late for the end of the lingering.
    fn begin_lingering(&mut self, channel: &Channel, now: Tick) -> bool {
        let until = now.after(self.linger);
        if let Some(entry) = self.entries.get_mut(channel) {
            entry.state = State::Lingering(until);
        }
        self.plan_look(channel, until)
    }

    /// Plans a look at a channel at `at`, unless an earlier one is planned. Returns whether no look at its server was planned until
    /// then, so that the task wakes too late.
    fn plan_look(&mut self, channel: &Channel, at: Tick) -> bool {
        let Some(entry) = self.entries.get(channel) else {
            return false;
        };
        if entry.look_at.is_some_and(|planned| planned <= at) {
            return false;
        }
        let server = entry.server;
        let is_first = at < self.next_end(server);
        self.cancel_look(channel);
        self.timed.insert((server, at, Arc::clone(channel)));
        if let Some(entry) = self.entries.get_mut(channel) {
            entry.look_at = Some(at);
        }
        is_first
    }

    fn cancel_look(&mut self, channel: &Channel) {
        if let Some(entry) = self.entries.get_mut(channel)
            && let Some(at) = entry.look_at.take()
        {
            self.timed.remove(&(entry.server, at, Arc::clone(channel)));
        }
    }

    /// Takes at most `most` of the channels to subscribe at a server. The caller sends the command.
    pub(super) fn take_wanted(&mut self, server: ServerNumber, most: usize) -> Vec<Channel> {
        let from = (server, Arc::clone(&self.first_name));
        let here = self.wanted.range(from..).take_while(|one| one.0 == server);
        let send: Vec<Channel> = here.take(most).map(|(_, name)| Arc::clone(name)).collect();
        for channel in &send {
            self.wanted.remove(&(server, Arc::clone(channel)));
            if let Some(entry) = self.entries.get_mut(channel) {
                entry.state = State::Subscribing;
            }
        }
        send
    }

    /// Looks at no more than `most` channels at a server, and takes those whose lingering has ended. The caller sends the command
    /// to unsubscribe. Those that may be asked for again after a refusal are wanted from now on.
    pub(super) fn take_lingered(
        &mut self,
        server: ServerNumber,
        now: Tick,
        most: usize,
    ) -> Vec<Channel> {
        let mut send = Vec::new();
        for _ in 0..most {
            let due = self.next_timed(server).filter(|timed| timed.1 <= now);
            let Some(due) = due.cloned() else {
                break;
            };
            self.timed.remove(&due);
            let (_, _, channel) = due;
            let Some(entry) = self.entries.get_mut(&channel) else {
                continue;
            };
            entry.look_at = None;
            match entry.state {
                State::Lingering(until) | State::Refused(until) if until > now => {
                    let _is_first = self.plan_look(&channel, until);
                }
                State::Lingering(_) => {
                    entry.state = State::Leaving;
                    send.push(channel);
                }
                State::Refused(_) => {
                    entry.state = State::Wanted;
                    self.wanted.insert((server, channel));
                }
                // It was joined again since the look was planned.
                State::Live | State::Wanted | State::Subscribing | State::Leaving => {}
            }
        }
        send
    }

    fn next_timed(&self, server: ServerNumber) -> Option<&(ServerNumber, Tick, Channel)> {
        let from = (server, Tick::default(), Arc::clone(&self.first_name));
        let mut timed = self.timed.range(from..);
        timed.next().filter(|one| one.0 == server)
    }

    /// When the task of a server has to wake: no lingering and no refusal of a channel there ends before.
    pub(super) fn next_end(&self, server: ServerNumber) -> Tick {
        self.next_timed(server)
            .map_or(Tick::NEVER, |(_, until, _)| *until)
    }

    /// The server has confirmed the subscription.
    pub(super) fn subscribed(
        &mut self,
        server: ServerNumber,
        channels: &[Channel],
        now: Tick,
    ) -> Notifications {
        let mut notifications = Notifications::default();
        for channel in channels {
            let Some(entry) = self.entries.get_mut(channel) else {
                continue;
            };
            // The channel has moved, or its connection was lost meanwhile: this answer says nothing of its present subscription.
            if entry.state != State::Subscribing || entry.server != server {
                continue;
            }
            entry.state = State::Live;
            notifications.add(&entry.signal, Some(true));
            if entry.shares == 0 {
                let _is_late = self.begin_lingering(channel, now);
            }
        }
        notifications
    }

    /// The server did not subscribe to the channel. With shares it is wanted again from `until` on.
    pub(super) fn refused(
        &mut self,
        server: ServerNumber,
        channel: &Channel,
        until: Tick,
    ) -> Notifications {
        let mut notifications = Notifications::default();
        let entry = self.entries.get_mut(channel);
        let is_asked =
            |entry: &&mut Entry| entry.state == State::Subscribing && entry.server == server;
        match entry.filter(is_asked) {
            None => {}
            Some(entry) if entry.shares == 0 => {
                self.drop_subscription(channel, &mut notifications);
            }
            Some(entry) => {
                entry.state = State::Refused(until);
                notifications.add(&entry.signal, Some(false));
                let _is_late = self.plan_look(channel, until);
            }
        }
        notifications
    }

    /// The server has confirmed the end of the subscription. A channel that got a new share meanwhile is wanted
    /// again.
    pub(super) fn unsubscribed(
        &mut self,
        server: ServerNumber,
        channels: &[Channel],
    ) -> Notifications {
        let mut notifications = Notifications::default();
        for channel in channels {
            if self.is_leaving(server, channel) {
                self.drop_subscription(channel, &mut notifications);
            }
        }
        notifications
    }

    /// Whether the end of the subscription was asked for at a server.
    pub(super) fn is_leaving(&self, server: ServerNumber, channel: &str) -> bool {
        let entry = self.entries.get(channel);
        entry.is_some_and(|entry| entry.state == State::Leaving && entry.server == server)
    }

    /// The connection to a server is gone, and with it every subscription there.
    pub(super) fn disconnected(&mut self, server: ServerNumber) -> Notifications {
        let mut notifications = Notifications::default();
        let here = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.server == server);
        let channels: Vec<Channel> = here.map(|(channel, _)| Arc::clone(channel)).collect();
        for channel in &channels {
            self.drop_subscription(channel, &mut notifications);
        }
        notifications
    }

    /// The channel is to be subscribed at this server, and no more where it is: its slot has moved.
    pub(super) fn move_to(&mut self, server: ServerNumber, channel: &Channel) -> Notifications {
        let mut notifications = Notifications::default();
        if self
            .entries
            .get(channel)
            .is_none_or(|entry| entry.server == server)
        {
            return notifications;
        }
        self.drop_subscription(channel, &mut notifications);
        if let Some(entry) = self.entries.get_mut(channel) {
            // It is among the wanted ones of its former server by now.
            self.wanted.remove(&(entry.server, Arc::clone(channel)));
            entry.server = server;
            self.wanted.insert((server, Arc::clone(channel)));
        }
        notifications
    }

    pub(super) fn server(&self, channel: &str) -> Option<ServerNumber> {
        self.entries.get(channel).map(|entry| entry.server)
    }

    pub(super) fn servers(&self) -> Vec<(Channel, ServerNumber)> {
        let entries = self.entries.iter();
        entries
            .map(|(channel, entry)| (Arc::clone(channel), entry.server))
            .collect()
    }

    fn remove(&mut self, channel: &Channel) {
        self.entries.remove(channel);
        table::shrink(&mut self.entries);
    }

    /// A channel is not subscribed any more: without shares its entry is removed, with shares it is wanted again.
    fn drop_subscription(&mut self, channel: &Channel, notifications: &mut Notifications) {
        self.cancel_look(channel);
        let Some(entry) = self.entries.get_mut(channel) else {
            return;
        };
        if entry.shares == 0 {
            self.remove(channel);
        } else if entry.state != State::Wanted {
            entry.state = State::Wanted;
            notifications.add(&entry.signal, Some(false));
            self.wanted.insert((entry.server, Arc::clone(channel)));
        }
    }

    /// A message has arrived.
    pub(super) fn message(&self, channel: &str) -> Notifications {
        let mut notifications = Notifications::default();
        if let Some(entry) = self.entries.get(channel) {
            notifications.add(&entry.signal, None);
        }
        notifications
    }

    /// How many of this client's connections the server counts as subscribers of a channel: one or none.
    pub(super) fn subscribers(&self, server: ServerNumber, channel: &str) -> i64 {
        let here = self
            .entries
            .get(channel)
            .filter(|entry| entry.server == server);
        i64::from(matches!(
            here.map(|entry| entry.state),
            // Also while it leaves: the server counts it until it has confirmed the end.
            Some(State::Live | State::Lingering(_) | State::Leaving)
        ))
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to keep a connection to a server for.
    pub(super) fn is_empty(&self, server: ServerNumber) -> bool {
        !self.entries.values().any(|entry| entry.server == server)
    }
}

#[cfg(test)]
mod tests;
