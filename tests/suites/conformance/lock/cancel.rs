//! Futures that are dropped by every kind of caller. Nothing stays behind. The suite of faults drops each future at
//! every point where it waits.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock::{Client, Error, Guard};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, drop_after};

const KEY: &str = "order:42";

/// Has the key taken for a while, and released then.
async fn taken_for(by: &Client, time: Duration) {
    let guard = by.lock(KEY).acquire().await.unwrap();
    tokio::spawn(async move {
        sleep(time).await;
        guard.release().await.unwrap();
    });
}

async fn waiter_in_the_middle_of_a_queue_dropped_at_any_point(stage: &Stage) {
    let client = stage.lasting_client().await;
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

async fn guard_in_a_select_that_is_not_taken_is_released(stage: &Stage) {
    let (client, other) = (stage.lasting_client().await, stage.lasting_client().await);
    for _ in 0..stage.size(10, 50) {
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
    let (client, other) = (stage.lasting_client().await, stage.lasting_client().await);
    let held = other.lock(KEY).acquire().await.unwrap();
    let acquiring = client.lock(KEY).acquire();
    let start = Instant::now();
    assert!(timeout(stage.part(10), acquiring).await.is_err());
    stage.assert_took(start, stage.part(10));
    held.release().await.unwrap();
    stage.is_quiet_within(Duration::from_millis(100)).await;
}

async fn holder_and_waiter_that_are_aborted_make_way(stage: &Stage) {
    let client = stage.lasting_client().await;
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
    let client = stage.lasting_client().await;
    let mut acquiring = Box::pin(client.lock(KEY).acquire().into_future());
    let mut cx = Context::from_waker(Waker::noop());
    let polled: Poll<Result<Guard, Error>> = acquiring.as_mut().poll(&mut cx);
    drop((polled, acquiring));
    stage.is_quiet_within(stage.part(10)).await;
}

on_every_backend![
    waiter_in_the_middle_of_a_queue_dropped_at_any_point,
    guard_in_a_select_that_is_not_taken_is_released,
    timeout_around_an_acquisition_leaves_nothing,
    holder_and_waiter_that_are_aborted_make_way,
    gate_waiter_dropped_at_any_point_leaves_the_count,
    guard_dropped_while_it_is_being_handed_out_is_no_leak,
];
