//! Rows 67, 68 and 70: futures that are dropped, and tasks that are aborted. Row 67 of other primitives is in `drops`.

#![allow(
    clippy::async_yields_async,
    reason = "it is the future that is wanted, to be polled and dropped"
)]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock::{Client, Lock};
use distlock_tests::drop_after;
use distlock_tests::faults::{Fault, Op};
use distlock_tests::size;
use rand::RngExt;
use tokio::task::coop::unconstrained;
use tokio::task::{AbortHandle, JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{Inside, SOON, ms, warm_up};

pub(crate) const KEY: &str = "order:42";

/// After a drop everything is free again in this time.
pub(crate) const FREE: Duration = ms(200);

/// Has the key taken for a while, and released then.
async fn taken_for(by: &Client, time: Duration) -> JoinHandle<()> {
    let guard = by.lock(KEY).acquire().await.unwrap();
    tokio::spawn(async move {
        sleep(time).await;
        guard.release().await.unwrap();
    })
}

/// Nobody has the key.
pub(crate) fn nobody() -> JoinHandle<()> {
    tokio::spawn(std::future::ready(()))
}

/// What a dropped acquisition may have met.
pub(crate) fn faults_of_an_attempt(slow: Duration) -> [Fault; 4] {
    [
        Fault::Delay(slow),
        Fault::DelayReply(slow),
        Fault::FailAfter,
        Fault::FailBefore,
    ]
}

/// What a dropped release may have met.
pub(crate) fn faults_of_a_release(slow: Duration) -> impl Iterator<Item = Fault> {
    let late = Fault::Late(slow);
    faults_of_an_attempt(slow).into_iter().chain([late])
}

/// Drops the future that `start` makes after 0, 1, 2, 3.. polls, until it is done before that each of so many times: after
/// each drop, and once the other holder has gone that `start` may have put in its way, `free` must find everything free.
pub(crate) async fn dropped_at_every_point<F: Future>(
    stage: &Stage,
    row: &Row,
    times: usize,
    free: impl AsyncFn(),
    start: impl AsyncFn() -> (JoinHandle<()>, F),
) {
    for polls in 0..100 {
        let mut all_done = true;
        for _ in 0..times {
            let (other, future) = start().await;
            let done = drop_after(polls, future).await.is_some();
            stage.heal();
            other.await.unwrap();
            free().await;
            row.injected("future dropped", u64::from(!done));
            all_done &= done;
        }
        if all_done {
            assert!(polls >= 2, "it never waited");
            return;
        }
    }
    panic!("not done after 100 polls");
}

/// The same of the lock, of which nothing is left in the end.
async fn lock_dropped_at_every_point<F: Future>(
    stage: &Stage,
    row: &Row,
    start: impl AsyncFn() -> (JoinHandle<()>, F),
) {
    let free = async || stage.free_within(FREE).await;
    dropped_at_every_point(stage, row, stage.either(1, size(1, 3)), free, start).await;
    stage.nothing_is_left().await;
}

/// Acquisitions of a free lock and single tries, with answers that come late or not at all.
async fn acquisitions_of_a_free_lock(stage: &Stage, row: &Row) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let (slow, faults) = (ms(30), stage.faults());
    for fault in faults_of_an_attempt(slow) {
        let start = async || {
            faults.next(Op::Attempt, fault);
            faults.next(Op::Attempt, fault);
            (nobody(), lock.acquire().into_future())
        };
        lock_dropped_at_every_point(stage, row, start).await;
    }
    let start = async || {
        faults.next(Op::Attempt, Fault::DelayReply(slow));
        (nobody(), lock.try_acquire())
    };
    lock_dropped_at_every_point(stage, row, start).await;
}

/// Waiters behind another client and behind their own, also where each answer is slow.
async fn waiters(stage: &Stage, row: &Row) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    // Longer than a waiter trusts a holder of its own client, so that it asks the server, too; and shorter, so that it is
    // handed over.
    for (holder, stay) in [(&other, ms(60)), (&client, ms(60)), (&client, ms(10))] {
        for slow in [false, true] {
            let start = async || {
                let holder = taken_for(holder, stay).await;
                if slow {
                    let fault = Fault::DelayReply(ms(10));
                    stage.faults().always(Op::Attempt, fault);
                }
                (holder, client.lock(KEY).acquire().into_future())
            };
            lock_dropped_at_every_point(stage, row, start).await;
        }
    }
}

async fn releases(stage: &Stage, row: &Row) {
    let client = stage.faulty_client().await;
    for fault in faults_of_a_release(ms(30)) {
        let start = async || {
            let guard = client.lock(KEY).acquire().await.unwrap();
            stage.faults().next(Op::Release, fault);
            (nobody(), guard.release())
        };
        lock_dropped_at_every_point(stage, row, start).await;
    }
}

