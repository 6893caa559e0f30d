//! Two sides, each a backend, and what it takes to compare them step by step.

use std::fmt::Debug;
use std::time::Duration;

use distlock::test_util::{Answer, Kind, Verbs};
use distlock::{Client, MemoryServer};
use distlock_tests::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

/// Longer than anything takes on a noisy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) const KEYS: [&str; 3] = ["a", "{b}:c", "d e\0\r\n"];

/// The client that all owners are of, so that they can be compared as they stand in the server.
pub(crate) const OWNERS: Uuid = Uuid::from_u128(7);

/// An operation that both sides carry out.
pub(crate) trait Step: Clone + Debug {
    /// Carries it out.
    async fn take(&self, verbs: &Verbs) -> Answer;

    /// How long time passes on both sides instead, if that is what it is.
    fn passes(&self) -> Option<Duration> {
        None
    }
}

fn alike(one: &Answer, two: &Answer, tolerance: Duration) -> bool {
    let close = |one: &Option<Duration>, two: &Option<Duration>| match (one, two) {
        (Some(one), Some(two)) => one.abs_diff(*two) <= tolerance,
        (one, two) => one == two,
    };
    match (one, two) {
        (Answer::Held(one), Answer::Held(two)) => close(one, two),
        (Answer::Holders(one, ttl_one), Answer::Holders(two, ttl_two)) => {
            one == two && close(ttl_one, ttl_two)
        }
        (one, two) => one == two,
    }
}

/// One of the two backends: a client of a server on which nothing is locked.
pub(crate) struct Side {
    verbs: Verbs,
}

impl Side {
    fn of(client: &Client, kind: Kind) -> Self {
        let verbs = Verbs::new(client, OWNERS).of_kind(kind);
        Self { verbs }
    }
}

async fn compare<S: Step>(
    round: u64,
    steps: &[S],
    (one, two): (&Side, &Side),
    tolerance: Duration,
) -> TestCaseResult {
    // Each round has keys of its own: nothing of a former one is in its way.
    let (one, two) = (one.verbs.in_round(round), two.verbs.in_round(round));
    for (at, step) in steps.iter().enumerate() {
        if let Some(time) = step.passes() {
            tokio::time::sleep(time).await;
            continue;
        }
        let (first, second) = tokio::join!(step.take(&one), step.take(&two));
        prop_assert!(
            alike(&first, &second, tolerance),
            "step {at}, {step:?}: {first:?} and {second:?}"
        );
    }
    Ok(())
}

/// Drives both sides with `cases` sequences of up to `length` steps.
fn agree<S: Step>(
    runtime: &Runtime,
    sides: (&Side, &Side),
    tolerance: Duration,
    step: impl Strategy<Value = S>,
    (cases, length): (u32, usize),
) {
    let config = ProptestConfig {
        // Which sequence it was is printed, shrunk; there is no source file to keep it beside.
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let mut runner = TestRunner::new(config);
    let steps = prop::collection::vec(step, 1..length);
    let rounds = std::cell::Cell::new(0);
    let agreed = runner.run(&steps, |steps| {
        rounds.set(rounds.get() + 1);
        runtime.block_on(compare(rounds.get(), &steps, sides, tolerance))
    });
    agreed.unwrap_or_else(|error| panic!("{error}"));
}

/// Drives memory and a Redis server with `cases` sequences of up to `length` steps, in real time.
///
/// Leases are minutes: what is compared is which of them counts, not how fast the machine is.
pub(crate) fn memory_and_redis_agree<S: Step>(
    kind: Kind,
    step: impl Strategy<Value = S>,
    size: (u32, usize),
) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(RedisServer::start());
    let redis = runtime.block_on(Client::connect(&server.url())).unwrap();
    let sides = (
        &Side::of(&Client::in_memory(), kind),
        &Side::of(&redis, kind),
    );
    agree(&runtime, sides, Duration::from_secs(40), step, size);
}

/// The same on two memory servers in paused time: what depends on anything but the operations shows here.
pub(crate) fn memory_and_memory_agree<S: Step>(
    kind: Kind,
    step: impl Strategy<Value = S>,
    size: (u32, usize),
) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let side = || {
        let builder = Client::builder();
        Side::of(&builder.in_memory(&MemoryServer::new()).unwrap(), kind)
    };
    let tolerance = Duration::from_millis(1);
    agree(&runtime, (&side(), &side()), tolerance, step, size);
}
