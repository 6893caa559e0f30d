//! Random sequences of operations, played on two sides and compared step by step.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::test_util::{Answer, Kind, Verbs};
use distlock::{Error, HeldBy};
use distlock_tests::{RedisCluster, RedisServer, SentinelSet, size};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError, TestCaseResult, TestRunner};
use tokio::runtime::{Builder, Runtime};

use super::side::{DataLoss, Side, TOKEN, Tokens, token_of};

/// An operation that both sides carry out.
pub(crate) trait Step: Clone + Debug {
    /// Carries it out.
    async fn take(&self, verbs: &Verbs) -> Answer;

    /// Are the locks and fencing tokens that the servers keep compared after each step as well?
    const COMPARES_LOCKS: bool = false;
}

/// What happens on both sides, one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Event<S> {
    Step(S),
    Pause(Duration),
    Loses(DataLoss),
}

/// For a server in real time: leases long enough that none ends by chance.
pub(crate) fn long_leases() -> impl Strategy<Value = Duration> + Clone {
    (1..6_u64).prop_map(|n| Duration::from_secs(n * 100))
}

/// For paused time: odd hundreds of milliseconds.
pub(crate) fn odd_leases() -> impl Strategy<Value = Duration> + Clone {
    (0..6_u64).prop_map(|n| Duration::from_millis(n * 200 + 100))
}

/// One pause for so many steps, of even hundreds of milliseconds: no [odd lease](odd_leases) ends at the very moment
/// of a step.
pub(crate) fn with_pauses<S: Step>(
    step: impl Strategy<Value = S>,
    steps: u32,
) -> impl Strategy<Value = Event<S>> {
    let pause = (1..4_u64).prop_map(|n| Event::Pause(Duration::from_millis(n * 200)));
    prop_oneof![steps => step.prop_map(Event::Step), 1 => pause]
}

/// For a server in real time: how far two times may differ on a machine that stands still now and then.
pub(super) const TOLERANCE: Duration = Duration::from_secs(40);

/// A number that no owner has, and no request.
pub(crate) fn unused() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1_000_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A refusal for the type of the value is an answer; no other error is.
pub(crate) fn or_wrong_type(answer: Result<Answer, Error>) -> Answer {
    match answer {
        Err(Error::WrongType { .. }) => Answer::WrongType,
        answer => answer.unwrap(),
    }
}

/// Tokens that a server took from its clock are near, but not the same.
fn same_token(one: u64, two: u64) -> bool {
    one == two || is_by_clock(one) && is_by_clock(two)
}

fn is_by_clock(token: u64) -> bool {
    (1_700_000_000_000_000..1 << 52).contains(&token)
}

fn alike(one: &Answer, two: &Answer, tolerance: Duration) -> bool {
    let close = |one: &Option<Duration>, two: &Option<Duration>| match (one, two) {
        (Some(one), Some(two)) => one.abs_diff(*two) <= tolerance,
        (one, two) => one == two,
    };
    match (one, two) {
        (Answer::Held(one), Answer::Held(two)) => close(one, two),
        (Answer::HeldAt(at, one), Answer::HeldAt(there, two)) => at == there && close(one, two),
        (Answer::Token(Some(one)), Answer::Token(Some(two))) => same_token(*one, *two),
        (Answer::Holders(one, ttl_one), Answer::Holders(two, ttl_two)) => {
            one == two && close(ttl_one, ttl_two)
        }
        (Answer::Each(ones), Answer::Each(twos)) => {
            // Of those that go together, a refusal may have the time from before the grants of the others.
            let alike = |(one, two): (&Answer, &Answer)| match (one, two) {
                (Answer::Held(one), Answer::Held(two)) => one.is_some() == two.is_some(),
                (one, two) => alike(one, two, tolerance),
            };
            ones.len() == twos.len() && ones.iter().zip(twos).all(alike)
        }
        (one, two) => one == two,
    }
}

