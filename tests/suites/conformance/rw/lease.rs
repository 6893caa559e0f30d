//! Leases of readers: each has its own, renewed or not, and the key stays for as long as the longest.

use std::time::Duration;

use distlock::Guard;
use distlock::test_util::{Answer, Kind};
use tokio::time::{Instant, sleep};

use super::{KEY, dying, may_write, writing};
use crate::conformance::stage::{Stage, refused};

async fn each_reader_has_a_lease_of_its_own(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let start = Instant::now();
    let short = lock.read().acquire().lease(stage.part(3)).await.unwrap();
    let long = other.read().acquire().lease(stage.lease()).await.unwrap();
    let writer = writing(&lock);
    short.lost().await;
    stage.assert_took(start, stage.part(3));
    assert!(long.is_held());
    stage
        .eventually("one reader", stage.part(3), async || {
            lock.read().holders().await.unwrap().len() == 1
        })
        .await;
    let writer = writer.await.unwrap();
    stage.assert_took(start, stage.lease());
    assert!(!long.is_held());
    drop((short, long, writer));
}

async fn readers_are_renewed_and_end_as_all_that_is_held(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let readers = [
        lock.read().acquire().await.unwrap(),
        lock.read().acquire().await.unwrap(),
        other.read().acquire().await.unwrap(),
    ];
    let end = Instant::now() + stage.lease() * 3;
    while Instant::now() < end {
        assert!(!may_write(&other).await);
        assert_eq!(other.read().hold_count().await.unwrap(), 3);
        sleep(stage.part(5)).await;
    }
    assert!(readers.iter().all(Guard::is_held));
    let start = Instant::now();
    let brief = lock.read().acquire().lease(stage.part(4)).await.unwrap();
    let cut = brief.scope(std::future::pending::<()>()).await;
    assert!(refused(cut).is_lost());
    stage.assert_took(start, stage.part(4));
    assert!(refused(brief.release().await).is_lost());
    for reader in readers {
        assert!(reader.is_held());
        reader.release().await.unwrap();
    }
    assert!(may_write(&other).await);
}

async fn reader_that_died_is_kept_alive_by_nobody(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock(KEY);
    let dead = dying(&client, Kind::Read);
    let granted = dead.attempt(KEY, 1, stage.part(3)).await.unwrap();
    assert_eq!(granted, Answer::Granted);
    // Renewed long after the end of the other.
    let reader = lock.read().acquire().await.unwrap();
    assert_eq!(lock.read().holders().await.unwrap().len(), 2);
    sleep(stage.lease() * 2).await;
    assert_eq!(lock.read().holders().await.unwrap().len(), 1);
    let renewed = dead.renew(&[(KEY, 1, 1, stage.lease())]).await.unwrap();
    assert_eq!(renewed, Answer::Renewed(vec![false]));
    let writer = writing(&lock);
    stage.waiting(&client, 1).await;
    let start = Instant::now();
    reader.release().await.unwrap();
    drop(writer.await.unwrap());
    stage.assert_took(start, Duration::ZERO);
}

async fn release_leaves_the_lock_for_as_long_as_the_longest_reader(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock(KEY);
    let dead = dying(&client, Kind::Read);
    let long = lock
        .read()
        .acquire()
        .lease(stage.lease() * 4)
        .await
        .unwrap();
    dead.attempt(KEY, 1, stage.part(3)).await.unwrap();
    let start = Instant::now();
    long.release().await.unwrap();
    // Nobody told of its end: the lease did.
    drop(lock.write().acquire().await.unwrap());
    stage.assert_took(start, stage.part(3));
}

on_every_backend![
    each_reader_has_a_lease_of_its_own,
    readers_are_renewed_and_end_as_all_that_is_held,
    reader_that_died_is_kept_alive_by_nobody,
    release_leaves_the_lock_for_as_long_as_the_longest_reader,
];