/// `run` behind another client, with an entry of the hold in its body, and `scope` of a guard that goes with it.
async fn runs_and_scopes(stage: &Stage, row: &Row) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let slow = ms(20);
    let work = async |lock: Lock| {
        sleep(slow).await;
        let nested = lock.acquire().await.unwrap();
        sleep(slow).await;
        nested.release().await.unwrap();
        sleep(slow).await;
    };
    let start = async || {
        let holder = taken_for(&other, slow).await;
        for op in [Op::Attempt, Op::Release] {
            stage.faults().next(op, Fault::Delay(slow));
            stage.faults().next(op, Fault::DelayReply(slow));
        }
        let lock = client.lock(KEY);
        (holder, lock.acquire().run(work(lock.clone())))
    };
    lock_dropped_at_every_point(stage, row, start).await;
    let start = async || {
        let lock = client.lock(KEY);
        let guard = lock.acquire().await.unwrap();
        let scoped = async move { guard.scope(work(lock)).await.unwrap() };
        (nobody(), scoped)
    };
    lock_dropped_at_every_point(stage, row, start).await;
}

async fn f67_future_dropped_at_any_point_in_memory_leaves_all_free_within_200_ms(row: &Row) {
    let stage = Stage::memory();
    acquisitions_of_a_free_lock(&stage, row).await;
    waiters(&stage, row).await;
    releases(&stage, row).await;
    runs_and_scopes(&stage, row).await;
}

async fn f67_acquisition_of_a_free_lock_dropped_at_any_point_leaves_it_free(row: &Row) {
    acquisitions_of_a_free_lock(&Stage::redis().await, row).await;
}

async fn f67_waiter_dropped_at_any_point_leaves_the_lock_free(row: &Row) {
    waiters(&Stage::redis().await, row).await;
}

async fn f67_release_dropped_at_any_point_still_frees(row: &Row) {
    releases(&Stage::redis().await, row).await;
}

async fn f67_run_and_scope_dropped_at_any_point_leave_the_lock_free(row: &Row) {
    runs_and_scopes(&Stage::redis().await, row).await;
}

/// Drops many acquisitions after one poll, when their attempts have gone nowhere, or up to the server.
async fn dropped_after_one_poll(stage: &Stage, client: &Client, drops: usize) {
    // More at once would wait here for a place among the attempts under way.
    const AT_ONCE: usize = 250;
    for wave in 0..drops / AT_ONCE {
        let lock = |n| client.lock(format!("k:{wave}:{n}"));
        let acquiring = |n| lock(n).acquire().into_future();
        let mut dropped: Vec<_> = (0..AT_ONCE).map(acquiring).collect();
        let polled = poll_fn(|cx| {
            let mut each = dropped.iter_mut();
            Poll::Ready(each.all(|acquiring| Pin::new(acquiring).poll(cx).is_pending()))
        });
        // Together they would use up what tokio lets a task do in one poll.
        assert!(unconstrained(polled).await, "granted in one poll");
        for _ in 0..wave % 4 {
            yield_now().await;
        }
        drop(dropped);
        stage.free_within(SOON / 10).await;
    }
    stage.nothing_is_left().await;
}

async fn f68_attempts_carried_out_after_their_futures_were_dropped_hold_nothing(row: &Row) {
    // Of these some reach the server. Those that are dropped while they wait for others to go with do not.
    let drops = size(6_000, 30_000);
    let stage = Stage::redis().await;
    let client = stage.client().await;
    warm_up(&client).await;
    let before = stage.command_calls("hset").await;
    dropped_after_one_poll(&stage, &client, drops).await;
    let granted = stage.command_calls("hset").await - before;
    row.injected("attempt granted after its future was dropped", granted);
    assert!(granted > drops as u64 / 40, "only {granted} were sent");
}

async fn f68_attempts_dropped_in_memory_before_their_answer_hold_nothing(row: &Row) {
    let drops = size(2_500, 10_000);
    let stage = Stage::memory();
    let client = stage.faulty_client().await;
    let faults = stage.faults();
    faults.always(Op::Attempt, Fault::DelayReply(ms(10)));
    dropped_after_one_poll(&stage, &client, drops).await;
    assert_eq!(faults.hits(Op::Attempt), drops);
    row.injected("granted attempt dropped before its answer", drops as u64);
}

