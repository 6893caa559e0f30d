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
        assert!(owners.contains(&held.owner.unwrap()), "{error}");
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
    assert_eq!(
        (held.owner, held.others),
        (Some(writer.owner().to_string()), 0)
    );
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
    let named = stage.client_with(|builder| builder.name("orders-1"));
    let (client, other) = (named.await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let waiter = client.lock(KEY).acquire().wait(stage.part(6));
    let single = client.lock(KEY).acquire().wait(Duration::ZERO);
    for error in [refused(waiter.await), refused(single.await)] {
        let owner = guard.owner().to_string();
        let told = format!("; held by this client, orders-1: owner {owner}");
        assert!(error.to_string().ends_with(&told), "{error}");
        let held = holder(error).unwrap();
        assert_eq!((held.owner, held.others), (Some(owner), 0));
    }
    let beside = other.lock(KEY).acquire().wait(Duration::ZERO).await;
    assert_eq!(holder(refused(beside)).unwrap().client, None);
    guard.release().await.unwrap();
}

async fn holder_whose_client_an_earlier_report_has_named_is_named_in_the_refusal(stage: &Stage) {
    let named = stage.client_with(|builder| builder.name("web-2")).await;
    let client = stage.client().await;
    let guard = named.lock(KEY).acquire().await.unwrap();
    let told = async || {
        let waiter = client.lock(KEY).acquire().wait(stage.part(6));
        let single = client.lock(KEY).acquire().wait(Duration::ZERO);
        [refused(waiter.await), refused(single.await)]
    };
    let owner = guard.owner();
    for error in told().await {
        let text = format!("; held by owner {owner}");
        assert!(error.to_string().ends_with(&text), "{error}");
    }
    client.inspect(KEY).await.unwrap();
    for error in told().await {
        let text = format!("; held by web-2, owner {owner}");
        assert!(error.to_string().ends_with(&text), "{error}");
        assert_eq!(holder(error).unwrap().client.as_deref(), Some("web-2"));
    }
    guard.release().await.unwrap();
}

async fn semaphores_say_how_many_hold_their_permits_and_name_nobody(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (plain, other) = (one.semaphore(KEY), two.semaphore(KEY));
    plain.try_set_permits(3).await.unwrap();
    let first = plain.acquire().await.unwrap();
    let second = other.acquire_many(2).await.unwrap();
    let error = refused(other.acquire().wait(Duration::ZERO).await);
    assert!(error.to_string().ends_with("; held by 2 owners"), "{error}");
    let held = holder(error).unwrap();
    assert_eq!((held.owner, held.others), (None, 2));
    first.release().await.unwrap();
    let error = refused(other.acquire_many(2).wait(stage.part(6)).await);
    assert!(
        error.to_string().ends_with("; held by one owner"),
        "{error}"
    );
    second.release().await.unwrap();
    assert!(plain.delete().await.unwrap());
    let (expirable, other) = (one.expirable_semaphore(KEY), two.expirable_semaphore(KEY));
    expirable.try_set_permits(3).await.unwrap();
    let three = expirable.acquire_many(3).await.unwrap();
    let error = refused(other.acquire().wait(Duration::ZERO).await);
    let told = "; held by the owners of 3 permits";
    assert!(error.to_string().ends_with(told), "{error}");
    three.release().await.unwrap();
    assert!(expirable.delete().await.unwrap());
}

on_every_backend![
    writer_is_told_of_one_reader_and_how_many_others,
    reader_is_told_of_the_writer,
    key_that_stays_taken_without_a_holder_names_nobody,
    waiter_of_the_same_client_is_told_of_its_own_hold,
    holder_whose_client_an_earlier_report_has_named_is_named_in_the_refusal,
    semaphores_say_how_many_hold_their_permits_and_name_nobody,
];
