//! Reads and writes that are dropped before they are granted, at any point: no hold, turn or place in line stays.

use std::time::Duration;

use distlock::test_util::{Kind, sizes};
use distlock_tests::faults::{Fault, Op};
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{KEY, reading};
use crate::conformance::stage::{Stage, drop_after, lasting};

/// What is dropped at each of its polls.
async fn dropped<F: Future>(stage: &Stage, start: impl AsyncFn() -> (JoinHandle<()>, F)) {
    for polls in 0..100 {
        let (other, future) = start().await;
        let done = drop_after(polls, future).await.is_some();
        stage.faults().clear(Op::Attempt);
        other.await.unwrap();
        stage.is_quiet_within(stage.part(10)).await;
        if done {
            assert!(polls >= 2, "it never waited");
            return;
        }
    }
    panic!("not done after 100 polls");
}

async fn acquisitions_dropped_at_any_point_leave_nothing(stage: &Stage) {
    let (client, other) = (
        stage.lasting_client().await,
        stage.client_with(lasting).await,
    );
    let slow = Duration::from_millis(10);
    // Longer than a waiter trusts a holder of its own client, so that it asks the server, too.
    let stay = Duration::from_millis(60);
    for holder in [&client, &other] {
        for (held_by_writer, wanted) in [
            (true, Kind::Read),
            (true, Kind::Write),
            (false, Kind::Write),
        ] {
            let start = async || {
                let held = holder.rw_lock(KEY);
                let held = if held_by_writer {
                    held.write().acquire()
                } else {
                    held.read().acquire()
                };
                let held = held.await.unwrap();
                let holder = tokio::spawn(async move {
                    sleep(stay).await;
                    held.release().await.unwrap();
                });
                stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
                let lock = client.rw_lock(KEY);
                let acquire = if wanted == Kind::Read {
                    lock.read().acquire()
                } else {
                    lock.write().acquire()
                };
                (holder, acquire.into_future())
            };
            dropped(stage, start).await;
        }
    }
}

async fn reads_inside_a_write_dropped_at_any_point_leave_nothing(stage: &Stage) {
    let client = stage.lasting_client().await;
    let lock = client.rw_lock(KEY);
    let slow = Duration::from_millis(10);
    let start = async || {
        stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
        let lock = lock.clone();
        let body = async move {
            let writer = lock.write().acquire().await.unwrap();
            let reader = writer.scope(lock.read().acquire().into_future());
            let reader = reader.await.unwrap().unwrap();
            writer.release().await.unwrap();
            reader.release().await.unwrap();
        };
        (tokio::spawn(async {}), body)
    };
    dropped(stage, start).await;
}

async fn reader_that_was_let_go_and_never_looked_has_no_place_any_more(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (lock, other) = (client.rw_lock(KEY), other.rw_lock(KEY));
    let writer = other.write().acquire().await.unwrap();
    let first = reading(&lock);
    stage.waiting(&client, 1).await;
    let mut sleepy = Box::pin(lock.read().acquire().into_future());
    assert!((&mut sleepy).now_or_never().is_none());
    stage.waiting(&client, 2).await;
    writer.release().await.unwrap();
    // Its end lets the whole line go, and the line is forgotten.
    first.await.unwrap().release().await.unwrap();
    let writer = other.write().acquire().await.unwrap();
    let head = reading(&lock);
    stage.waiting(&client, 1).await;
    let second = reading(&lock);
    stage.waiting(&client, 2).await;
    drop(sleepy);
    assert_eq!(sizes(&client).waiters, 2);
    writer.release().await.unwrap();
    let both = async { (head.await.unwrap(), second.await.unwrap()) };
    let (head, second) = timeout(stage.lease(), both).await.expect("both were woken");
    head.release().await.unwrap();
    second.release().await.unwrap();
}

on_every_backend![
    acquisitions_dropped_at_any_point_leave_nothing,
    reads_inside_a_write_dropped_at_any_point_leave_nothing,
    reader_that_was_let_go_and_never_looked_has_no_place_any_more,
];
