//! Acquisitions that are granted while they are not polled. There is no guard that would end the hold, so it is ended within
//! two seconds. An acquisition that is polled again later begins anew.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Client, Error, Guard, MultiLock};
use distlock_tests::LockKind;
use distlock_tests::any_lock::PERMITS;
use distlock_tests::faults::{Fault, Op};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use crate::conformance::stage::Stage;

/// How long a grant may last whose future is not polled: two looks at the futures.
const BOUND: Duration = Duration::from_secs(2);

/// Far beyond the end of each test.
const LEASE: Duration = Duration::from_secs(3_600);

/// The answer takes this long, so an attempt in memory is not answered in the same poll.
const ANSWER: Fault = Fault::DelayReply(Duration::from_millis(1));

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

fn acquiring(of: LockKind, client: &Client, key: &str, wait: Option<Duration>) -> Acquiring {
    let wait = wait.unwrap_or(Duration::MAX);
    match of {
        LockKind::Permit => {
            let acquire = client.expirable_semaphore(key).acquire();
            let acquire = acquire.wait(wait).lease(LEASE);
            Box::pin(async move { acquire.await.map(Guard::from) })
        }
        _ => {
            let lock = of.lock(client, key);
            Box::pin(async move { lock.acquire(Some(wait), Some(LEASE)).await })
        }
    }
}

/// Whether somebody has it. Asks without an attempt, which could come first.
async fn is_taken(of: LockKind, client: &Client, key: &str) -> bool {
    let permits = match of {
        LockKind::Permit => client.expirable_semaphore(key).available_permits().await,
        LockKind::Semaphore => client.semaphore(key).available_permits().await,
        _ => {
            let holders = of.lock(client, key).holders().await.unwrap();
            return !holders.is_empty();
        }
    };
    permits.unwrap() < i64::from(PERMITS)
}

async fn set_permits(of: LockKind, client: &Client, key: &str) {
    let set = match of {
        LockKind::Permit => {
            client
                .expirable_semaphore(key)
                .try_set_permits(PERMITS)
                .await
        }
        LockKind::Semaphore => client.semaphore(key).try_set_permits(PERMITS).await,
        _ => return,
    };
    assert!(set.unwrap());
}

async fn delete_permits(of: LockKind, client: &Client, key: &str) {
    let deleted = match of {
        LockKind::Permit => client.expirable_semaphore(key).delete().await,
        LockKind::Semaphore => client.semaphore(key).delete().await,
        _ => return,
    };
    assert!(deleted.unwrap());
}

/// The key is taken by an acquisition that was left, and soon free.
async fn is_soon_free(stage: &Stage, of: LockKind, client: &Client, key: &str) {
    let taken = async || is_taken(of, client, key).await;
    stage.eventually("granted", BOUND, taken).await;
    let free = async || !is_taken(of, client, key).await;
    let text = format!("{of:?} is free");
    stage.eventually(&text, BOUND, free).await;
}

async fn grant_that_nobody_takes_is_released_for_each_kind(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let mut left = Vec::new();
    for of in LockKind::ON_ONE_SERVER {
        for wait in [None, Some(Duration::ZERO)] {
            let key = format!("{of:?}:{}", wait.is_some());
            set_permits(of, &other, &key).await;
            // From here on there is a connection for the key on a cluster, and the server has the script.
            let first = acquiring(of, &client, &key, wait).await.unwrap();
            first.release().await.unwrap();
            left.push((of, acquiring(of, &client, &key, wait), key));
        }
    }
    stage.faults().always(Op::Attempt, ANSWER);
    for (of, acquiring, _) in &mut left {
        assert!(acquiring.as_mut().now_or_never().is_none(), "{of:?}");
    }
    let free = left
        .iter()
        .map(|(of, _, key)| is_soon_free(stage, *of, &other, key));
    join_all(free).await;
    for (of, acquiring, key) in left {
        // Granted to another owner.
        let guard = acquiring.await.unwrap();
        assert!(
            guard.is_held() && is_taken(of, &other, &key).await,
            "{of:?}"
        );
        guard.release().await.unwrap();
        delete_permits(of, &other, &key).await;
    }
}

