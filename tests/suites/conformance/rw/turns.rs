//! Whose turn it is: no stream of readers keeps writers out, nor one of writers readers; and the turn of a waiting writer,
//! which begins when it is refused and ends with its wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::test_util::{Answer, Kind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{KEY, dying, flood, may_read, reading, turn_is_taken, writing};
use crate::conformance::stage::{Stage, refused};

async fn stream_of_readers_does_not_keep_writers_out(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let stay = stage.part(30);
    let mut readers = flood(&one.rw_lock(KEY), stay, &stop);
    let mut others = flood(&two.rw_lock(KEY), stay, &stop);
    for lock in [one.rw_lock(KEY), two.rw_lock(KEY), one.rw_lock(KEY)] {
        sleep(stay * 3).await;
        let start = Instant::now();
        let writer = lock
            .write()
            .acquire()
            .wait(stage.lease() * 2)
            .await
            .unwrap();
        // For as long as the readers that were inside already.
        assert!(
            start.elapsed() <= stay + stage.slack(),
            "{:?}",
            start.elapsed()
        );
        sleep(stay).await;
        writer.release().await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
    while let Some(done) = others.join_next().await {
        done.unwrap();
    }
}

async fn writer_that_is_refused_in_the_readers_turn_asks_again_when_it_ends(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    // So long that they leave in the order in which they came: then no message wakes the writer.
    let stay = Duration::from_millis(100);
    let mut readers = flood(&one.rw_lock(KEY), stay, &stop);
    sleep(stay).await;
    let (start, writes) = (Instant::now(), stage.size(10, 30));
    for _ in 0..writes {
        let write = two.rw_lock(KEY).write().acquire().wait(stage.lease() * 2);
        write.run(sleep(stay / 4)).await.unwrap();
    }
    // A writer that did not ask until it had to renew its place would need twice as long at least.
    let a_third = Duration::from_secs(5) / 3;
    let took = start.elapsed();
    assert!(took <= a_third / 2 * writes + stage.slack(), "{took:?}");
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
}

async fn stream_of_writers_does_not_keep_readers_out(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for client in [&one, &one, &one, &two, &two, &two] {
        let (lock, stop, stay) = (client.rw_lock(KEY), Arc::clone(&stop), stage.part(300));
        writers.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                lock.write().acquire().run(sleep(stay)).await.unwrap();
            }
        });
    }
    stage
        .eventually("a crowd of writers", stage.lease(), async || {
            one.rw_lock(KEY).write().is_locked().await.unwrap()
        })
        .await;
    for lock in [one.rw_lock(KEY), two.rw_lock(KEY)] {
        for _ in 0..3 {
            let start = Instant::now();
            let reader = lock.read().acquire().wait(stage.lease() * 2).await.unwrap();
            // One client's run of hand-overs, and the holder that took the lock before it heard of the reader.
            let few = Duration::from_millis(50) + stage.part(300) * 3;
            assert!(
                start.elapsed() <= few + stage.slack(),
                "{:?}",
                start.elapsed()
            );
            reader.release().await.unwrap();
        }
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
}

async fn turn_of_a_writer_that_gives_up_ends_at_once(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let reader = lock.read().acquire().await.unwrap();
    for by_drop in [false, true] {
        let wait = stage.part(4);
        let start = Instant::now();
        let acquiring = lock.write().acquire().wait(wait);
        let writer = tokio::spawn(acquiring.into_future());
        turn_is_taken(stage, &other).await;
        let waiter = reading(&other);
        stage.waiting(&two, 1).await;
        sleep(wait / 2).await;
        assert!(!waiter.is_finished());
        if by_drop {
            writer.abort();
            drop(writer.await);
        } else {
            assert!(refused(writer.await.unwrap()).is_busy());
            stage.assert_took(start, wait);
        }
        let start = Instant::now();
        drop(waiter.await.unwrap());
        stage.assert_took(start, Duration::ZERO);
    }
    reader.release().await.unwrap();
}

async fn turn_is_kept_for_as_long_as_the_writer_waits(stage: &Stage) {
    let lock = stage.client().await.rw_lock(KEY);
    let other = stage.client().await.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    let writer = writing(&lock);
    turn_is_taken(stage, &other).await;
    // For longer than a sign of life lasts.
    for _ in 0..70 {
        sleep(Duration::from_millis(100)).await;
        assert!(!may_read(&other).await);
    }
    // A holder may enter again, by a try as well as with a wait.
    let body = async { lock.read().try_acquire().await.unwrap().is_some() };
    assert!(reader.scope(body).await.unwrap());
    reader.release().await.unwrap();
    writer.await.unwrap().release().await.unwrap();
}

async fn turn_of_a_writer_that_died_ends(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    let dead = dying(&client, Kind::Write).waiting(stage.part(3));
    let start = Instant::now();
    let held = dead.attempt(KEY, 1, stage.lease()).await.unwrap();
    assert!(matches!(held, Answer::Held(Some(_))));
    drop(lock.read().acquire().await.unwrap());
    stage.assert_took(start, stage.part(3));
    reader.release().await.unwrap();
}

on_every_backend![
    stream_of_readers_does_not_keep_writers_out,
    writer_that_is_refused_in_the_readers_turn_asks_again_when_it_ends,
    stream_of_writers_does_not_keep_readers_out,
    turn_of_a_writer_that_gives_up_ends_at_once,
    turn_is_kept_for_as_long_as_the_writer_waits,
    turn_of_a_writer_that_died_ends,
];

on_threads![stream_of_readers_does_not_keep_writers_out];