/// Whether two refusals name the same holder. Of several, each may name another one.
fn names_the_same(one: &Option<HeldBy>, two: &Option<HeldBy>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => {
            let is_one_owner = one.others == 0;
            one.others == two.others
                && one.owner.is_some() == two.owner.is_some()
                && (!is_one_owner || one.owner == two.owner)
        }
        (one, two) => one.is_none() && two.is_none(),
    }
}

/// Tests that memory agrees with one server, with a cluster, whose keys have this prefix, and with a set of servers with Sentinels.
macro_rules! agree_on_all_servers {
    ($kind:expr, $prefix:expr, $event:expr, $full:expr) => {
        #[test]
        fn memory_and_redis_agree() {
            $crate::differential::agree::memory_and_redis_agree($kind, $event, $full);
        }

        $crate::differential::agree::agree_on_several_servers!($kind, $prefix, $event, $full);
    };
}
pub(crate) use agree_on_all_servers;

/// The same without one server.
macro_rules! agree_on_several_servers {
    ($kind:expr, $prefix:expr, $event:expr, $full:expr) => {
        #[test]
        #[ignore = "played by `.ci/run engines`: a cluster takes time"]
        fn memory_and_cluster_agree() {
            $crate::differential::agree::memory_and_cluster_agree($kind, $prefix, $event, $full);
        }

        #[test]
        #[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
        fn memory_and_sentinel_agree() {
            $crate::differential::agree::memory_and_sentinel_agree($kind, $event, $full);
        }
    };
}
pub(crate) use agree_on_several_servers;

/// Tests that memory agrees with itself in paused time: steps with odd leases, and one pause to so many of them.
macro_rules! agrees_with_itself {
    ($kind:expr, with_pauses($step:ident, $steps:expr), $full:expr) => {
        #[test]
        fn memory_and_memory_agree() {
            use $crate::differential::agree;
            let event = agree::with_pauses($step(agree::odd_leases()), $steps);
            agree::memory_and_memory_agree($kind, event, $full);
        }
    };
}
pub(crate) use agrees_with_itself;

async fn same_data(one: &Side, two: &Side) -> TestCaseResult {
    let ((locks, tokens), (others, other_tokens)) = (one.stored().await, two.stored().await);
    prop_assert_eq!(locks, others);
    // A server in memory forgets the tokens of free keys that its clock has passed. The answers to later attempts show
    // that it does no harm.
    let kept_by_both = |tokens: Tokens| -> Tokens {
        let name = |name: String| {
            if name.starts_with(TOKEN) {
                name
            } else {
                token_of(&name)
            }
        };
        let ahead = tokens.into_iter().filter(|(_, token)| !is_by_clock(*token));
        ahead.map(|(key, token)| (name(key), token)).collect()
    };
    prop_assert_eq!(kept_by_both(tokens), kept_by_both(other_tokens));
    Ok(())
}

/// Whether both sides answered a step alike, and named the same holder.
pub(super) fn same_answers<S: Step>(
    (at, step): (usize, &S),
    (one, two): (&Answer, &Answer),
    (first, second): (&Verbs, &Verbs),
    tolerance: Duration,
) -> TestCaseResult {
    prop_assert!(
        alike(one, two, tolerance),
        "step {at}, {step:?}: {one:?} and {two:?}"
    );
    let named = (first.take_refused_by(), second.take_refused_by());
    prop_assert!(
        names_the_same(&named.0, &named.1),
        "step {at}, {step:?}: refused by {named:?}"
    );
    Ok(())
}

async fn compare<S: Step>(
    round: u64,
    events: &[Event<S>],
    (one, two): (&Side, &Side),
    tolerance: Duration,
) -> TestCaseResult {
    if S::COMPARES_LOCKS {
        tokio::join!(
            one.lose(DataLoss::AllLost, 0),
            two.lose(DataLoss::AllLost, 0)
        );
    }
    // Each round has keys of its own: nothing of a former one is in its way.
    let (first, second) = (one.verbs.in_round(round), two.verbs.in_round(round));
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Step(step) => {
                let answers = tokio::join!(step.take(&first), step.take(&second));
                let answers = (&answers.0, &answers.1);
                same_answers((at, step), answers, (&first, &second), tolerance)?;
            }
            Event::Pause(time) => tokio::time::sleep(*time).await,
            Event::Loses(loss) => {
                tokio::join!(one.lose(*loss, round), two.lose(*loss, round));
            }
        }
        if S::COMPARES_LOCKS {
            same_data(one, two).await.map_err(|differ| {
                TestCaseError::fail(format!("after step {at}, {event:?}: {differ}"))
            })?;
        }
    }
    Ok(())
}