/// Polls an acquisition until its attempt is under way, and leaves it.
async fn left_in_its_attempt(stage: &Stage, client: &Client, key: &str) -> Acquiring {
    let first = acquiring(LockKind::Reentrant, client, key, None).await;
    first.unwrap().release().await.unwrap();
    stage.faults().next(Op::Attempt, ANSWER);
    let mut left = acquiring(LockKind::Reentrant, client, key, None);
    assert!(left.as_mut().now_or_never().is_none());
    let taken = async || client.lock(key).is_locked().await.unwrap();
    stage.eventually("granted", BOUND, taken).await;
    left
}

async fn next_waiters_are_granted_what_an_unpolled_one_has_not_taken(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let left = left_in_its_attempt(stage, &client, "k").await;
    // One behind it, and one in another process.
    let start = Instant::now();
    for client in [&client, &other] {
        let next = client.lock("k").acquire().into_future();
        let next = timeout(BOUND + stage.slack(), next).await;
        next.expect("granted").unwrap().release().await.unwrap();
    }
    assert!(start.elapsed() <= BOUND + stage.slack());
    left.await.unwrap().release().await.unwrap();
}

async fn acquisition_that_is_polled_keeps_its_owner_however_late_its_answer_is(stage: &Stage) {
    let client = stage.patient_client(BOUND * 4).await;
    stage
        .faults()
        .next(Op::Attempt, Fault::DelayReply(BOUND * 2));
    let guard = client.lock("k").acquire().lease(LEASE).await.unwrap();
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
    assert_eq!(stage.faults().calls(Op::Release), 0);
    guard.release().await.unwrap();
}

/// A multi-lock whose second attempt is under way, after its first one was granted.
async fn left_between_two_grants(stage: &Stage, locks: &MultiLock) -> Acquiring {
    let before = stage.faults().calls(Op::Attempt);
    stage.faults().pass(Op::Attempt);
    stage.faults().next(Op::Attempt, ANSWER);
    let acquire = locks.acquire();
    let mut left: Acquiring = Box::pin(acquire.into_future());
    let both_are_asked_for = async || {
        assert!(left.as_mut().now_or_never().is_none());
        stage.faults().calls(Op::Attempt) == before + 2
    };
    stage
        .eventually("two attempts", BOUND, both_are_asked_for)
        .await;
    left
}

async fn multi_lock_that_is_left_between_its_grants_frees_all_of_them(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let members = [client.lock("a").into(), client.fair_lock("b").into()];
    let left = left_between_two_grants(stage, &MultiLock::of(members)).await;
    let free = async || {
        let a = other.lock("a").is_locked().await.unwrap();
        !a && !other.fair_lock("b").is_locked().await.unwrap()
    };
    assert!(!free().await);
    stage.eventually("free", BOUND, free).await;
    let guard = left.await.unwrap();
    tokio::time::sleep(stage.lease() * 2).await;
    assert!(guard.is_held() && !free().await);
    guard.release().await.unwrap();
}

/// The next one of its client does not wait for two looks in the queue of each key.
async fn multi_lock_that_is_left_loses_its_places_in_all_queues_at_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let acquire = || client.multi_lock(["a", "b", "c"]).acquire();
    acquire().await.unwrap().release().await.unwrap();
    stage.faults().next(Op::Attempt, ANSWER);
    let mut left = Box::pin(acquire().lease(LEASE).into_future());
    assert!(left.as_mut().now_or_never().is_none());
    let begin = Instant::now();
    let next = acquire().await.unwrap();
    let took = begin.elapsed();
    assert!(took <= BOUND + stage.slack(), "{took:?}");
    next.release().await.unwrap();
    left.await.unwrap().release().await.unwrap();
}

