use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;

const LINGER: Duration = Duration::from_millis(10);

const HERE: ServerNumber = 1;
const THERE: ServerNumber = 2;

fn name(name: &str) -> Channel {
    Arc::from(name)
}

fn live(channels: &mut Channels, channel: &Channel) -> watched::Receiver {
    let (signal, _) = channels.join(channel, HERE);
    let send = channels.take_wanted(HERE, 9);
    channels.subscribed(HERE, &send, Tick::default()).send();
    signal
}

#[test]
fn second_share_sends_nothing_and_the_last_one_lingers_before_it_leaves() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let signal = live(&mut channels, &channel);
    assert!(signal.get().active);
    assert!(!channels.join(&channel, HERE).1);
    let _late = channels.leave(&channel, Tick::default());
    let _late = channels.leave(&channel, Tick::default());
    assert!(
        channels
            .take_lingered(HERE, Tick::from_millis(9), 9)
            .is_empty()
    );
    let send = channels.take_lingered(HERE, Tick::from_millis(10), 9);
    assert_eq!(send, [Arc::clone(&channel)]);
    channels.unsubscribed(HERE, &send).send();
    assert!(channels.is_empty(HERE));
}

#[test]
fn channel_that_is_left_and_joined_again_has_one_look_and_wakes_the_task_once() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let _signal = live(&mut channels, &channel);
    let leave = |channels: &mut Channels, ms| {
        let late = channels.leave(&channel, Tick::from_millis(ms));
        assert!(channels.timed.len() == 1 && channels.next_end(HERE) == Tick::from_millis(10));
        late
    };
    assert_eq!(leave(&mut channels, 0), Some(HERE));
    for ms in 1..5 {
        let _signal = channels.join(&name("c"), HERE);
        assert_eq!(leave(&mut channels, ms), None);
    }
    // It lingers since the last time.
    let mut take = |ms| channels.take_lingered(HERE, Tick::from_millis(ms), 9);
    assert!(take(10).is_empty() && take(13).is_empty());
    assert_eq!(take(14), [name("c")]);
}

#[test]
fn share_that_joins_during_the_unsubscription_is_subscribed_again() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let _signal = live(&mut channels, &channel);
    let _late = channels.leave(&channel, Tick::default());
    let send = channels.take_lingered(HERE, Tick::from_millis(10), 9);
    let (signal, _) = channels.join(&channel, HERE);
    channels.unsubscribed(HERE, &send).send();
    assert!(!signal.get().active);
    let again = channels.take_wanted(HERE, 9);
    assert_eq!(again, [channel]);
    channels.subscribed(HERE, &again, Tick::default()).send();
    assert!(signal.get().active);
}

#[test]
fn lost_connection_is_signalled_and_shared_channels_are_subscribed_again() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let mut signal = live(&mut channels, &channel);
    signal.mark_unchanged();
    channels.disconnected(HERE).send();
    assert!(signal.changed().now_or_never().is_some() && !signal.get().active);
    assert_eq!(channels.take_wanted(HERE, 9), [channel]);
}

#[test]
fn share_dropped_before_the_command_leaves_nothing() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let _signal = channels.join(&channel, HERE);
    let _late = channels.leave(&channel, Tick::default());
    assert!(channels.wanted.is_empty() && channels.is_empty(HERE));
    assert!(channels.take_wanted(HERE, 9).is_empty());
}

#[test]
fn channel_that_moves_is_wanted_at_its_new_place_only() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let signal = live(&mut channels, &channel);
    channels.move_to(THERE, &channel).send();
    assert!(!signal.get().active && channels.is_empty(HERE));
    // What the old number still says does not count.
    channels.disconnected(HERE).send();
    assert!(channels.take_wanted(HERE, 9).is_empty());
    let send = channels.take_wanted(THERE, 9);
    assert_eq!(send, [Arc::clone(&channel)]);
    channels.subscribed(HERE, &send, Tick::default()).send();
    assert!(!signal.get().active);
    channels.subscribed(THERE, &send, Tick::default()).send();
    assert!(signal.get().active && channels.subscribers(THERE, "c") == 1);
    assert_eq!(channels.subscribers(HERE, "c"), 0);
    // Without shares it does not move, it ends.
    let _late = channels.leave(&channel, Tick::default());
    channels.move_to(HERE, &channel).send();
    assert!(channels.len() == 0 && channels.timed.is_empty() && channels.wanted.is_empty());
}

