//! What every exclusive lock promises, tested for each kind on every backend.
//!
//! The reentrant lock has the folder `lock`, with a file for each subject; here are those promises of it that another kind could
//! break: by its scripts, its place in the queue, or the way its guards are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::faults::{Fault, Op};
use distlock_tests::{AnyLock, LockKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, drop_after, refused};

const KEY: &str = "order:42";

/// One `#[test]` for each kind, backend and function.
macro_rules! on_every_lock {
    ([$($kind:ident = $of:ident),* $(,)?], $tests:tt) => {
        $(mod $kind { on_every_lock!(@backends $of, $tests); })*
    };
    (@backends $of:ident, [$($test:ident),* $(,)?]) => {
        mod memory {
            $(#[test] fn $test() {
                crate::conformance::stage::memory(|stage| Box::pin(super::super::$test(stage, super::super::LockKind::$of)));
            })*
        }
        mod redis {
            $(#[test] fn $test() {
                crate::conformance::stage::redis(|stage| Box::pin(super::super::$test(stage, super::super::LockKind::$of)));
            })*
        }
    };
}

on_every_lock!(
    [
        non_reentrant = NonReentrant,
        spin = Spin,
        fenced = Fenced,
        fair = Fair,
        non_reentrant_fair = NonReentrantFair,
        write = Write,
        multi = Multi,
    ],
    [
        held_lock_keeps_others_out_and_released_lock_does_not,
        waiter_of_another_client_is_granted_after_the_release,
        waiters_of_one_client_are_granted_one_after_the_other,
        wait_that_ends_is_a_timeout_and_leaves_nothing,
        watchdog_keeps_the_lock_for_three_leases,
        fixed_lease_ends_and_the_next_one_gets_in,
        force_release_is_told_to_the_holder,
        dropped_guard_frees_the_lock,
        body_is_cut_when_the_hold_is_lost,
        nested_acquire_enters_again_or_is_refused_at_once,
        branches_of_one_scope_exclude_each_other,
        acquisition_dropped_at_every_point_leaves_nothing,
        waiting_acquisition_dropped_at_every_point_leaves_nothing,
        unheard_grant_is_cleaned_up,
        doubled_commands_do_what_one_does,
        release_that_nobody_answers_is_seen_through,
        crowd_never_overlaps,
        server_shows_who_holds_it,
        refusal_names_the_holder,
    ]
);

async fn acquire(lock: &AnyLock) -> distlock::Guard {
    lock.acquire(None, None).await.unwrap()
}

/// Gets the lock within this time, and releases it.
async fn is_had_within(time: Option<Duration>, lock: &AnyLock) {
    let guard = lock.acquire(time, None).await.unwrap();
    guard.release().await.unwrap();
}

