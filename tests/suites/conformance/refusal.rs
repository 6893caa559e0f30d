//! Whom a refusal names, where a lock has several holders, or none.

use std::time::Duration;

use distlock::{Error, HeldBy};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

/// The holder that a refusal names.
fn holder(error: Error) -> Option<HeldBy> {
    match error {
        Error::Timeout { holder, .. } => holder.map(|holder| *holder),
        other => panic!("{other}"),
    }
}

async fn writer_is_told_of_one_reader_and_how_many_others(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(one.rw_lock(KEY).read().acquire().await.unwrap());
        let write = two.rw_lock(KEY).write().acquire().wait(Duration::ZERO);
        let error = refused(write.await);
        let held = holder(error.clone()).unwrap();
        let owners: Vec<_> = readers
            .iter()
            .map(|reader| reader.owner().to_string())
            .collect();
        assert!(owners.contains(&held.owner), "{error}");
        assert_eq!(held.others, readers.len() as u64 - 1, "{error}");
    }
    for reader in readers {
        reader.release().await.unwrap();
    }
}

async fn reader_is_told_of_the_writer(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let writer = one.rw_lock(KEY).write().acquire().await.unwrap();
    let read = two.rw_lock(KEY).read().acquire().wait(Duration::ZERO);
    let held = holder(refused(read.await)).unwrap();
    assert_eq!((held.owner, held.others), (writer.owner().to_string(), 0));
    // So is a lock of another kind that has the same data.
    let plain = two.lock(KEY).acquire().wait(Duration::ZERO);
    let _other_kind = holder(refused(plain.await));
    writer.release().await.unwrap();
}

async fn key_that_stays_taken_without_a_holder_names_nobody(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let least = one.lock(KEY).acquire().hold_at_least(stage.lease());
    least.await.unwrap().release().await.unwrap();
    let error = refused(two.lock(KEY).acquire().wait(Duration::ZERO).await);
    assert_eq!(holder(error), None);
}

async fn waiter_of_the_same_client_is_told_of_its_own_hold(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    let waiter = client.lock(KEY).acquire().wait(stage.part(6));
    let held = holder(refused(waiter.await)).unwrap();
    assert_eq!((held.owner, held.others), (guard.owner().to_string(), 0));
    guard.release().await.unwrap();
}

async fn semaphore_names_nobody(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    one.semaphore(KEY).try_set_permits(1).await.unwrap();
    let permit = one.semaphore(KEY).acquire().await.unwrap();
    let error = refused(two.semaphore(KEY).acquire().wait(Duration::ZERO).await);
    assert_eq!(holder(error), None);
    permit.release().await.unwrap();
    assert!(one.semaphore(KEY).delete().await.unwrap());
}

on_every_backend![
    writer_is_told_of_one_reader_and_how_many_others,
    reader_is_told_of_the_writer,
    key_that_stays_taken_without_a_holder_names_nobody,
    waiter_of_the_same_client_is_told_of_its_own_hold,
    semaphore_names_nobody,
];