async fn multi_lock_that_is_left_in_a_scope_lets_other_branches_in(stage: &Stage) {
    let client = stage.faulty_client().await;
    let [a, b] = ["a", "b"].map(|key| client.lock(key));
    let locks = MultiLock::of([a.clone().into(), b.into(), client.fair_lock("c").into()]);
    let body = async {
        let left = left_between_two_grants(stage, &locks).await;
        let again = a.acquire().wait(BOUND + stage.slack()).await.unwrap();
        again.release().await.unwrap();
        left.await.unwrap().release().await.unwrap();
    };
    a.acquire().run(body).await.unwrap();
}

async fn multi_lock_in_two_slots_that_is_left_between_its_grants_frees_both(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for single_try in [false, true] {
        let both = client.multi_lock(["a", "b"]);
        let mut left: Acquiring = if single_try {
            Box::pin(both.acquire().wait(Duration::ZERO).into_future())
        } else {
            Box::pin(both.acquire().into_future())
        };
        stage.faults().pass(Op::Attempt);
        stage.faults().next(Op::Attempt, ANSWER);
        assert!(left.as_mut().now_or_never().is_none());
        let taken = async |key: &str| other.lock(key).is_locked().await.unwrap();
        assert!(taken("a").await && taken("b").await);
        let free = async || !taken("a").await && !taken("b").await;
        stage.eventually("free", BOUND, free).await;
        let guard = left.await.unwrap();
        tokio::time::sleep(stage.lease() * 2).await;
        assert!(guard.is_held() && taken("a").await && taken("b").await);
        guard.release().await.unwrap();
    }
}

async fn parts_of_a_multi_lock_are_not_renewed_before_there_is_a_guard(stage: &Stage) {
    let client = stage.faulty_client().await;
    let all = client.multi_lock(('a'..='n').map(String::from)).acquire();
    let answer = Fault::DelayReply(stage.lease() / 30);
    stage.faults().always(Op::Attempt, answer);
    let acquiring = tokio::spawn(all.into_future());
    // Beyond a third of the lease, when the first part would be renewed.
    tokio::time::sleep(stage.lease() * 3 / 8).await;
    assert_eq!(stage.faults().calls(Op::Attempt), 12);
    assert_eq!(stage.faults().calls(Op::Renew), 0);
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!(stage.faults().calls(Op::Attempt), 14);
    tokio::time::sleep(stage.lease() * 2).await;
    assert!(guard.is_held() && stage.faults().calls(Op::Renew) > 0);
    guard.release().await.unwrap();
}

/// Its lease is over in the server later than it was when it was planned.
async fn attempt_that_was_sent_late_is_ended_until_its_lease_is_over(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let (late, lease) = (stage.most_delay(), stage.most_delay() / 2);
    stage.faults().next(Op::Attempt, Fault::FailLate(late));
    stage.faults().next(Op::Release, Fault::FailBefore);
    let lock = client.lock("k");
    let tried = lock.acquire().wait(Duration::ZERO).lease(lease).await;
    assert!(tried.unwrap_err().is_unavailable());
    let free = Instant::now();
    let next = other.lock("k").acquire().await.unwrap();
    assert!(free.elapsed() <= lease * 3 / 4, "{:?}", free.elapsed());
    assert_eq!(stage.faults().hits(Op::Release), 1);
    next.release().await.unwrap();
}

on_every_backend![
    grant_that_nobody_takes_is_released_for_each_kind,
    next_waiters_are_granted_what_an_unpolled_one_has_not_taken,
    acquisition_that_is_polled_keeps_its_owner_however_late_its_answer_is,
    multi_lock_that_is_left_between_its_grants_frees_all_of_them,
    multi_lock_that_is_left_loses_its_places_in_all_queues_at_once,
    multi_lock_that_is_left_in_a_scope_lets_other_branches_in,
];

in_several_slots![
    attempt_that_was_sent_late_is_ended_until_its_lease_is_over,
    multi_lock_in_two_slots_that_is_left_between_its_grants_frees_both,
    parts_of_a_multi_lock_are_not_renewed_before_there_is_a_guard,
    multi_lock_that_is_left_between_its_grants_frees_all_of_them,
    multi_lock_that_is_left_loses_its_places_in_all_queues_at_once,
];
