//! Several keys in one command, beside commands of one.

use std::time::Duration;

use distlock::test_util::{Answer, Kind, SemaphoreChange, Verbs};
use distlock::{Client, Error};
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::lock::expire;
use super::side::KEYS;

/// Some of the keys in any order, with an owner's number and a lease for each. One may come twice, under its owner.
type Keys = Vec<(usize, u64, Duration)>;

#[derive(Clone, Debug)]
enum MultiStep {
    AttemptAll {
        keys: Keys,
    },
    ReleaseAll {
        keys: Keys,
    },
    Attempt {
        key: usize,
        owner: u64,
        lease: Duration,
    },
    Release {
        key: usize,
        owner: u64,
    },
    Inspect {
        key: usize,
    },
    Expire {
        key: usize,
        owner: u64,
    },
    /// Puts a number in the place of the lock, or removes it.
    Strange {
        key: usize,
        comes: bool,
    },
}

fn keys(lease: impl Strategy<Value = Duration> + Clone + 'static) -> impl Strategy<Value = Keys> {
    let all: Vec<usize> = (0..KEYS.len()).collect();
    let some = proptest::sample::subsequence(all, 1..=KEYS.len()).prop_shuffle();
    some.prop_flat_map(move |keys| {
        let each = prop::collection::vec((1..4_u64, lease.clone()), keys.len());
        (Just(keys), each, prop::option::weighted(0.3, 0..KEYS.len()))
    })
    .prop_map(|(keys, each, twice)| {
        let mut keys: Keys = keys
            .into_iter()
            .zip(each)
            .map(|(key, (owner, lease))| (key, owner, lease))
            .collect();
        keys.extend(twice.and_then(|at| keys.get(at).copied()));
        keys
    })
}

fn step(
    lease: impl Strategy<Value = Duration> + Clone + 'static,
) -> impl Strategy<Value = MultiStep> {
    let (key, owner) = (0..KEYS.len(), 1..4_u64);
    prop_oneof![
        6 => keys(lease.clone()).prop_map(|keys| MultiStep::AttemptAll { keys }),
        4 => keys(lease.clone()).prop_map(|keys| MultiStep::ReleaseAll { keys }),
        2 => (key.clone(), owner.clone(), lease)
            .prop_map(|(key, owner, lease)| MultiStep::Attempt { key, owner, lease }),
        2 => (key.clone(), owner).prop_map(|(key, owner)| MultiStep::Release { key, owner }),
        1 => key.clone().prop_map(|key| MultiStep::Inspect { key }),
        1 => (key, prop::bool::weighted(0.3))
            .prop_map(|(key, comes)| MultiStep::Strange { key, comes }),
    ]
}

/// For a server in real time: leases long enough that none ends by chance, and some that end at once.
fn timeless_step() -> impl Strategy<Value = MultiStep> {
    let expire = (0..KEYS.len(), 1..4_u64);
    prop_oneof![
        8 => step(agree::long_leases()),
        1 => expire.prop_map(|(key, owner)| MultiStep::Expire { key, owner }),
    ]
}

async fn strange(verbs: &Verbs, key: &str, comes: bool) -> Result<Answer, Error> {
    let number = verbs.of_kind(Kind::Semaphore);
    if comes {
        // Each with another request: the answer to an earlier one, whose number is gone, must not be given again.
        number
            .adjust(key, agree::unused(), SemaphoreChange::TrySet(1))
            .await
    } else {
        number.force_release(key).await
    }
}

impl Step for MultiStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        let answer = match self {
            Self::AttemptAll { keys } => {
                let keys = keys
                    .iter()
                    .map(|(key, owner, lease)| (KEYS[*key], *owner, *lease));
                verbs.attempt_all(&keys.collect::<Vec<_>>()).await
            }
            Self::ReleaseAll { keys } => {
                let keys = keys.iter().map(|(key, owner, _)| (KEYS[*key], *owner));
                verbs.release_all(&keys.collect::<Vec<_>>()).await
            }
            Self::Attempt { key, owner, lease } => verbs.attempt(KEYS[*key], *owner, *lease).await,
            Self::Release { key, owner } => verbs.release(KEYS[*key], *owner).await,
            Self::Inspect { key } => verbs.inspect(KEYS[*key]).await,
            Self::Expire { key, owner } => expire(verbs, KEYS[*key], *owner).await,
            Self::Strange { key, comes } => strange(verbs, KEYS[*key], *comes).await,
        };
        agree::or_wrong_type(answer)
    }

    const COMPARES_LOCKS: bool = true;
}

agree::agree_on_all_servers!(
    Kind::Reentrant,
    "{one slot}:",
    timeless_step().prop_map(Event::Step),
    (80, 200)
);

agree::agrees_with_itself!(Kind::Reentrant, with_pauses(step, 8), (300, 120));

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let verbs = Verbs::new(&Client::in_memory(), Uuid::from_u128(7));
    let (lease, long) = (Duration::from_secs(1), Duration::from_secs(5));
    let all = |owner| [("a", owner, lease), ("b", owner, long), ("a", owner, lease)];
    // Sent twice, and with a key that comes twice.
    for _ in 0..2 {
        assert_eq!(verbs.attempt_all(&all(1)).await.unwrap(), Answer::Granted);
    }
    let held = Answer::Holders(vec![(format!("{}:1", Uuid::from_u128(7)), 1)], Some(long));
    assert_eq!(verbs.inspect("b").await.unwrap(), held);
    // All or nothing: the free key stays free, and the answer names the first one that another owner holds.
    let some = [("free", 2, lease), ("b", 2, lease), ("a", 2, lease)];
    let refused = verbs.attempt_all(&some).await.unwrap();
    assert_eq!(refused, Answer::HeldAt(1, Some(long)));
    let free = Answer::Holders(vec![], None);
    assert_eq!(verbs.inspect("free").await.unwrap(), free);
    // One lease has ended, so the key is granted to the next owner. The first owner has only the other key.
    tokio::time::sleep(lease).await;
    assert_eq!(verbs.attempt("a", 2, lease).await.unwrap(), Answer::Granted);
    let released = verbs.release_all(&[("a", 1), ("b", 1), ("b", 1)]).await;
    assert_eq!(
        released.unwrap(),
        Answer::FreedEach(vec![false, true, false])
    );
    assert_eq!(verbs.release("a", 2).await.unwrap(), Answer::Freed);
}
