//! Two backends, the same random operations, every answer compared.
//!
//! The verbs are driven bare, below the client's waiting and renewing. Owners are compared by number, times with a
//! tolerance. A sequence that differs is shrunk by proptest to the shortest one.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

use std::time::Duration;

use distlock::test_util::{Answer, Verbs};
use distlock::{Client, MemoryServer};
use distlock_tests::{RedisServer, eventually_eq};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

/// Longer than anything takes on a noisy machine.
const SOON: Duration = Duration::from_secs(10);

const KEYS: [&str; 3] = ["a", "{b}:c", "d e\0\r\n"];

#[derive(Clone, Debug)]
enum Step {
    Attempt { key: usize, owner: u64, lease: u64 },
    Renew(Vec<(usize, u64, u32, u64)>),
    Release { key: usize, owner: u64 },
    ForceRelease { key: usize },
    Inspect { key: usize },
    Pass { ms: u64 },
    Expire { key: usize, owner: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let owner = 1..4_u64;
    // Odd hundreds for leases and even ones for what passes: nothing expires at the very moment of a step.
    let lease = (0..6_u64).prop_map(|n| n * 200 + 100);
    let renewal = (key.clone(), owner.clone(), 1..4_u32, lease.clone());
    prop_oneof![
        4 => (key.clone(), owner.clone(), lease)
            .prop_map(|(key, owner, lease)| Step::Attempt { key, owner, lease }),
        3 => prop::collection::vec(renewal, 1..5).prop_map(Step::Renew),
        2 => (key.clone(), owner).prop_map(|(key, owner)| Step::Release { key, owner }),
        1 => key.clone().prop_map(|key| Step::ForceRelease { key }),
        2 => key.prop_map(|key| Step::Inspect { key }),
        2 => (1..4_u64).prop_map(|n| Step::Pass { ms: n * 200 }),
    ]
}

/// For a server in real time: leases long enough that none ends by chance, and some that end at once.
fn timeless_step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let owner = 1..4_u64;
    let lease = (1..6_u64).prop_map(|n| n * 100_000);
    let renewal = (key.clone(), owner.clone(), 1..4_u32, lease.clone());
    prop_oneof![
        4 => (key.clone(), owner.clone(), lease)
            .prop_map(|(key, owner, lease)| Step::Attempt { key, owner, lease }),
        3 => prop::collection::vec(renewal, 1..5).prop_map(Step::Renew),
        2 => (key.clone(), owner.clone()).prop_map(|(key, owner)| Step::Release { key, owner }),
        1 => key.clone().prop_map(|key| Step::ForceRelease { key }),
        2 => key.clone().prop_map(|key| Step::Inspect { key }),
        1 => (key, owner).prop_map(|(key, owner)| Step::Expire { key, owner }),
    ]
}

/// Has a lease of a millisecond end, where it is granted: what was held before, by whom, is part of the answer.
async fn expire(verbs: &Verbs, key: &str, owner: u64) -> Answer {
    let free = Answer::Holders(vec![], None);
    if verbs.inspect(key).await.unwrap() != free {
        return verbs.inspect(key).await.unwrap();
    }
    let brief = Duration::from_millis(1);
    let answer = verbs.attempt(key, owner, brief).await.unwrap();
    eventually_eq(SOON, "the holder", free, || async {
        verbs.inspect(key).await.unwrap()
    })
    .await;
    answer
}