#[test]
fn refused_channel_is_wanted_again_after_a_pause_while_it_has_shares() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let until = Tick::from_millis(20);
    let (mut signal, _) = channels.join(&channel, HERE);
    let send = channels.take_wanted(HERE, 9);
    signal.mark_unchanged();
    channels.refused(HERE, &channel, until).send();
    assert!(signal.changed().now_or_never().is_some() && !signal.get().active);
    assert_eq!(channels.next_end(HERE), until);
    // Neither at once, nor because another share joins.
    let early = Tick::from_millis(19);
    let _signal = channels.join(&channel, HERE);
    assert!(channels.take_lingered(HERE, early, 9).is_empty());
    assert!(channels.take_wanted(HERE, 9).is_empty());
    assert!(channels.take_lingered(HERE, until, 9).is_empty());
    assert_eq!(channels.take_wanted(HERE, 9), send);
    for _ in 0..2 {
        let _late = channels.leave(&channel, until);
    }
    channels.refused(HERE, &channel, until).send();
    assert!(channels.is_empty(HERE) && channels.timed.is_empty());
}

#[test]
fn refused_channel_leaves_nothing_if_its_shares_go_and_is_wanted_at_once_elsewhere() {
    let mut channels = Channels::new(LINGER);
    let channel = name("c");
    let until = Tick::from_millis(20);
    for moves in [false, true] {
        let _signal = channels.join(&channel, HERE);
        channels.take_wanted(HERE, 9);
        channels.refused(HERE, &channel, until).send();
        if moves {
            channels.move_to(THERE, &channel).send();
            assert!(channels.timed.is_empty());
            assert_eq!(channels.take_wanted(THERE, 9), [Arc::clone(&channel)]);
            channels.refused(THERE, &channel, until).send();
        }
        let _late = channels.leave(&channel, Tick::default());
        assert!(channels.len() == 0 && channels.timed.is_empty() && channels.wanted.is_empty());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Leave(usize),
    Pass(u64),
    Send,
    Confirm,
    Refuse,
    Disconnect,
    Move(usize),
}

/// Three of four steps concern the first channel, and confirmations are slow. So shares join it in each of its states,
/// also while its unsubscription is unconfirmed.
fn step() -> impl Strategy<Value = Step> {
    (0..128_u8).prop_map(|n| {
        let which = [0, 0, 0, 0, 0, 0, 1, 2][usize::from(n % 8)];
        match n / 8 {
            0..3 => Step::Join(which),
            3..7 => Step::Leave(which),
            7..10 => Step::Pass(u64::from(n % 4) * 5),
            10..14 => Step::Send,
            14 if n % 8 == 0 => Step::Refuse,
            14 => Step::Confirm,
            _ if n % 4 > 1 => Step::Confirm,
            _ if n % 4 == 1 => Step::Move(which),
            _ => Step::Disconnect,
        }
    })
}

proptest! {
    // In these cases some 100,000 shares join the first channel.
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Against a model of two servers that obey each command: no signal is active while the server at the channel's number has
    /// no subscription. In the end every channel with shares is active, and every other one is removed.
    #[test]
    fn random_calls_agree_with_the_servers(steps in prop::collection::vec(step(), 1..400)) {
        let names = [name("a"), name("b"), name("c")];
        let numbers = [HERE, THERE];
        let mut at = [HERE; 3];
        let mut channels = Channels::new(LINGER);
        let mut now = 0;
        let mut shares: [Vec<watched::Receiver>; 3] = Default::default();
        let mut servers: [BTreeSet<Channel>; 2] = Default::default();
        let mut under_way: [Option<(bool, Vec<Channel>)>; 2] = Default::default();
        let ending = [Step::Confirm, Step::Send, Step::Confirm, Step::Pass(50), Step::Send, Step::Confirm];
        let ending = ending.iter().cycle().take(24).cloned();
        for step in steps.into_iter().chain(ending) {
            let tick = Tick::from_millis(now);
            match step {
                Step::Join(which) => shares[which].push(channels.join(&names[which], at[which]).0),
                Step::Leave(which) => if shares[which].pop().is_some() {
                    let _late = channels.leave(&names[which], tick);
                },
                Step::Pass(by) => now += by,
                Step::Send => for (number, under_way) in numbers.iter().zip(&mut under_way) {
                    if under_way.is_none() {
                        let gone = channels.take_lingered(*number, tick, 2);
                        *under_way = Some(if gone.is_empty() { (true, channels.take_wanted(*number, 2)) } else { (false, gone) });
                    }
                },
                Step::Confirm | Step::Refuse => for ((number, under_way), server) in numbers.iter().zip(&mut under_way).zip(&mut servers) {
                    match under_way.take() {
                        Some((true, send)) => {
                            // The server refuses a channel that has moved, or that the user may not subscribe to.
                            for channel in send {
                                let which = names.iter().position(|name| *name == channel).unwrap();
                                if at[which] == *number && matches!(step, Step::Confirm) {
                                    server.insert(Arc::clone(&channel));
                                    channels.subscribed(*number, &[channel], tick).send();
                                } else {
                                    channels.refused(*number, &channel, Tick::from_millis(now + 10)).send();
                                }
                            }
                        }
                        Some((false, send)) => {
                            server.retain(|channel| !send.contains(channel));
                            channels.unsubscribed(*number, &send).send();
                        }
                        None => {}
                    }
                },
                Step::Disconnect => {
                    under_way[0] = None;
                    servers[0].clear();
                    channels.disconnected(HERE).send();
                }
                // A server that loses a slot ends the subscriptions in it, and its connection is replaced.
                Step::Move(which) => {
                    let from = at[which];
                    let index = numbers.iter().position(|number| *number == from).unwrap();
                    at[which] = numbers[1 - index];
                    channels.move_to(at[which], &names[which]).send();
                    under_way[index] = None;
                    servers[index].clear();
                    channels.disconnected(from).send();
                }
            }
            let in_state = channels.entries.iter().filter(|(_, entry)| entry.state == State::Wanted);
            let in_state: BTreeSet<_> = in_state.map(|(name, entry)| (entry.server, Arc::clone(name))).collect();
            prop_assert_eq!(&in_state, &channels.wanted);
            let planned = channels.entries.iter().filter_map(|(name, entry)| Some((entry.server, entry.look_at?, Arc::clone(name))));
            prop_assert_eq!(&planned.collect::<BTreeSet<_>>(), &channels.timed);
            let is_looked_at = |entry: &Entry| match entry.state {
                State::Lingering(until) | State::Refused(until) => entry.look_at.is_some_and(|at| at <= until),
                _ => true,
            };
            prop_assert!(channels.entries.values().all(is_looked_at));
            for (which, shares) in shares.iter().enumerate() {
                let server = &servers[usize::from(at[which] == THERE)];
                for share in shares {
                    prop_assert!(!share.get().active || server.contains(&names[which]));
                }
            }
        }
        for (which, shares) in shares.iter().enumerate() {
            let server = &servers[usize::from(at[which] == THERE)];
            prop_assert!(shares.iter().all(|share| share.get().active));
            prop_assert_eq!(server.contains(&names[which]), !shares.is_empty());
        }
        prop_assert_eq!(channels.len(), servers.iter().map(BTreeSet::len).sum::<usize>());
    }
}

#[test]
fn table_of_channels_shrinks_when_a_rush_of_them_has_gone() {
    let mut channels = Channels::new(LINGER);
    let names: Vec<_> = (0..5_000).map(|n| name(&format!("c{n}"))).collect();
    let signals: Vec<_> = names.iter().map(|c| channels.join(c, HERE)).collect();
    for channel in &names {
        let _late = channels.leave(channel, Tick::default());
    }
    drop(signals);
    assert!(channels.entries.capacity() <= 64);
}
