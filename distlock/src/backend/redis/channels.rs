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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINGER: Duration = Duration::from_millis(10);

    fn name(name: &str) -> Channel {
        Arc::from(name)
    }

    fn live(channels: &mut Channels, channel: &Channel) -> watch::Receiver<Signal> {
        let (signal, _) = channels.join(channel);
        let send = channels.take_wanted(9);
        channels.subscribed(&send, Tick::default()).tell();
        signal
    }

    #[test]
    fn second_share_sends_nothing_and_the_last_one_lingers_before_it_leaves() {
        let (mut channels, channel) = (Channels::new(LINGER), name("c"));
        let signal = live(&mut channels, &channel);
        assert!(signal.borrow().active);
        assert!(!channels.join(&channel).1);
        channels.leave(&channel, Tick::default());
        channels.leave(&channel, Tick::default());
        assert!(channels.take_lingered(Tick::from_millis(9), 9).is_empty());
        let send = channels.take_lingered(Tick::from_millis(10), 9);
        assert_eq!(send, [Arc::clone(&channel)]);
        channels.unsubscribed(&send).tell();
        assert!(channels.is_empty());
    }

    #[test]
    fn who_joins_while_the_unsubscription_is_under_way_is_subscribed_anew() {
        let (mut channels, channel) = (Channels::new(LINGER), name("c"));
        let _signal = live(&mut channels, &channel);
        channels.leave(&channel, Tick::default());
        let send = channels.take_lingered(Tick::from_millis(10), 9);
        let (signal, _) = channels.join(&channel);
        channels.unsubscribed(&send).tell();
        assert!(!signal.borrow().active);
        let again = channels.take_wanted(9);
        assert_eq!(again, [channel]);
        channels.subscribed(&again, Tick::default()).tell();
        assert!(signal.borrow().active);
    }

    #[test]
    fn lost_connection_is_told_and_what_is_wanted_is_subscribed_again() {
        let (mut channels, channel) = (Channels::new(LINGER), name("c"));
        let mut signal = live(&mut channels, &channel);
        signal.mark_unchanged();
        channels.disconnected().tell();
        assert!(signal.has_changed().unwrap() && !signal.borrow().active);
        assert_eq!(channels.take_wanted(9), [channel]);
    }

    #[test]
    fn share_that_goes_before_the_command_was_sent_leaves_nothing() {
        let (mut channels, channel) = (Channels::new(LINGER), name("c"));
        let _signal = channels.join(&channel);
        channels.leave(&channel, Tick::default());
        assert!(channels.wanted.is_empty() && channels.is_empty());
        assert!(channels.take_wanted(9).is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(usize),
        Leave(usize),
        Pass(u64),
        Send,
        Confirm,
        Disconnect,
    }

    /// Three of four steps concern the first channel, and confirmations are slow: its shares come in each of its
    /// states, also while the unsubscription is under way.
    fn step() -> impl Strategy<Value = Step> {
        (0..128_u8).prop_map(|n| {
            let which = [0, 0, 0, 0, 0, 0, 1, 2][usize::from(n % 8)];
            match n / 8 {
                0..3 => Step::Join(which),
                3..7 => Step::Leave(which),
                7..10 => Step::Pass(u64::from(n % 4) * 5),
                10..14 => Step::Send,
                14 => Step::Confirm,
                _ if n % 4 > 0 => Step::Confirm,
                _ => Step::Disconnect,
            }
        })
    }

    proptest! {
        // Some 100,000 shares come to the first channel.
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// Against a server that does what it is told: nobody is told `live` while the server has no subscription, and
        /// in the end what has shares is live and all else is gone.
        #[test]
        fn random_calls_agree_with_the_server(steps in prop::collection::vec(step(), 1..400)) {
            let names = [name("a"), name("b"), name("c")];
            let mut channels = Channels::new(LINGER);
            let mut now = 0;
            let mut shares: [Vec<watch::Receiver<Signal>>; 3] = Default::default();
            let mut server: BTreeSet<Channel> = BTreeSet::new();
            let mut under_way: Option<(bool, Vec<Channel>)> = None;
            let ending = [Step::Confirm, Step::Send, Step::Confirm, Step::Pass(50), Step::Send, Step::Confirm];
            let ending = ending.iter().cycle().take(24).cloned();
            for step in steps.into_iter().chain(ending) {
                let tick = Tick::from_millis(now);
                match step {
                    Step::Join(which) => shares[which].push(channels.join(&names[which]).0),
                    Step::Leave(which) => if shares[which].pop().is_some() {
                        channels.leave(&names[which], tick);
                    },
                    Step::Pass(by) => now += by,
                    Step::Send => if under_way.is_none() {
                        let gone = channels.take_lingered(tick, 2);
                        under_way = Some(if gone.is_empty() { (true, channels.take_wanted(2)) } else { (false, gone) });
                    },
                    Step::Confirm => match under_way.take() {
                        Some((true, send)) => {
                            server.extend(send.iter().cloned());
                            channels.subscribed(&send, tick).tell();
                        }
                        Some((false, send)) => {
                            server.retain(|channel| !send.contains(channel));
                            channels.unsubscribed(&send).tell();
                        }
                        None => {}
                    },
                    Step::Disconnect => {
                        under_way = None;
                        server.clear();
                        channels.disconnected().tell();
                    }
                }
                let in_state = channels.entries.iter().filter(|(_, entry)| entry.state == State::Wanted);
                let in_state: BTreeSet<Channel> = in_state.map(|(name, _)| Arc::clone(name)).collect();
                prop_assert_eq!(&in_state, &channels.wanted);
                for (which, shares) in shares.iter().enumerate() {
                    for share in shares {
                        prop_assert!(!share.borrow().active || server.contains(&names[which]));
                    }
                }
            }
            for (which, shares) in shares.iter().enumerate() {
                prop_assert!(shares.iter().all(|share| share.borrow().active));
                prop_assert_eq!(server.contains(&names[which]), !shares.is_empty());
            }
            prop_assert_eq!(channels.len(), server.len());
        }
    }
}
