//! The fair lock: its queue shows in the order of its grants.

use std::time::Duration;

use distlock::Client;
use distlock::test_util::{Answer, Kind, Verbs};
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::lock::seen;
use super::side::{self, KEYS};

#[derive(Clone, Debug)]
enum FairStep {
    /// An attempt, of one that waits in a place that is kept so long, or of one that does not.
    Attempt {
        key: usize,
        owner: u64,
        lease: Duration,
        place: Option<Duration>,
    },
    Attach {
        key: usize,
        former: u64,
        owner: u64,
        lease: Duration,
    },
    Renew {
        key: usize,
        owner: u64,
        count: u32,
        lease: Duration,
    },
    Release {
        key: usize,
        owner: u64,
    },
    Withdraw {
        key: usize,
        owner: u64,
    },
    ForceRelease {
        key: usize,
    },
    ForceReleaseSeen {
        key: usize,
        owner: u64,
    },
    Inspect {
        key: usize,
    },
    /// Each owner tries, until one is granted: the first in line, if there is a line.
    Next {
        key: usize,
    },
    /// A waiter that is dead a moment later.
    Die {
        key: usize,
        owner: u64,
    },
}

const OWNERS: std::ops::Range<u64> = 1..6;

fn step(lease: impl Strategy<Value = Duration> + Clone) -> impl Strategy<Value = FairStep> {
    let (key, owner) = (0..KEYS.len(), OWNERS);
    let place = prop::option::weighted(0.8, lease.clone());
    let one = (key.clone(), owner.clone());
    prop_oneof![
        6 => (one.clone(), lease.clone(), place).prop_map(|((key, owner), lease, place)| {
            FairStep::Attempt { key, owner, lease, place }
        }),
        1 => (one.clone(), OWNERS, lease.clone()).prop_map(|((key, former), owner, lease)| {
            FairStep::Attach { key, former, owner, lease }
        }),
        1 => (one.clone(), 1..4_u32, lease).prop_map(|((key, owner), count, lease)| {
            FairStep::Renew { key, owner, count, lease }
        }),
        2 => one.clone().prop_map(|(key, owner)| FairStep::Release { key, owner }),
        2 => one.prop_map(|(key, owner)| FairStep::Withdraw { key, owner }),
        1 => key.clone().prop_map(|key| FairStep::ForceRelease { key }),
        2 => (key.clone(), 1..4_u64)
            .prop_map(|(key, owner)| FairStep::ForceReleaseSeen { key, owner }),
        1 => key.clone().prop_map(|key| FairStep::Inspect { key }),
        2 => key.prop_map(|key| FairStep::Next { key }),
    ]
}

/// For a server in real time: leases and places long enough that none ends by chance, and some that end at once.
fn timeless_step() -> impl Strategy<Value = FairStep> {
    prop_oneof![
        12 => step(agree::long_leases()),
        1 => (0..KEYS.len(), OWNERS).prop_map(|(key, owner)| FairStep::Die { key, owner }),
    ]
}

async fn next(verbs: &Verbs, key: &str) -> Answer {
    verbs.force_release(key).await.unwrap();
    for owner in OWNERS {
        let answer = verbs.attempt(key, owner, Duration::from_secs(300)).await;
        if answer.unwrap() == Answer::Granted {
            return Answer::Number(owner.cast_signed());
        }
    }
    Answer::Number(0)
}

/// Long enough that also what was sent after it finds the waiter dead.
async fn die(verbs: &Verbs, key: &str, owner: u64) -> Answer {
    let brief = Duration::from_millis(1);
    let attempt = verbs.waiting(brief);
    let answer = attempt.attempt(key, owner, Duration::from_secs(300)).await;
    tokio::time::sleep(brief * 4).await;
    answer.unwrap()
}

impl Step for FairStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        let answer = match self {
            Self::Attempt {
                key,
                owner,
                lease,
                place,
            } => {
                let verbs = place.map_or_else(|| verbs.clone(), |place| verbs.waiting(place));
                verbs.attempt(KEYS[*key], *owner, *lease).await
            }
            Self::Attach {
                key,
                former,
                owner,
                lease,
            } => {
                let verbs = verbs.instead_of(*former);
                verbs.attempt(KEYS[*key], *owner, *lease).await
            }
            Self::Renew {
                key,
                owner,
                count,
                lease,
            } => {
                let renewal = (KEYS[*key], *owner, *count, *lease);
                verbs.renew(&[renewal]).await
            }
            Self::Release { key, owner } => verbs.release(KEYS[*key], *owner).await,
            Self::Withdraw { key, owner } => verbs.withdraw(KEYS[*key], *owner).await,
            Self::ForceRelease { key } => verbs.force_release(KEYS[*key]).await,
            Self::ForceReleaseSeen { key, owner } => {
                let seen = seen([side::owner(*owner)], None);
                verbs.force_release_seen(KEYS[*key], &seen).await
            }
            Self::Inspect { key } => verbs.inspect(KEYS[*key]).await,
            Self::Next { key } => Ok(next(verbs, KEYS[*key]).await),
            Self::Die { key, owner } => Ok(die(verbs, KEYS[*key], *owner).await),
        };
        answer.unwrap()
    }
}

agree::agree_on_all_servers!(
    Kind::Fair,
    "",
    timeless_step().prop_map(Event::Step),
    (100, 200)
);

agree::agrees_with_itself!(Kind::NonReentrantFair, with_pauses(step, 5), (300, 120));

super::passing::agree_while_time_passes!(
    memory_and_redis_agree_while_time_passes,
    Kind::Fair,
    step(super::passing::leases()),
    (100, 150)
);

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let client = Client::in_memory();
    let tries = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    let (lease, place) = (Duration::from_secs(30), Duration::from_secs(5));
    let waits = tries.waiting(place);
    let held = |secs| Answer::Held(Some(Duration::from_secs(secs)));
    assert_eq!(waits.attempt("a", 1, lease).await.unwrap(), Answer::Granted);
    // The first waits for the holder, the others for longer; an attempt that does not wait has no place.
    assert_eq!(waits.attempt("a", 2, lease).await.unwrap(), held(30));
    assert_eq!(tries.attempt("a", 4, lease).await.unwrap(), held(30));
    assert_eq!(waits.attempt("a", 3, lease).await.unwrap(), held(35));
    assert_eq!(waits.attempt("a", 2, lease).await.unwrap(), held(30));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(waits.attempt("a", 3, lease).await.unwrap(), held(33));
    assert_eq!(tries.release("a", 1).await.unwrap(), Answer::Freed);
    assert_eq!(tries.release("a", 1).await.unwrap(), Answer::NotOurs);
    // Free, but the turn of 2 until it counts as dead.
    assert_eq!(tries.attempt("a", 4, lease).await.unwrap(), held(3));
    assert_eq!(waits.attempt("a", 3, lease).await.unwrap(), held(3));
    assert_eq!(waits.attempt("a", 5, lease).await.unwrap(), held(8));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(tries.attempt("a", 5, lease).await.unwrap(), held(2));
    assert_eq!(waits.attempt("a", 3, lease).await.unwrap(), Answer::Granted);
    assert_eq!(
        tries.force_release("a").await.unwrap(),
        Answer::Forced(true)
    );
    assert_eq!(tries.withdraw("a", 5).await.unwrap(), Answer::NotOurs);
    assert_eq!(tries.attempt("a", 4, lease).await.unwrap(), Answer::Granted);
    assert_eq!(tries.withdraw("a", 4).await.unwrap(), Answer::Freed);
}
