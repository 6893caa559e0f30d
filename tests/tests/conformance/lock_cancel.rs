//! Futures that are dropped: at every point where they wait, by every kind of caller. Nothing stays behind.

#![allow(
    clippy::async_yields_async,
    reason = "it is the future that is wanted, to be polled and dropped"
)]

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock::test_util::{Fault, Op};
use distlock::{Client, Error, Guard};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{Stage, drop_after};

const KEY: &str = "order:42";

/// Makes the future that `start` describes and drops it after 1, 2, 3.. polls, until it is done before that. After each
/// drop the key must be free soon and nothing left. Yields after how many polls it was done.
async fn dropped_after_each_poll<F: Future>(
    stage: &Stage,
    start: impl AsyncFn() -> F,
    within: Duration,
) -> usize {
    for polls in 0..100 {
        let future = start().await;
        let done = drop_after(polls, future).await;
        let was_done = done.is_some();
        drop(done);
        for op in [Op::Attempt, Op::Renew, Op::Release, Op::Inspect] {
            stage.faults().clear(op);
        }
        stage.is_quiet_within(within).await;
        stage.is_free(KEY).await;
        if was_done {
            return polls;
        }
    }
    panic!("not done after 100 polls");
}

/// Has the key taken for a while, and released then.
async fn taken_for(by: &Client, time: Duration) {
    let guard = by.lock(KEY).acquire().await.unwrap();
    tokio::spawn(async move {
        sleep(time).await;
        guard.release().await.unwrap();
    });
}

async fn acquisition_of_a_free_lock_dropped_at_any_point(stage: &Stage) {
    let client = stage.faulty_client().await;
    let a_while = stage.part(50);
    for fault in [
        Fault::Delay(a_while),
        Fault::DelayReply(a_while),
        Fault::FailAfter,
        Fault::FailBefore,
    ] {
        let start = async || {
            stage.faults().next(Op::Attempt, fault);
            stage.faults().next(Op::Attempt, fault);
            client.lock(KEY).acquire().into_future()
        };
        let polls = dropped_after_each_poll(stage, start, stage.part(10)).await;
        assert!(polls >= 2, "{fault:?}: {polls}");
    }
}

async fn late_attempt_of_a_dropped_acquisition_is_cleaned_up(stage: &Stage) {
    let client = stage.faulty_client().await;
    let start = async || {
        stage
            .faults()
            .next(Op::Attempt, Fault::Late(stage.part(20)));
        client.lock(KEY).acquire().into_future()
    };
    let at_most = stage.lease() + stage.part(5);
    dropped_after_each_poll(stage, start, at_most).await;
}

async fn waiter_behind_another_client_dropped_at_any_point(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for delayed in [false, true] {
        let start = async || {
            taken_for(&other, stage.part(10)).await;
            if delayed {
                let fault = Fault::DelayReply(stage.part(100));
                stage.faults().always(Op::Attempt, fault);
            }
            client.lock(KEY).acquire().into_future()
        };
        let polls = dropped_after_each_poll(stage, start, stage.part(5)).await;
        assert!(polls >= 2, "{polls}");
    }
}

async fn waiter_behind_its_own_client_dropped_at_any_point(stage: &Stage) {
    let client = stage.faulty_client().await;
    for stay in [Duration::from_millis(10), stage.part(10)] {
        let start = async || {
            taken_for(&client, stay).await;
            client.lock(KEY).acquire().into_future()
        };
        let polls = dropped_after_each_poll(stage, start, stage.part(5)).await;
        assert!(polls >= 2, "{polls}");
    }
}