async fn held_lock_keeps_others_out_and_released_lock_does_not(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = acquire(&of.lock(&one, KEY)).await;
    assert!(guard.is_held());
    for client in [&one, &two] {
        assert!(of.lock(client, KEY).try_acquire().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    let next = of.lock(&two, KEY).try_acquire().await.unwrap();
    next.unwrap().release().await.unwrap();
}

/// Releases while another client waits; how long that took to be granted.
async fn waiter_of_another_client_is_granted_after_the_release(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = acquire(&of.lock(&one, KEY)).await;
    let waiter = tokio::spawn({
        let lock = of.lock(&two, KEY);
        async move { acquire(&lock).await.release().await.unwrap() }
    });
    sleep(stage.part(5)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    // In real time the lease may have ended as well. `waiting::by_message` shows that the message alone is enough.
    let granted = timeout(stage.part(4) + stage.slack(), waiter).await;
    granted.expect("it was granted").unwrap();
}

async fn waiters_of_one_client_are_granted_one_after_the_other(stage: &Stage, of: LockKind) {
    let client = stage.client().await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (lock, inside) = (of.lock(&client, KEY), Arc::clone(&inside));
        tasks.spawn(async move {
            let guard = acquire(&lock).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn wait_that_ends_is_a_timeout_and_leaves_nothing(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = acquire(&of.lock(&one, KEY)).await;
    let (start, wait) = (Instant::now(), stage.part(10));
    let error = refused(of.lock(&two, KEY).acquire(Some(wait), None).await);
    assert!(error.is_busy(), "{error}");
    stage.assert_took(start, wait);
    let error = refused(of.lock(&two, KEY).acquire(Some(Duration::ZERO), None).await);
    assert!(error.is_busy(), "{error}");
    guard.release().await.unwrap();
}

async fn watchdog_keeps_the_lock_for_three_leases(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = acquire(&of.lock(&one, KEY)).await;
    let end = Instant::now() + stage.lease() * 3;
    while Instant::now() < end {
        assert!(of.lock(&two, KEY).try_acquire().await.unwrap().is_none());
        sleep(stage.part(5)).await;
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn fixed_lease_ends_and_the_next_one_gets_in(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (start, lease) = (Instant::now(), stage.part(2));
    let lock = of.lock(&one, KEY);
    let guard = lock.acquire(None, Some(lease)).await.unwrap();
    let next = acquire(&of.lock(&two, KEY)).await;
    stage.assert_took(start, lease);
    assert!(!guard.is_held());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(next.is_held());
    next.release().await.unwrap();
}

async fn force_release_is_told_to_the_holder(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = acquire(&of.lock(&one, KEY)).await;
    assert!(of.lock(&two, KEY).force_release().await.unwrap());
    assert!(!of.lock(&two, KEY).force_release().await.unwrap());
    let told = timeout(stage.part(3) + stage.slack(), guard.lost()).await;
    told.expect("told by the next renewal");
    assert!(guard.release().await.unwrap_err().is_lost());
}

async fn dropped_guard_frees_the_lock(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    drop(acquire(&of.lock(&one, KEY)).await);
    is_had_within(Some(stage.part(4)), &of.lock(&two, KEY)).await;
}

async fn body_is_cut_when_the_hold_is_lost(stage: &Stage, of: LockKind) {
    let client = stage.client().await;
    let lock = of.lock(&client, KEY);
    let guard = lock.acquire(None, Some(stage.part(4))).await.unwrap();
    let start = Instant::now();
    let cut = guard.scope(std::future::pending::<()>()).await;
    assert!(refused(cut).is_lost());
    stage.assert_took(start, stage.part(4));
}

async fn nested_acquire_enters_again_or_is_refused_at_once(stage: &Stage, of: LockKind) {
    let client = stage.client().await;
    let lock = of.lock(&client, KEY);
    let guard = acquire(&lock).await;
    let again = guard.scope(lock.acquire(None, None)).await.unwrap();
    if of.is_reentrant() {
        again.unwrap().release().await.unwrap();
        guard.reenter().unwrap().release().await.unwrap();
        assert!(guard.is_held());
    } else {
        assert!(refused(again).is_permanent());
        assert!(refused(guard.reenter()).is_permanent());
    }
    guard.release().await.unwrap();
}

async fn branches_of_one_scope_exclude_each_other(stage: &Stage, of: LockKind) {
    if !of.is_reentrant() {
        return;
    }
    let client = stage.client().await;
    let lock = of.lock(&client, KEY);
    let guard = acquire(&lock).await;
    let inside = AtomicU32::new(0);
    let branch = || async {
        let again = acquire(&lock).await;
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        sleep(Duration::from_millis(2)).await;
        inside.fetch_sub(1, Ordering::SeqCst);
        again.release().await.unwrap();
    };
    let branches = async { tokio::join!(branch(), branch(), branch()) };
    guard.scope(branches).await.unwrap();
    guard.release().await.unwrap();
}

/// The points at which an acquisition can be dropped, and some more.
const POINTS: usize = 12;

async fn acquisition_dropped_at_every_point_leaves_nothing(stage: &Stage, of: LockKind) {
    let client = stage.lasting_client().await;
    for polls in 0..POINTS {
        let lock = of.lock(&client, KEY);
        let whole = async {
            acquire(&lock).await.scope(async {}).await.unwrap();
        };
        drop_after(polls, whole).await;
        stage.is_quiet_within(stage.part(4)).await;
    }
}

async fn waiting_acquisition_dropped_at_every_point_leaves_nothing(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.lasting_client().await, stage.lasting_client().await);
    for polls in 0..POINTS {
        let guard = acquire(&of.lock(&one, KEY)).await;
        let lock = of.lock(&two, KEY);
        let waiting = drop_after(polls, async { acquire(&lock).await.release().await });
        let releasing = async {
            sleep(Duration::from_millis(3)).await;
            guard.release().await.unwrap();
        };
        let dropped = timeout(stage.part(10), waiting);
        tokio::join!(dropped, releasing).0.ok();
        stage.is_quiet_within(stage.part(4)).await;
    }
}

async fn unheard_grant_is_cleaned_up(stage: &Stage, of: LockKind) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Attempt, Fault::FailAfter);
    let wait = Some(stage.part(10));
    let error = refused(of.lock(&client, KEY).acquire(wait, None).await);
    assert!(error.is_unavailable(), "{error}");
    assert!(stage.faults().hits(Op::Attempt) > 0);
    stage.faults().clear(Op::Attempt);
    let other = stage.client().await;
    is_had_within(Some(stage.part(2)), &of.lock(&other, KEY)).await;
}

async fn doubled_commands_do_what_one_does(stage: &Stage, of: LockKind) {
    let client = stage.faulty_client().await;
    let lock = of.lock(&client, KEY);
    stage.faults().next(Op::Attempt, Fault::Double);
    let guard = acquire(&lock).await;
    assert_eq!(lock.holders().await.unwrap()[0].count, 1);
    guard.release().await.unwrap();
    assert!(lock.holders().await.unwrap().is_empty());
    assert_eq!(stage.faults().hits(Op::Attempt), 1);
}

async fn release_that_nobody_answers_is_seen_through(stage: &Stage, of: LockKind) {
    let client = stage.faulty_client().await;
    let guard = acquire(&of.lock(&client, KEY)).await;
    stage.faults().next(Op::Release, Fault::FailAfter);
    guard.release().await.unwrap();
    let guard = acquire(&of.lock(&client, KEY)).await;
    stage.faults().next(Op::Release, Fault::FailBefore);
    drop(guard);
    let other = stage.client().await;
    is_had_within(Some(stage.part(2)), &of.lock(&other, KEY)).await;
    assert_eq!(stage.faults().hits(Op::Release), 2);
}

/// One of a crowd: in and out, some of them giving up.
async fn one_of_a_crowd(lock: AnyLock, inside: Arc<AtomicU32>, n: u32) -> u32 {
    let mut entered = 0;
    for round in 0..10 {
        let wait = (n + round)
            .is_multiple_of(3)
            .then(|| Duration::from_millis(u64::from(n % 7)));
        let Ok(guard) = lock.acquire(wait, None).await else {
            continue;
        };
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        tokio::task::yield_now().await;
        inside.fetch_sub(1, Ordering::SeqCst);
        entered += 1;
        match round % 2 {
            0 => guard.release().await.unwrap(),
            _ => drop(guard),
        }
    }
    entered
}

async fn crowd_never_overlaps(stage: &Stage, of: LockKind) {
    let clients: [Client; 2] = [stage.client().await, stage.client().await];
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let lock = of.lock(&clients[n as usize % 2], KEY);
        tasks.spawn(one_of_a_crowd(lock, Arc::clone(&inside), n));
    }
    let mut entered = 0;
    while let Some(done) = tasks.join_next().await {
        entered += done.unwrap();
    }
    assert!(entered >= 60, "only {entered} entered");
}

async fn server_shows_who_holds_it(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, seen) = (of.lock(&one, KEY), of.lock(&two, KEY));
    assert!(seen.holders().await.unwrap().is_empty());
    assert_eq!(seen.remaining_lease().await.unwrap(), None);
    let guard = lock.acquire(None, Some(stage.lease() * 2)).await.unwrap();
    let holders = seen.holders().await.unwrap();
    assert!(
        holders
            .iter()
            .any(|holder| holder.owner.starts_with(&guard.owner().to_string()))
    );
    assert!(holders.iter().all(|holder| holder.count == 1));
    let counted = u64::from(of != LockKind::Multi);
    assert_eq!(seen.hold_count().await.unwrap(), counted);
    let left = seen.remaining_lease().await.unwrap().unwrap();
    assert!(
        left > stage.lease() && left <= stage.lease() * 2,
        "{left:?}"
    );
    guard.release().await.unwrap();
}

/// Without another question: to a single attempt, to one that has waited, and to one that stood behind it in line.
async fn refusal_names_the_holder(stage: &Stage, of: LockKind) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = acquire(&of.lock(&one, KEY)).await;
    let lock = of.lock(&two, KEY);
    let single = async { refused(lock.acquire(Some(Duration::ZERO), None).await) };
    let wait = Some(stage.part(6));
    let waited = async {
        let first = lock.acquire(wait, None);
        let behind = lock.acquire(wait, None);
        let (first, behind) = tokio::join!(first, behind);
        [refused(first), refused(behind)]
    };
    let (single, [first, behind]) = (single.await, waited.await);
    for (error, state) in [
        (single, "is held"),
        (first, "timed out"),
        (behind, "timed out"),
    ] {
        let text = error.to_string();
        let Error::Timeout {
            holder: Some(holder),
            ..
        } = error
        else {
            panic!("{text}");
        };
        let client = one.id().to_string();
        let owner = holder.owner.unwrap();
        assert!(owner.starts_with(&client), "{text}");
        assert_eq!(holder.others, 0, "{text}");
        // Each key of a multi-lock has another owner.
        if of != LockKind::Multi {
            assert_eq!(owner, guard.owner().to_string(), "{text}");
        }
        assert!(text.contains(state), "{text}");
        assert!(text.contains(&format!("held by owner {owner}")), "{text}");
    }
    guard.release().await.unwrap();
}
