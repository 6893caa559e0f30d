//! The semaphore and the count-down latch: numbers, and the requests that count once.

use std::fmt::Debug;
use std::time::Duration;

use distlock::Client;
use distlock::test_util::{Answer, Change, Kind, LatchChange, SemaphoreChange, Verbs};
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::lock::seen;
use super::side::{self, KEYS};

#[derive(Clone, Debug)]
enum NumberStep {
    Attempt {
        key: usize,
        owner: u64,
        permits: u32,
    },
    Release {
        key: usize,
        owner: u64,
        permits: u32,
    },
    Withdraw {
        key: usize,
        owner: u64,
        permits: u32,
    },
    Adjust {
        key: usize,
        request: u64,
        change: Change,
    },
    Delete {
        key: usize,
    },
    DeleteSeen {
        key: usize,
        owner: u64,
        number: i64,
    },
    Inspect {
        key: usize,
    },
    /// The step by a handle whose numbers expire so many hundreds of seconds after their last use.
    Expiring(u64, Box<NumberStep>),
}

/// Longer than any of the steps together.
const LEASE: Duration = Duration::from_secs(3_600);

fn adjusts(
    change: impl Strategy<Value = impl Into<Change> + Debug> + Clone,
) -> impl Strategy<Value = NumberStep> + Clone {
    // So few requests that many are sent again: as the same, and, what nobody does, as another.
    (0..KEYS.len(), 100..130_u64, change).prop_map(|(key, request, change)| NumberStep::Adjust {
        key,
        request,
        change: change.into(),
    })
}

fn semaphore_step() -> impl Strategy<Value = NumberStep> + Clone {
    let key = 0..KEYS.len();
    let taken = (key.clone(), 1..9_u64, 1..4_u32);
    let change = prop_oneof![
        2 => (0..6_u32).prop_map(SemaphoreChange::TrySet),
        4 => (-4..6_i32).prop_map(SemaphoreChange::Add),
        1 => Just(SemaphoreChange::Add(i32::MAX)),
        1 => Just(SemaphoreChange::Drain),
        2 => Just(SemaphoreChange::Count),
    ];
    prop_oneof![
        6 => taken.clone()
            .prop_map(|(key, owner, permits)| NumberStep::Attempt { key, owner, permits }),
        3 => (taken.clone(), any::<bool>()).prop_map(|((key, owner, permits), none)| {
            NumberStep::Release { key, owner, permits: if none { 0 } else { permits } }
        }),
        1 => taken.prop_map(|(key, owner, permits)| NumberStep::Withdraw { key, owner, permits }),
        5 => adjusts(change),
        1 => key.clone().prop_map(|key| NumberStep::Delete { key }),
        2 => (key.clone(), 1..4_u64, 0..4_i64)
            .prop_map(|(key, owner, number)| NumberStep::DeleteSeen { key, owner, number }),
        1 => key.prop_map(|key| NumberStep::Inspect { key }),
    ]
}

fn latch_step() -> impl Strategy<Value = NumberStep> + Clone {
    let key = 0..KEYS.len();
    let change = prop_oneof![
        3 => (0..6_u32).prop_map(LatchChange::TrySet),
        5 => Just(LatchChange::CountDown),
        2 => Just(LatchChange::Count),
    ];
    prop_oneof![
        12 => adjusts(change),
        1 => key.clone().prop_map(|key| NumberStep::Delete { key }),
        2 => (key.clone(), 1..4_u64, 0..4_i64)
            .prop_map(|(key, owner, number)| NumberStep::DeleteSeen { key, owner, number }),
        1 => key.prop_map(|key| NumberStep::Inspect { key }),
    ]
}

/// Half of the steps by handles whose numbers expire after their last use, at two different times.
fn some_expiring(
    step: impl Strategy<Value = NumberStep> + Clone,
) -> impl Strategy<Value = NumberStep> {
    let expiring = (prop_oneof![Just(1_u64), Just(3)], step.clone())
        .prop_map(|(after, step)| NumberStep::Expiring(after, Box::new(step)));
    prop_oneof![step, expiring]
}

/// The same with time that passes: marks go, and numbers.
fn passing(step: impl Strategy<Value = NumberStep>) -> impl Strategy<Value = Event<NumberStep>> {
    let secs = (1..30_u64).prop_map(Duration::from_secs);
    prop_oneof![
        9 => step.prop_map(Event::Step),
        1 => secs.prop_map(Event::Pause),
    ]
}

