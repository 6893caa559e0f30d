use proptest::prelude::*;

use super::*;

const LINGER: Duration = Duration::from_millis(10);

fn name(name: &str) -> Channel {
    Arc::from(name)
}

fn live(channels: &mut Channels, channel: &Channel) -> watch::Receiver<Signal> {
    let (signal, _) = channels.join(channel);
    let send = channels.take_wanted(9);
    channels.subscribed(&send, Tick::default()).send();
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
    channels.unsubscribed(&send).send();
    assert!(channels.is_empty());
}

#[test]
fn share_that_joins_during_the_unsubscription_is_subscribed_again() {
    let (mut channels, channel) = (Channels::new(LINGER), name("c"));
    let _signal = live(&mut channels, &channel);
    channels.leave(&channel, Tick::default());
    let send = channels.take_lingered(Tick::from_millis(10), 9);
    let (signal, _) = channels.join(&channel);
    channels.unsubscribed(&send).send();
    assert!(!signal.borrow().active);
    let again = channels.take_wanted(9);
    assert_eq!(again, [channel]);
    channels.subscribed(&again, Tick::default()).send();
    assert!(signal.borrow().active);
}

#[test]
fn lost_connection_is_signalled_and_shared_channels_are_subscribed_again() {
    let (mut channels, channel) = (Channels::new(LINGER), name("c"));
    let mut signal = live(&mut channels, &channel);
    signal.mark_unchanged();
    channels.disconnected().send();
    assert!(signal.has_changed().unwrap() && !signal.borrow().active);
    assert_eq!(channels.take_wanted(9), [channel]);
}

#[test]
fn share_dropped_before_the_command_leaves_nothing() {
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
            14 => Step::Confirm,
            _ if n % 4 > 0 => Step::Confirm,
            _ => Step::Disconnect,
        }
    })
}

proptest! {
    // In these cases some 100,000 shares join the first channel.
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Against a model of the server that obeys each command: no signal is active while the server has no subscription.
    /// In the end every channel with shares is active, and every other one is removed.
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
                        channels.subscribed(&send, tick).send();
                    }
                    Some((false, send)) => {
                        server.retain(|channel| !send.contains(channel));
                        channels.unsubscribed(&send).send();
                    }
                    None => {}
                },
                Step::Disconnect => {
                    under_way = None;
                    server.clear();
                    channels.disconnected().send();
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