async fn take(step: &Step, verbs: &Verbs) -> Answer {
    let ms = Duration::from_millis;
    let answer = match step {
        Step::Attempt { key, owner, lease } => verbs.attempt(KEYS[*key], *owner, ms(*lease)).await,
        Step::Renew(batch) => {
            let batch: Vec<_> = batch
                .iter()
                .map(|(key, owner, count, lease)| (KEYS[*key], *owner, *count, ms(*lease)))
                .collect();
            verbs.renew(&batch).await
        }
        Step::Release { key, owner } => verbs.release(KEYS[*key], *owner).await,
        Step::ForceRelease { key } => verbs.force_release(KEYS[*key]).await,
        Step::Inspect { key } => verbs.inspect(KEYS[*key]).await,
        Step::Expire { key, owner } => Ok(expire(verbs, KEYS[*key], *owner).await),
        Step::Pass { .. } => unreachable!("time passes for both at once"),
    };
    answer.unwrap()
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
struct Side {
    verbs: Verbs,
}

impl Side {
    /// All owners have one uuid, so that they can be compared as they stand in the server.
    fn of(client: &Client) -> Self {
        let verbs = Verbs::new(client, Uuid::from_u128(7));
        Self { verbs }
    }

    async fn wipe(&self) {
        for key in KEYS {
            self.verbs.force_release(key).await.unwrap();
        }
    }
}

async fn compare(steps: &[Step], one: &Side, two: &Side, tolerance: Duration) -> TestCaseResult {
    one.wipe().await;
    two.wipe().await;
    for (at, step) in steps.iter().enumerate() {
        if let Step::Pass { ms } = step {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            continue;
        }
        let (first, second) = tokio::join!(take(step, &one.verbs), take(step, &two.verbs));
        prop_assert!(
            alike(&first, &second, tolerance),
            "step {at}, {step:?}: {first:?} and {second:?}"
        );
    }
    Ok(())
}

/// Drives both sides with `cases` sequences of up to `length` steps.
fn agree(
    runtime: &Runtime,
    (one, two): (&Side, &Side),
    tolerance: Duration,
    step: impl Strategy<Value = Step>,
    (cases, length): (u32, usize),
) {
    let config = ProptestConfig {
        // Which sequence it was is printed, shrunk; there is no source file to keep it beside.
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let mut runner = TestRunner::new(config);
    let steps = prop::collection::vec(step, 1..length);
    let agreed = runner.run(&steps, |steps| {
        runtime.block_on(compare(&steps, one, two, tolerance))
    });
    agreed.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn memory_and_redis_agree() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(RedisServer::start());
    let redis = runtime.block_on(Client::connect(&server.url())).unwrap();
    let sides = (&Side::of(&Client::in_memory()), &Side::of(&redis));
    // Leases are minutes: what is compared is which of them counts, not how fast the machine is.
    agree(
        &runtime,
        sides,
        Duration::from_secs(40),
        timeless_step(),
        (300, 300),
    );
}

#[test]
fn memory_and_memory_agree() {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let side = || {
        let builder = Client::builder();
        Side::of(&builder.in_memory(&MemoryServer::new()).unwrap())
    };
    agree(
        &runtime,
        (&side(), &side()),
        Duration::from_millis(1),
        step(),
        (500, 120),
    );
}

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let client = Client::in_memory();
    let verbs = Verbs::new(&client, Uuid::from_u128(7));
    let (lease, long) = (Duration::from_secs(1), Duration::from_secs(5));
    let shown = |count| vec![(format!("{}:1", Uuid::from_u128(7)), count)];
    assert_eq!(
        verbs.inspect("a").await.unwrap(),
        Answer::Holders(vec![], None)
    );
    assert_eq!(verbs.release("a", 1).await.unwrap(), Answer::NotOurs);
    assert_eq!(
        verbs.force_release("a").await.unwrap(),
        Answer::Forced(false)
    );
    assert_eq!(verbs.attempt("a", 1, lease).await.unwrap(), Answer::Granted);
    assert_eq!(
        verbs.attempt("a", 2, lease).await.unwrap(),
        Answer::Held(Some(lease))
    );
    // Sent again it changes nothing, and a renewal says how many there are.
    assert_eq!(verbs.attempt("a", 1, lease).await.unwrap(), Answer::Granted);
    assert_eq!(
        verbs.inspect("a").await.unwrap(),
        Answer::Holders(shown(1), Some(lease))
    );
    let batch = [("a", 1, 3, long), ("a", 2, 1, long), ("b", 1, 1, long)];
    let renewed = Answer::Renewed(vec![true, false, false]);
    assert_eq!(verbs.renew(&batch).await.unwrap(), renewed);
    assert_eq!(
        verbs.inspect("a").await.unwrap(),
        Answer::Holders(shown(3), Some(long))
    );
    assert_eq!(
        verbs.inspect("b").await.unwrap(),
        Answer::Holders(vec![], None)
    );
    // A shorter lease never shortens.
    let shorter = [("a", 1, 2, lease)];
    assert_eq!(
        verbs.renew(&shorter).await.unwrap(),
        Answer::Renewed(vec![true])
    );
    assert_eq!(
        verbs.inspect("a").await.unwrap(),
        Answer::Holders(shown(2), Some(long))
    );
    // One release frees at any count; the second finds nothing.
    assert_eq!(verbs.release("a", 2).await.unwrap(), Answer::NotOurs);
    assert_eq!(verbs.release("a", 1).await.unwrap(), Answer::Freed);
    assert_eq!(verbs.release("a", 1).await.unwrap(), Answer::NotOurs);
    assert_eq!(verbs.attempt("a", 2, lease).await.unwrap(), Answer::Granted);
    tokio::time::sleep(lease).await;
    assert_eq!(
        verbs.renew(&[("a", 2, 1, lease)]).await.unwrap(),
        Answer::Renewed(vec![false])
    );
    assert_eq!(verbs.attempt("a", 1, lease).await.unwrap(), Answer::Granted);
    assert_eq!(
        verbs.force_release("a").await.unwrap(),
        Answer::Forced(true)
    );
}