impl NumberStep {
    fn has_no_braces(&self) -> bool {
        let (Self::Attempt { key, .. }
        | Self::Release { key, .. }
        | Self::Withdraw { key, .. }
        | Self::Adjust { key, .. }
        | Self::Delete { key }
        | Self::DeleteSeen { key, .. }
        | Self::Inspect { key }) = self
        else {
            let Self::Expiring(_, step) = self else {
                return true;
            };
            return step.has_no_braces();
        };
        !KEYS[*key].contains('{')
    }
}

impl Step for NumberStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        let (step, verbs) = match self {
            Self::Expiring(after, step) => {
                (&**step, verbs.expiring(Duration::from_secs(after * 100)))
            }
            step => (step, verbs.clone()),
        };
        let with = |permits: u32| verbs.with_permits(permits);
        let answer = match *step {
            Self::Attempt {
                key,
                owner,
                permits,
            } => with(permits).attempt(KEYS[key], owner, LEASE).await,
            Self::Release {
                key,
                owner,
                permits,
            } => with(permits).release(KEYS[key], owner).await,
            Self::Withdraw {
                key,
                owner,
                permits,
            } => with(permits).withdraw(KEYS[key], owner).await,
            Self::Adjust {
                key,
                request,
                change,
            } => verbs.adjust(KEYS[key], request, change).await,
            Self::Delete { key } => verbs.force_release(KEYS[key]).await,
            Self::DeleteSeen { key, owner, number } => {
                let seen = seen([side::owner(owner)], Some(number));
                verbs.force_release_seen(KEYS[key], &seen).await
            }
            Self::Inspect { key } => verbs.inspect(KEYS[key]).await,
            Self::Expiring(..) => unreachable!("one of them has no other in it"),
        };
        answer.unwrap()
    }
}

#[test]
fn semaphores_in_memory_and_redis_agree() {
    let event = some_expiring(semaphore_step()).prop_map(Event::Step);
    agree::memory_and_redis_agree(Kind::Semaphore, event, (100, 200));
}

agree::agree_on_several_servers!(
    Kind::Semaphore,
    "",
    semaphore_step().prop_map(Event::Step),
    (100, 200)
);

#[test]
fn semaphores_in_memory_and_memory_agree() {
    agree::memory_and_memory_agree(
        Kind::Semaphore,
        passing(some_expiring(semaphore_step())),
        (300, 120),
    );
}

#[test]
fn latches_in_memory_and_redis_agree() {
    let event = some_expiring(latch_step()).prop_map(Event::Step);
    agree::memory_and_redis_agree(Kind::CountDownLatch, event, (80, 200));
}

super::passing::agree_while_time_passes!(
    latches_in_memory_and_redis_agree_while_time_passes,
    Kind::CountDownLatch,
    some_expiring(latch_step()),
    (80, 150)
);

super::passing::agree_while_time_passes!(
    semaphores_in_memory_and_redis_agree_while_time_passes,
    Kind::Semaphore,
    some_expiring(semaphore_step()),
    (80, 150)
);

/// In a cluster, the name of a latch has no braces: its channel has braces of its own.
mod latch {
    use super::*;

    agree::agree_on_several_servers!(
        Kind::CountDownLatch,
        "",
        latch_step()
            .prop_filter("a name without braces", NumberStep::has_no_braces)
            .prop_map(Event::Step),
        (80, 200)
    );
}

#[test]
fn latches_in_memory_and_memory_agree() {
    agree::memory_and_memory_agree(
        Kind::CountDownLatch,
        passing(some_expiring(latch_step())),
        (300, 120),
    );
}