/// The seed that the environment asks for, or any.
pub(super) fn seed() -> u64 {
    let asked = std::env::var("SEED").ok();
    asked.map_or_else(rand::random, |seed| seed.parse().unwrap())
}

/// Drives both sides with `cases` sequences of up to `length` events.
fn agree<S: Step>(
    runtime: &Runtime,
    sides: (&Side, &Side),
    tolerance: Duration,
    event: impl Strategy<Value = Event<S>>,
    (cases, length): (u32, usize),
) {
    let seed = seed();
    let config = ProptestConfig {
        rng_seed: RngSeed::Fixed(seed),
        // Which sequence it was is printed, shrunk; there is no source file to keep it beside.
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let mut runner = TestRunner::new(config);
    let events = prop::collection::vec(event, 1..length);
    let (rounds, taken) = (Cell::new(0), Cell::new(0));
    let agreed = runner.run(&events, |events| {
        rounds.set(rounds.get() + 1);
        taken.set(taken.get() + events.len());
        runtime.block_on(compare(rounds.get(), &events, sides, tolerance))
    });
    agreed.unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
    println!("SEED={seed}: {} steps agreed", taken.get());
}

/// Drives memory and a Redis server with so many sequences of up to so many events, in real time: `full` ones in the full
/// size of the tests.
///
/// Leases are minutes: what is compared is which of them counts, not how fast the machine is.
pub(crate) fn memory_and_redis_agree<S: Step>(
    kind: Kind,
    event: impl Strategy<Value = Event<S>>,
    full: (u32, usize),
) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(RedisServer::start());
    let redis = runtime.block_on(Side::redis(&server.url(), &[&server], kind, ""));
    in_real_time(&runtime, (&Side::memory(kind, ""), &redis), event, full);
}

/// The same on a cluster. The keys of all sides have this prefix: one with a hash tag brings them into one slot.
pub(crate) fn memory_and_cluster_agree<S: Step>(
    kind: Kind,
    prefix: &str,
    event: impl Strategy<Value = Event<S>>,
    full: (u32, usize),
) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let cluster = runtime.block_on(RedisCluster::builder().replicas(false).start());
    let nodes: Vec<_> = (0..cluster.size()).map(|at| cluster.node(at)).collect();
    let redis = runtime.block_on(Side::redis(&cluster.url(), &nodes, kind, prefix));
    in_real_time(&runtime, (&Side::memory(kind, prefix), &redis), event, full);
}

/// The same on a set of servers with Sentinels.
pub(crate) fn memory_and_sentinel_agree<S: Step>(
    kind: Kind,
    event: impl Strategy<Value = Event<S>>,
    full: (u32, usize),
) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let set = runtime.block_on(SentinelSet::builder().patient().start());
    let master = set.server(runtime.block_on(set.master()));
    let redis = runtime.block_on(Side::redis(&set.url(), &[master], kind, ""));
    in_real_time(&runtime, (&Side::memory(kind, ""), &redis), event, full);
}

fn in_real_time<S: Step>(
    runtime: &Runtime,
    sides: (&Side, &Side),
    event: impl Strategy<Value = Event<S>>,
    full: (u32, usize),
) {
    agree(runtime, sides, TOLERANCE, event, size((30, 100), full));
}

/// The same on two memory servers in paused time: what depends on anything but the operations shows here.
pub(crate) fn memory_and_memory_agree<S: Step>(
    kind: Kind,
    event: impl Strategy<Value = Event<S>>,
    full: (u32, usize),
) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let tolerance = Duration::from_millis(1);
    let sides = (&Side::memory(kind, ""), &Side::memory(kind, ""));
    agree(&runtime, sides, tolerance, event, size((60, 60), full));
}
