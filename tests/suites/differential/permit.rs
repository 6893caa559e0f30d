//! The permit-expirable semaphore.

use std::time::Duration;

use distlock::Client;
use distlock::test_util::{Answer, Kind, PermitChange, PermitId, Verbs};
use distlock_tests::{RedisServer, eventually_eq};
use proptest::prelude::*;
use uuid::Uuid;

use super::agree::{self, Event, Step};
use super::lock::seen;
use super::side::{KEYS, SOON};

#[derive(Clone, Debug)]
enum PermitStep {
    Attempt {
        key: usize,
        owner: u64,
        lease: Duration,
    },
    /// As many permits as the former owner asks for.
    Attach {
        key: usize,
        former: u64,
        owner: u64,
        lease: Duration,
    },
    Renew(Vec<(usize, u64, Duration)>),
    Release {
        key: usize,
        owner: u64,
    },
    Withdraw {
        key: usize,
        owner: u64,
    },
    Delete {
        key: usize,
    },
    DeleteSeen {
        key: usize,
        owner: u64,
    },
    Inspect {
        key: usize,
    },
    /// Of some requests each is made several times, and counts once.
    Change {
        key: usize,
        request: u64,
        change: Made,
    },
    Look {
        key: usize,
        change: Looked,
    },
    Expire {
        key: usize,
        owner: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Made {
    TrySet(u32),
    Set(u32),
    Add(i32),
    Release(u64, usize),
    UpdateLease(u64, usize, Duration),
}

#[derive(Clone, Copy, Debug)]
enum Looked {
    Free,
    Out,
    All,
    Left(u64, usize),
}

/// Each owner asks for a number of its own, so that it is the same each time.
fn of(verbs: &Verbs, owner: u64) -> Verbs {
    verbs.with_permits((owner % 3 + 1) as u32)
}

fn id(verbs: &Verbs, owner: u64, number: usize) -> PermitId {
    let ids = of(verbs, owner).permit_ids(owner);
    ids[number % ids.len()]
}

fn made(lease: impl Strategy<Value = Duration>) -> impl Strategy<Value = Made> {
    let owner = 1..9_u64;
    prop_oneof![
        2 => (0..9_u32).prop_map(Made::TrySet),
        1 => (0..9_u32).prop_map(Made::Set),
        2 => (-3..6_i32).prop_map(Made::Add),
        1 => Just(Made::Add(i32::MAX)),
        1 => Just(Made::Add(i32::MIN)),
        2 => (owner.clone(), 0..3_usize).prop_map(|(owner, n)| Made::Release(owner, n)),
        2 => (owner, 0..3_usize, lease)
            .prop_map(|(owner, n, lease)| Made::UpdateLease(owner, n, lease)),
    ]
}

fn looked() -> impl Strategy<Value = Looked> {
    prop_oneof![
        Just(Looked::Free),
        Just(Looked::Out),
        Just(Looked::All),
        (1..9_u64, 0..3_usize).prop_map(|(owner, n)| Looked::Left(owner, n)),
    ]
}

fn step(
    lease: impl Strategy<Value = Duration> + Clone + 'static,
) -> impl Strategy<Value = PermitStep> {
    let key = 0..KEYS.len();
    let owner = 1..9_u64;
    let renewal = (key.clone(), owner.clone(), lease.clone());
    let held = (key.clone(), owner.clone());
    prop_oneof![
        8 => (key.clone(), owner.clone(), lease.clone())
            .prop_map(|(key, owner, lease)| PermitStep::Attempt { key, owner, lease }),
        3 => (key.clone(), owner.clone(), owner, lease.clone())
            .prop_map(|(key, former, owner, lease)| PermitStep::Attach { key, former, owner, lease }),
        3 => prop::collection::vec(renewal, 1..5).prop_map(PermitStep::Renew),
        4 => held.clone().prop_map(|(key, owner)| PermitStep::Release { key, owner }),
        1 => held.prop_map(|(key, owner)| PermitStep::Withdraw { key, owner }),
        1 => key.clone().prop_map(|key| PermitStep::Delete { key }),
        2 => (key.clone(), 1..4_u64)
            .prop_map(|(key, owner)| PermitStep::DeleteSeen { key, owner }),
        2 => key.clone().prop_map(|key| PermitStep::Inspect { key }),
        8 => (key.clone(), 100..160_u64, made(lease))
            .prop_map(|(key, request, change)| PermitStep::Change { key, request, change }),
        4 => (key, looked()).prop_map(|(key, change)| PermitStep::Look { key, change }),
    ]
}

/// For a server in real time: leases long enough that none ends by chance, and some that end at once.
fn timeless_step() -> impl Strategy<Value = PermitStep> {
    let expire = (0..KEYS.len(), 1..9_u64);
    prop_oneof![
        10 => step(agree::long_leases()),
        1 => expire.prop_map(|(key, owner)| PermitStep::Expire { key, owner }),
    ]
}

/// Has one permit of an owner end, where it is out.
async fn expire(verbs: &Verbs, key: &str, owner: u64) -> Answer {
    let id = id(verbs, owner, 0);
    let request = agree::unused();
    let brief = Duration::from_millis(1);
    let answer = verbs
        .adjust(key, request, PermitChange::UpdateLease(id, brief))
        .await
        .unwrap();
    eventually_eq(SOON, "what is left", Answer::Number(-2), || async {
        verbs
            .adjust(key, 0, PermitChange::RemainingLease(id))
            .await
            .unwrap()
    })
    .await;
    answer
}

/// What is left is a time, and compared as one.
async fn look(verbs: &Verbs, key: &str, change: Looked) -> Answer {
    let change = match change {
        Looked::Free => PermitChange::Count,
        Looked::Out => PermitChange::AcquiredPermits,
        Looked::All => PermitChange::TotalPermits,
        Looked::Left(owner, number) => PermitChange::RemainingLease(id(verbs, owner, number)),
    };
    match (verbs.adjust(key, 0, change).await.unwrap(), change) {
        (Answer::Number(left @ 0..), PermitChange::RemainingLease(_)) => {
            Answer::Held(Some(Duration::from_millis(left as u64)))
        }
        (answer, _) => answer,
    }
}

impl Step for PermitStep {
    async fn take(&self, verbs: &Verbs) -> Answer {
        let answer = match self {
            Self::Attempt { key, owner, lease } => {
                of(verbs, *owner).attempt(KEYS[*key], *owner, *lease).await
            }
            Self::Attach {
                key,
                former,
                owner,
                lease,
            } => {
                let verbs = of(verbs, *former).instead_of(*former);
                verbs.attempt(KEYS[*key], *owner, *lease).await
            }
            Self::Renew(batch) => {
                // One of each number of permits at least.
                let permits = of(verbs, batch[0].1);
                let batch: Vec<_> = batch
                    .iter()
                    .map(|(key, owner, lease)| (KEYS[*key], *owner, 1, *lease))
                    .collect();
                permits.renew(&batch).await
            }
            Self::Release { key, owner } => of(verbs, *owner).release(KEYS[*key], *owner).await,
            Self::Withdraw { key, owner } => of(verbs, *owner).withdraw(KEYS[*key], *owner).await,
            Self::Delete { key } => verbs.force_release(KEYS[*key]).await,
            Self::DeleteSeen { key, owner } => {
                let ids = of(verbs, *owner).permit_ids(*owner).into_iter();
                let seen = seen(ids.map(|id| id.to_string()), None);
                verbs.force_release_seen(KEYS[*key], &seen).await
            }
            Self::Inspect { key } => verbs.inspect(KEYS[*key]).await,
            Self::Change {
                key,
                request,
                change,
            } => {
                let change = match *change {
                    Made::TrySet(number) => PermitChange::TrySet(number),
                    Made::Set(number) => PermitChange::SetPermits(number),
                    Made::Add(number) => PermitChange::Add(number),
                    Made::Release(owner, number) => {
                        PermitChange::ReleasePermit(id(verbs, owner, number))
                    }
                    Made::UpdateLease(owner, number, lease) => {
                        PermitChange::UpdateLease(id(verbs, owner, number), lease)
                    }
                };
                verbs.adjust(KEYS[*key], *request, change).await
            }
            Self::Look { key, change } => Ok(look(verbs, KEYS[*key], *change).await),
            Self::Expire { key, owner } => Ok(expire(verbs, KEYS[*key], *owner).await),
        };
        answer.unwrap()
    }
}

agree::agree_on_all_servers!(
    Kind::ExpirableSemaphore,
    "",
    timeless_step().prop_map(Event::Step),
    (80, 200)
);

agree::agrees_with_itself!(Kind::ExpirableSemaphore, with_pauses(step, 10), (500, 120));

super::passing::agree_while_time_passes!(
    memory_and_redis_agree_while_time_passes,
    Kind::ExpirableSemaphore,
    step(super::passing::leases()),
    (100, 150)
);

/// The answers that both backends must give are right, and not only alike.
#[tokio::test(start_paused = true)]
async fn verbs_answer_what_they_promise() {
    let client = Client::in_memory();
    let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::ExpirableSemaphore);
    let two = verbs.with_permits(2);
    let (lease, long) = (Duration::from_secs(1), Duration::from_secs(5));
    let number = |number| Ok::<_, ()>(Answer::Number(number));
    let change = async |request, change| verbs.adjust("a", request, change).await.map_err(drop);
    let free = async || change(0, PermitChange::Count).await;
    assert_eq!(verbs.attempt("a", 1, lease).await.unwrap(), Answer::Unset);
    // A sum beyond 32 bits makes none.
    let least = i64::from(i32::MIN);
    for _ in 0..2 {
        let added = change(99, PermitChange::Add(i32::MIN)).await;
        assert_eq!(added, number(least));
        assert_eq!(verbs.attempt("a", 1, lease).await.unwrap(), Answer::Unset);
    }
    assert_eq!(change(100, PermitChange::TrySet(3)).await, number(1));
    assert_eq!(change(100, PermitChange::TrySet(3)).await, number(1));
    assert_eq!(change(101, PermitChange::TrySet(5)).await, number(0));
    // Asked again, an owner has what it had.
    for _ in 0..2 {
        assert_eq!(two.attempt("a", 1, lease).await.unwrap(), Answer::Granted);
        assert_eq!(free().await, number(1));
    }
    assert_eq!(
        two.attempt("a", 2, lease).await.unwrap(),
        Answer::Held(Some(lease))
    );
    // A longer lease counts, a shorter one does not.
    assert_eq!(
        two.renew(&[("a", 1, 1, long)]).await.unwrap(),
        Answer::Renewed(vec![true])
    );
    assert_eq!(
        two.renew(&[("a", 1, 1, lease)]).await.unwrap(),
        Answer::Renewed(vec![true])
    );
    assert_eq!(
        two.attempt("a", 2, lease).await.unwrap(),
        Answer::Held(Some(long))
    );
    // One of two has gone: it is not renewed, and the other one goes back with the release.
    let id = two.permit_ids(1)[1];
    for _ in 0..2 {
        assert_eq!(
            change(102, PermitChange::ReleasePermit(id)).await,
            number(1)
        );
    }
    assert_eq!(
        change(103, PermitChange::ReleasePermit(id)).await,
        number(0)
    );
    assert_eq!(
        two.renew(&[("a", 1, 1, long)]).await.unwrap(),
        Answer::Renewed(vec![false])
    );
    assert_eq!(free().await, number(2));
    assert_eq!(two.release("a", 1).await.unwrap(), Answer::NotOurs);
    assert_eq!(free().await, number(3));
    has_what_it_had_although_the_total_was_lowered(&verbs).await;
    // A withdrawn owner takes nothing, for as long as an attempt may come late.
    assert_eq!(two.attempt("a", 3, lease).await.unwrap(), Answer::Granted);
    assert_eq!(two.withdraw("a", 3).await.unwrap(), Answer::Freed);
    assert_eq!(two.withdraw("a", 3).await.unwrap(), Answer::NotOurs);
    assert_eq!(
        two.attempt("a", 3, lease).await.unwrap(),
        Answer::Held(None)
    );
    assert_eq!(free().await, number(3));
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(two.attempt("a", 3, lease).await.unwrap(), Answer::Granted);
    assert_eq!(two.release("a", 3).await.unwrap(), Answer::Freed);
    // What has expired is gone before anybody took it back.
    assert_eq!(two.attempt("a", 4, lease).await.unwrap(), Answer::Granted);
    tokio::time::sleep(lease).await;
    assert_eq!(free().await, number(3));
    assert_eq!(
        two.renew(&[("a", 4, 1, lease)]).await.unwrap(),
        Answer::Renewed(vec![false])
    );
    assert_eq!(two.release("a", 4).await.unwrap(), Answer::NotOurs);
    assert_eq!(free().await, number(3));
    assert_eq!(
        verbs.force_release("a").await.unwrap(),
        Answer::Forced(true)
    );
    assert_eq!(
        verbs.force_release("a").await.unwrap(),
        Answer::Forced(false)
    );
}

/// An attempt that is sent again, after the total was set below what is out.
async fn has_what_it_had_although_the_total_was_lowered(verbs: &Verbs) {
    let (two, lease) = (verbs.with_permits(2), Duration::from_secs(60));
    let change = async |request, change| verbs.adjust("b", request, change).await.unwrap();
    assert_eq!(
        change(110, PermitChange::TrySet(2)).await,
        Answer::Number(1)
    );
    let (granted, free) = (Answer::Granted, Answer::Number(-2));
    assert_eq!(two.attempt("b", 11, lease).await.unwrap(), granted);
    assert_eq!(change(111, PermitChange::SetPermits(0)).await, free);
    assert_eq!(two.attempt("b", 11, lease).await.unwrap(), granted);
    assert_eq!(change(0, PermitChange::Count).await, free);
    let other = two.attempt("b", 12, lease).await.unwrap();
    assert!(matches!(other, Answer::Held(Some(_))), "{other:?}");
    verbs.force_release("b").await.unwrap();
}

#[tokio::test]
async fn owner_has_what_it_had_on_redis_although_the_total_was_lowered() {
    let server = RedisServer::start().await;
    let client = Client::builder().connect(&server.url()).await.unwrap();
    let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::ExpirableSemaphore);
    has_what_it_had_although_the_total_was_lowered(&verbs).await;
}