/// Whatever attempts, releases and withdrawals come, and however often: permits are with owners or free, and none is made
/// or lost.
#[test]
fn permits_are_conserved() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let step = (0..3_u8, 1..9_u64);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    };
    proptest!(config, |(steps in prop::collection::vec(step, 1..200))| {
        runtime.block_on(async {
            let verbs = Verbs::new(&Client::in_memory(), Uuid::from_u128(7)).of_kind(Kind::Semaphore);
            verbs.adjust("a", 100, SemaphoreChange::TrySet(6)).await.unwrap();
            let mut has = [0_u32; 9];
            for (what, owner) in steps {
                // An owner asks for as many each time.
                let permits = 1 + (owner % 3) as u32;
                let verbs = verbs.with_permits(permits);
                let at = owner as usize;
                let answer = match what {
                    0 => verbs.attempt("a", owner, LEASE).await.unwrap(),
                    1 => verbs.release("a", owner).await.unwrap(),
                    _ => verbs.withdraw("a", owner).await.unwrap(),
                };
                match answer {
                    Answer::Granted => has[at] = permits,
                    Answer::Held(_) => assert_eq!(has[at], 0),
                    _ => has[at] = 0,
                }
                let free = verbs.adjust("a", 101, SemaphoreChange::Count).await.unwrap();
                assert_eq!(free, Answer::Number(6 - i64::from(has.iter().sum::<u32>())));
            }
        });
    });
}

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let client = Client::in_memory();
    let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Semaphore);
    let (two, number) = (verbs.with_permits(2), Answer::Number);
    let adjust = async |request, change| verbs.adjust("a", request, change).await.unwrap();
    assert_eq!(two.attempt("a", 1, LEASE).await.unwrap(), Answer::Unset);
    assert_eq!(adjust(100, SemaphoreChange::TrySet(3)).await, number(1));
    assert_eq!(adjust(101, SemaphoreChange::TrySet(9)).await, number(0));
    // Sent again it answers the same.
    assert_eq!(adjust(100, SemaphoreChange::TrySet(3)).await, number(1));
    for _ in 0..2 {
        assert_eq!(two.attempt("a", 1, LEASE).await.unwrap(), Answer::Granted);
        assert_eq!(adjust(0, SemaphoreChange::Count).await, number(1));
    }
    assert_eq!(
        two.attempt("a", 2, LEASE).await.unwrap(),
        Answer::Held(None)
    );
    // What was never taken is not given back, and is not taken later.
    assert_eq!(two.withdraw("a", 2).await.unwrap(), Answer::NotOurs);
    assert_eq!(adjust(0, SemaphoreChange::Count).await, number(1));
    for freed in [Answer::Freed, Answer::NotOurs] {
        assert_eq!(two.release("a", 1).await.unwrap(), freed);
        assert_eq!(adjust(0, SemaphoreChange::Count).await, number(3));
    }
    assert_eq!(two.withdraw("a", 1).await.unwrap(), Answer::NotOurs);
    for owner in [1, 2] {
        let late = two.attempt("a", owner, LEASE).await.unwrap();
        assert_eq!(late, Answer::Held(None));
    }
    for _ in 0..2 {
        assert_eq!(adjust(102, SemaphoreChange::Add(-5)).await, number(-2));
        assert_eq!(adjust(103, SemaphoreChange::Drain).await, number(-2));
        assert_eq!(adjust(0, SemaphoreChange::Count).await, number(0));
    }
    // A sum that Redisson could not read is answered, and nothing changes.
    let over = 1 << 31;
    assert_eq!(
        adjust(110, SemaphoreChange::Add(i32::MAX)).await,
        number(over - 1)
    );
    assert_eq!(adjust(111, SemaphoreChange::Add(1)).await, number(over));
    assert_eq!(adjust(0, SemaphoreChange::Count).await, number(over - 1));
    assert_eq!(adjust(112, SemaphoreChange::Drain).await, number(over - 1));
    // A late copy finds room, and is a copy.
    assert_eq!(adjust(111, SemaphoreChange::Add(1)).await, number(over));
    assert_eq!(adjust(0, SemaphoreChange::Count).await, number(0));
    // The end of an owner, and an answer, are remembered for long enough, and not for ever.
    tokio::time::sleep(Duration::from_secs(34)).await;
    assert_eq!(adjust(102, SemaphoreChange::Add(-5)).await, number(-2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(adjust(102, SemaphoreChange::Add(4)).await, number(4));
    assert_eq!(two.release("a", 1).await.unwrap(), Answer::NotOurs);
    assert_eq!(adjust(0, SemaphoreChange::Count).await, number(4));
    // Permits of a semaphore that was removed are not those of the next one.
    assert_eq!(two.attempt("a", 3, LEASE).await.unwrap(), Answer::Granted);
    assert_eq!(two.force_release("a").await.unwrap(), Answer::Forced(true));
    assert_eq!(two.attempt("a", 3, LEASE).await.unwrap(), Answer::Unset);
    assert_eq!(adjust(120, SemaphoreChange::TrySet(5)).await, number(1));
    assert_eq!(two.release("a", 3).await.unwrap(), Answer::NotOurs);
    assert_eq!(adjust(0, SemaphoreChange::Count).await, number(5));
}
