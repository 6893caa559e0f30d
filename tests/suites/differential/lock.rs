//! The reentrant lock.

use std::time::Duration;

use distlock::test_util::{Answer, Kind, Seen, Verbs};
use distlock::{Client, Error};
use distlock_tests::eventually_eq;
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::side::{self, KEYS, SOON};

#[derive(Clone, Debug)]
enum LockStep {
    Attempt {
        key: usize,
        owner: u64,
        lease: Duration,
    },
    Attach {
        key: usize,
        former: u64,
        owner: u64,
        lease: Duration,
    },
    Renew(Vec<(usize, u64, u32, Duration)>),
    Release {
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
    Expire {
        key: usize,
        owner: u64,
    },
}

fn step(lease: impl Strategy<Value = Duration> + Clone) -> impl Strategy<Value = LockStep> {
    let key = 0..KEYS.len();
    let owner = 1..4_u64;
    let renewal = (key.clone(), owner.clone(), 1..4_u32, lease.clone());
    prop_oneof![
        4 => (key.clone(), owner.clone(), lease.clone())
            .prop_map(|(key, owner, lease)| LockStep::Attempt { key, owner, lease }),
        2 => (key.clone(), owner.clone(), owner.clone(), lease)
            .prop_map(|(key, former, owner, lease)| LockStep::Attach { key, former, owner, lease }),
        3 => prop::collection::vec(renewal, 1..5).prop_map(LockStep::Renew),
        2 => (key.clone(), owner).prop_map(|(key, owner)| LockStep::Release { key, owner }),
        1 => key.clone().prop_map(|key| LockStep::ForceRelease { key }),
        2 => (key.clone(), 1..4_u64)
            .prop_map(|(key, owner)| LockStep::ForceReleaseSeen { key, owner }),
        2 => key.prop_map(|key| LockStep::Inspect { key }),
    ]
}

/// These owners, and no others.
pub(crate) fn seen(owners: impl IntoIterator<Item = String>, number: Option<i64>) -> Seen {
    Seen {
        owners: owners.into_iter().collect(),
        unnamed: 0,
        number,
    }
}

/// For a server in real time: leases long enough that none ends by chance, and some that end at once.
fn timeless_step() -> impl Strategy<Value = LockStep> {
    let expire = (0..KEYS.len(), 1..4_u64);
    prop_oneof![
        12 => step(agree::long_leases()),
        1 => expire.prop_map(|(key, owner)| LockStep::Expire { key, owner }),
    ]
}

/// Has a lease of a millisecond end, where it is granted: what was held before, by whom, is part of the answer.
pub(crate) async fn expire(verbs: &Verbs, key: &str, owner: u64) -> Result<Answer, Error> {
    let free = Answer::Holders(vec![], None);
    let before = verbs.inspect(key).await?;
    if before != free {
        return Ok(before);
    }
    let brief = Duration::from_millis(1);
    let answer = verbs.attempt(key, owner, brief).await?;
    eventually_eq(SOON, "the holder", free, || async {
        verbs.inspect(key).await.unwrap()
    })
    .await;
    Ok(answer)
}

impl Step for LockStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        let answer = match self {
            Self::Attempt { key, owner, lease } => verbs.attempt(KEYS[*key], *owner, *lease).await,
            Self::Attach {
                key,
                former,
                owner,
                lease,
            } => {
                let verbs = verbs.instead_of(*former);
                verbs.attempt(KEYS[*key], *owner, *lease).await
            }
            Self::Renew(batch) => {
                let batch: Vec<_> = batch
                    .iter()
                    .map(|(key, owner, count, lease)| (KEYS[*key], *owner, *count, *lease))
                    .collect();
                verbs.renew(&batch).await
            }
            Self::Release { key, owner } => verbs.release(KEYS[*key], *owner).await,
            Self::ForceRelease { key } => verbs.force_release(KEYS[*key]).await,
            Self::ForceReleaseSeen { key, owner } => {
                let seen = seen([side::owner(*owner)], None);
                verbs.force_release_seen(KEYS[*key], &seen).await
            }
            Self::Inspect { key } => verbs.inspect(KEYS[*key]).await,
            Self::Expire { key, owner } => expire(verbs, KEYS[*key], *owner).await,
        };
        answer.unwrap()
    }
}

agree::agree_on_all_servers!(
    Kind::Reentrant,
    "",
    timeless_step().prop_map(Event::Step),
    (150, 300)
);

agree::agrees_with_itself!(Kind::Reentrant, with_pauses(step, 6), (500, 120));

super::passing::agree_while_time_passes!(
    memory_and_redis_agree_while_time_passes,
    Kind::Reentrant,
    step(super::passing::leases()),
    (100, 150)
);

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
    // An attached hold is the new owner's, also if it is attached again, and nobody else's.
    let attach = |owner| {
        let verbs = verbs.instead_of(1);
        async move { verbs.attempt("a", owner, lease).await.unwrap() }
    };
    for _ in 0..2 {
        assert_eq!(attach(3).await, Answer::Granted);
        let by = vec![(format!("{}:3", Uuid::from_u128(7)), 1)];
        assert_eq!(
            verbs.inspect("a").await.unwrap(),
            Answer::Holders(by, Some(long))
        );
    }
    assert_eq!(attach(4).await, Answer::Held(None));
    assert_eq!(verbs.release("a", 1).await.unwrap(), Answer::NotOurs);
    let back = verbs.instead_of(3).attempt("a", 1, lease).await.unwrap();
    assert_eq!(back, Answer::Granted);
    let free = verbs.instead_of(1).attempt("b", 1, lease).await.unwrap();
    assert_eq!(free, Answer::Held(None));
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
