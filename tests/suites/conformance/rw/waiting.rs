//! Waiters for readers and writers: which ends wake which waiters, what is handed over, and that readers who wait for the
//! same writer do not wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::Guard;
use distlock_tests::faults::{Fault, Op};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{KEY, flood, reading, turn_is_taken, writing};
use crate::conformance::stage::Stage;

async fn end_of_the_last_reader_wakes_a_writer_and_that_of_a_writer_all_readers(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let (first, last) = (reading(&lock).await.unwrap(), reading(&lock).await.unwrap());
    let writer = writing(&other);
    turn_is_taken(stage, &other).await;
    first.release().await.unwrap();
    sleep(stage.part(20)).await;
    assert!(!writer.is_finished());
    let start = Instant::now();
    last.release().await.unwrap();
    let writer = writer.await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    let readers: Vec<_> = [&lock, &lock, &other, &other].map(reading).into();
    stage.waiting(&one, 2).await;
    stage.waiting(&two, 2).await;
    let start = Instant::now();
    writer.release().await.unwrap();
    // All of them at once, and none before another has left.
    let readers = join_all(readers).await;
    stage.assert_took(start, Duration::ZERO);
    assert!(readers.iter().flatten().all(Guard::is_held));
    assert_eq!(lock.read().hold_count().await.unwrap(), 4);
}

async fn writes_are_handed_over_but_not_with_a_reader_inside(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let first = lock.write().acquire().await.unwrap();
    let owner = first.owner();
    let next = writing(&lock);
    stage.waiting(&client, 1).await;
    first.release().await.unwrap();
    let second = next.await.unwrap();
    assert_eq!(
        (second.owner(), stage.faults().calls(Op::Release)),
        (owner, 0)
    );
    let reader = second.scope(lock.read().acquire().into_future());
    let reader = reader.await.unwrap().unwrap();
    let next = writing(&lock);
    stage.waiting(&client, 1).await;
    second.release().await.unwrap();
    sleep(stage.part(20)).await;
    assert!(!next.is_finished());
    reader.release().await.unwrap();
    let third = next.await.unwrap();
    assert_ne!(third.owner(), owner);
    third.release().await.unwrap();
}

async fn readers_of_one_client_do_not_stand_behind_each_other(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let slow = stage.part(20);
    stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
    let start = Instant::now();
    let readers: Vec<_> = (0..64).map(|_| reading(&lock)).collect();
    let readers = join_all(readers).await;
    stage.assert_took(start, slow);
    stage.faults().clear(Op::Attempt);
    drop(readers);
    // Nor do those that a writer made stand in line.
    let writer = lock.write().acquire().await.unwrap();
    let readers: Vec<_> = (0..64).map(|_| reading(&lock)).collect();
    stage.waiting(&client, 64).await;
    sleep(stage.part(20)).await;
    stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
    let start = Instant::now();
    writer.release().await.unwrap();
    let readers = join_all(readers).await;
    stage.assert_took(start, 2 * slow);
    drop(readers);
}

async fn line_of_readers_ends_also_while_readers_come_in_all_the_time(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let stop = Arc::new(AtomicBool::new(false));
    // Served one by one they would take longer than until the next one comes.
    let (stay, slow) = (stage.part(100), stage.part(30));
    stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
    let mut readers = flood(&lock, stay, &stop);
    sleep(slow * 4).await;
    let writer = lock.write().acquire().await.unwrap();
    stage.waiting(&client, 4).await;
    writer.release().await.unwrap();
    sleep(slow * 10).await;
    for _ in 0..3 {
        let start = Instant::now();
        drop(lock.read().acquire().await.unwrap());
        stage.assert_took(start, slow);
    }
    stage.faults().clear(Op::Attempt);
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
}

on_every_backend![
    end_of_the_last_reader_wakes_a_writer_and_that_of_a_writer_all_readers,
    writes_are_handed_over_but_not_with_a_reader_inside,
    readers_of_one_client_do_not_stand_behind_each_other,
    line_of_readers_ends_also_while_readers_come_in_all_the_time,
];
