//! The waiter limits: for one key, and for all keys of a client.

use distlock::test_util::sizes;

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "job";

async fn one_waiter_too_many_is_refused_at_once(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let held = lock.acquire().max_waiters(0).await.unwrap();
    let error = refused(lock.acquire().max_waiters(0).await);
    assert!(error.is_overloaded(), "{error}");
    let first = tokio::spawn(lock.acquire().max_waiters(2).into_future());
    let second = tokio::spawn(lock.acquire().max_waiters(2).into_future());
    stage.waiting(&client, 2).await;
    assert_eq!(sizes(&client).waiter_slots, 2);
    let third = refused(lock.acquire().max_waiters(2).await);
    assert!(third.is_overloaded() && third.to_string().contains("2 already waiting"));
    let elsewhere = client.lock("other").acquire().max_waiters(2);
    elsewhere.run(async {}).await.unwrap();
    first.abort();
    stage.waiting(&client, 1).await;
    let fourth = tokio::spawn(lock.acquire().max_waiters(2).into_future());
    stage.waiting(&client, 2).await;
    assert!(refused(lock.acquire().max_waiters(2).await).is_overloaded());
    held.release().await.unwrap();
    for waiter in [second, fourth] {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn waiter_for_several_keys_counts_at_the_key_that_it_waits_for(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let a = other.lock("a").acquire().await.unwrap();
    let b = other.lock("b").acquire().await.unwrap();
    let both = client.multi_lock(["a", "b"]).acquire().max_waiters(1);
    let both = tokio::spawn(both.into_future());
    stage.waiting(&client, 1).await;
    let of_b = tokio::spawn(client.lock("b").acquire().max_waiters(1).into_future());
    stage.waiting(&client, 2).await;
    a.release().await.unwrap();
    // It goes to the queue of the other key, and is not one too many there: it has waited.
    let gone = async || client.lock("a").acquire().max_waiters(0).await.is_ok();
    stage
        .eventually("nobody waits for a", stage.lease(), gone)
        .await;
    let one_more = refused(client.lock("b").acquire().max_waiters(2).await);
    assert!(one_more.is_overloaded(), "{one_more}");
    b.release().await.unwrap();
    // It came before the other waiter.
    both.await.unwrap().unwrap().release().await.unwrap();
    of_b.await.unwrap().unwrap().release().await.unwrap();
}

async fn waiters_of_all_keys_are_bounded_together(stage: &Stage) {
    let set = |builder: distlock::Builder| builder.max_waiters(5).max_total_waiters(2);
    let client = stage.client_with(set).await;
    let keys = ["a", "b", "c"];
    let held = client.multi_lock(keys).acquire().await.unwrap();
    let first = tokio::spawn(client.lock("a").acquire().into_future());
    // In the server's own queue, and in none of this client.
    let second = tokio::spawn(client.fair_lock("b").acquire().into_future());
    stage.waiting(&client, 1).await;
    stage.has_places("b", 1).await;
    let third = refused(client.multi_lock(["c", "d"]).acquire().await);
    assert!(third.is_overloaded(), "{third}");
    held.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

on_every_backend! {
    one_waiter_too_many_is_refused_at_once,
    waiters_of_all_keys_are_bounded_together,
}

in_one_slot! {
    waiter_for_several_keys_counts_at_the_key_that_it_waits_for,
}