/// The connection broke and the future was dropped, and then the attempt is carried out.
async fn late_attempts(stage: &Stage, row: &Row) {
    let client = stage.faulty_client().await;
    let late = ms(50);
    for _ in 0..20 {
        stage.faults().next(Op::Attempt, Fault::Late(late));
        let acquiring = client.lock(KEY).acquire().into_future();
        assert!(drop_after(1, acquiring).await.is_none());
        sleep(2 * late).await;
        // Well before the lease of 30 s would do it.
        stage.free_within(SOON / 10).await;
    }
    row.injected("late attempt", stage.faults().hits(Op::Attempt) as u64);
    stage.nothing_is_left().await;
}

/// What happens inside of some keys.
#[derive(Default)]
struct Visits {
    inside: [AtomicUsize; 4],
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Holds a key for some yields, in a scope or with a bare guard, and releases or drops it.
async fn visit(lock: Lock, key: usize, visits: &'static Visits, way: u32) {
    let stay = async {
        let _inside = Inside::enter(&visits.inside[key]);
        visits.begun.fetch_add(1, Ordering::SeqCst);
        for _ in 0..way % 5 {
            yield_now().await;
        }
        visits.ended.fetch_add(1, Ordering::SeqCst);
    };
    match way % 3 {
        0 => lock.acquire().run(stay).await.unwrap(),
        1 => {
            let _guard = lock.acquire().await.unwrap();
            stay.await;
        }
        _ => {
            let guard = lock.acquire().await.unwrap();
            stay.await;
            guard.release().await.unwrap();
        }
    }
}

/// Aborts tasks in random order, with a pause after one in `one_in`, in which replies come in.
async fn abort_all(mut victims: Vec<AbortHandle>, one_in: u32) {
    while !victims.is_empty() {
        match rand::rng().random_range(0..one_in) {
            0 => sleep(ms(1)).await,
            yields => {
                for _ in 0..yields % 4 {
                    yield_now().await;
                }
            }
        }
        let victim = rand::rng().random_range(0..victims.len());
        victims.swap_remove(victim).abort();
    }
}

/// Waves of tasks on a few keys, most of them aborted at random: those that are not must all get in.
async fn random_aborts(stage: &Stage, row: &Row, aborts: usize) {
    const TASKS: usize = 50;
    let clients = [stage.client().await, stage.client().await];
    let visits: &'static Visits = Box::leak(Box::default());
    let cut_short = || visits.begun.load(Ordering::SeqCst) - visits.ended.load(Ordering::SeqCst);
    let mut aborted = 0;
    // On a busy machine whole waves may end before any of them is inside.
    while aborted < aborts || cut_short() == 0 {
        let mut wave = JoinSet::new();
        let mut victims = Vec::new();
        for n in 0..TASKS {
            let (key, way) = (n % visits.inside.len(), rand::rng().random());
            let lock = clients[n / 4 % 2].lock(format!("k:{key}"));
            let task = wave.spawn(visit(lock, key, visits, way));
            victims.extend((n % 10 != 0).then_some(task));
        }
        abort_all(victims, stage.either(40, 20)).await;
        while let Some(ended) = timeout(SOON, wave.join_next()).await.expect("all get in") {
            let cancelled = ended.is_err_and(|error| {
                assert!(error.is_cancelled(), "{error}");
                true
            });
            aborted += usize::from(cancelled);
        }
    }
    row.injected("task aborted", aborted as u64);
    row.injected("of these inside", cut_short());
    stage.nothing_is_left().await;
}

async fn f70_holders_and_waiters_aborted_at_random_in_memory_make_way(row: &Row) {
    random_aborts(&Stage::memory(), row, size(4_000, 20_000)).await;
}

async fn f70_holders_and_waiters_aborted_at_random_make_way(row: &Row) {
    random_aborts(&Stage::redis().await, row, size(600, 2_000)).await;
}

rows! {
    Both:
        late_attempts =>
            f68_attempt_of_a_dropped_future_that_comes_late_in_memory_holds_nothing,
            f68_attempt_of_a_dropped_future_that_comes_late_holds_nothing;
    Paused:
        f67_future_dropped_at_any_point_in_memory_leaves_all_free_within_200_ms,
        f68_attempts_dropped_in_memory_before_their_answer_hold_nothing;
    Real:
        f67_acquisition_of_a_free_lock_dropped_at_any_point_leaves_it_free,
        f67_waiter_dropped_at_any_point_leaves_the_lock_free,
        f67_release_dropped_at_any_point_still_frees,
        f67_run_and_scope_dropped_at_any_point_leave_the_lock_free,
        f68_attempts_carried_out_after_their_futures_were_dropped_hold_nothing,
        f70_holders_and_waiters_aborted_at_random_make_way;
    Threads: f70_holders_and_waiters_aborted_at_random_in_memory_make_way;
}