async fn waiter_in_the_middle_of_a_queue_dropped_at_any_point(stage: &Stage) {
    let client = stage.client().await;
    for polls in 0..8 {
        taken_for(&client, Duration::from_millis(10)).await;
        let mut tasks = Vec::new();
        for n in 0..3 {
            let acquiring = client.lock(KEY).acquire().into_future();
            let acquiring = drop_after(if n == 1 { polls } else { 100 }, acquiring);
            tasks.push(tokio::spawn(async move {
                if let Some(guard) = acquiring.await {
                    sleep(Duration::from_millis(5)).await;
                    guard.unwrap().release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        stage.is_quiet_within(stage.part(10)).await;
        stage.is_free(KEY).await;
    }
}

async fn single_try_dropped_at_any_point(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let start = async || {
        stage
            .faults()
            .next(Op::Attempt, Fault::DelayReply(stage.part(50)));
        Box::pin(lock.try_acquire())
    };
    assert!(dropped_after_each_poll(stage, start, stage.part(10)).await >= 2);
}

async fn release_dropped_at_any_point(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [
        Fault::Delay(stage.part(50)),
        Fault::DelayReply(stage.part(50)),
        Fault::FailAfter,
        Fault::FailBefore,
        Fault::Never,
    ] {
        let start = async || {
            let guard = client.lock(KEY).acquire().await.unwrap();
            stage.faults().next(Op::Release, fault);
            guard.release()
        };
        let polls = dropped_after_each_poll(stage, start, stage.part(2)).await;
        assert!(polls >= 2, "{fault:?}: {polls}");
    }
}

async fn run_dropped_at_any_point(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let a_while = stage.part(100);
    let start = async || {
        taken_for(&other, a_while).await;
        for op in [Op::Attempt, Op::Release] {
            stage.faults().next(op, Fault::Delay(a_while));
            stage.faults().next(op, Fault::DelayReply(a_while));
        }
        let lock = client.lock(KEY);
        client.lock(KEY).acquire().run(async move {
            sleep(a_while).await;
            let nested = lock.acquire().await.unwrap();
            sleep(a_while).await;
            nested.release().await.unwrap();
            sleep(a_while).await;
        })
    };
    let polls = dropped_after_each_poll(stage, start, stage.part(2)).await;
    assert!(polls >= 6, "{polls}");
}

async fn guard_in_a_select_that_is_not_taken_is_released(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for _ in 0..50 {
        let held = other.lock(KEY).acquire().await.unwrap();
        let release = async {
            sleep(stage.part(100)).await;
            held.release().await.unwrap();
        };
        let acquiring = client.lock(KEY).acquire();
        let pair = async {
            tokio::select! {
                guard = acquiring => drop(guard.unwrap()),
                () = sleep(stage.part(100)) => {}
            }
        };
        tokio::join!(release, pair);
        stage.is_quiet_within(stage.part(10)).await;
        stage.is_free(KEY).await;
    }
}

async fn timeout_around_an_acquisition_leaves_nothing(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let held = other.lock(KEY).acquire().await.unwrap();
    let acquiring = client.lock(KEY).acquire();
    let start = Instant::now();
    assert!(timeout(stage.part(10), acquiring).await.is_err());
    stage.assert_took(start, stage.part(10));
    held.release().await.unwrap();
    stage.is_quiet_within(Duration::from_millis(100)).await;
}

async fn holder_and_waiter_that_are_aborted_make_way(stage: &Stage) {
    let client = stage.client().await;
    let hold_for_ever = |client: &Client| {
        let lock = client.lock(KEY);
        tokio::spawn(async move { lock.acquire().run(std::future::pending::<()>()).await })
    };
    for _ in 0..20 {
        let holder = hold_for_ever(&client);
        stage
            .eventually("held", stage.part(10), async || {
                client.lock(KEY).is_locked().await.unwrap()
            })
            .await;
        let first = hold_for_ever(&client);
        stage.waiting(&client, 1).await;
        let second = tokio::spawn(client.lock(KEY).acquire().into_future());
        stage.waiting(&client, 2).await;
        first.abort();
        holder.abort();
        let start = Instant::now();
        let guard = second.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        guard.release().await.unwrap();
        drop((holder.await, first.await));
    }
}

async fn panic_in_a_scope_releases(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let run = lock.acquire().run(async { panic!("in the body") });
    assert!(AssertUnwindSafe(run).catch_unwind().await.is_err());
    stage.is_quiet_within(stage.part(10)).await;
    let guard = lock.acquire().await.unwrap();
    let scope = guard.scope(async {
        let _nested = lock.acquire().await.unwrap();
        panic!("in the scope")
    });
    assert!(AssertUnwindSafe(scope).catch_unwind().await.is_err());
    assert!(guard.is_held());
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    guard.release().await.unwrap();
    let nested = lock.acquire().run({
        let lock = lock.clone();
        async move { lock.acquire().run(async { panic!("deep inside") }).await }
    });
    let task = tokio::spawn(nested);
    assert!(task.await.unwrap_err().is_panic());
    stage.is_quiet_within(stage.part(10)).await;
    stage.is_free(KEY).await;
    // No frame was left behind on this thread.
    assert!(
        stage
            .client()
            .await
            .lock(KEY)
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

async fn gate_waiter_dropped_at_any_point_leaves_the_count(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let body = async {
        for polls in 0..6 {
            let sibling = lock.acquire().await.unwrap();
            let waiting = drop_after(polls, lock.acquire().into_future());
            let end = async {
                sleep(stage.part(100)).await;
                drop(sibling);
            };
            let (waited, ()) = tokio::join!(waiting, end);
            drop(waited);
            assert_eq!(lock.hold_count().await.unwrap(), 1, "{polls}");
            assert!(lock.try_acquire().await.unwrap().is_some(), "{polls}");
        }
    };
    guard.scope(body).await.unwrap();
}

async fn guard_dropped_while_it_is_being_handed_out_is_no_leak(stage: &Stage) {
    // The future may be done and its output thrown away unseen: a guard, dropped like any other.
    let client = stage.client().await;
    let mut acquiring = Box::pin(client.lock(KEY).acquire().into_future());
    let mut cx = Context::from_waker(Waker::noop());
    let polled: Poll<Result<Guard, Error>> = acquiring.as_mut().poll(&mut cx);
    drop((polled, acquiring));
    stage.is_quiet_within(stage.part(10)).await;
}

on_every_backend![
    acquisition_of_a_free_lock_dropped_at_any_point,
    late_attempt_of_a_dropped_acquisition_is_cleaned_up,
    waiter_behind_another_client_dropped_at_any_point,
    waiter_behind_its_own_client_dropped_at_any_point,
    waiter_in_the_middle_of_a_queue_dropped_at_any_point,
    single_try_dropped_at_any_point,
    release_dropped_at_any_point,
    run_dropped_at_any_point,
    guard_in_a_select_that_is_not_taken_is_released,
    timeout_around_an_acquisition_leaves_nothing,
    holder_and_waiter_that_are_aborted_make_way,
    panic_in_a_scope_releases,
    gate_waiter_dropped_at_any_point_leaves_the_count,
    guard_dropped_while_it_is_being_handed_out_is_no_leak,
];
