//! The fair lock: the order of its grants, and the places in its queue.

mod leaving;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Error, Guard};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, end, refused};

const KEY: &str = "order:42";

/// An acquisition that waits in the next place of the queue when this answers.
async fn queued(stage: &Stage, client: &Client) -> JoinHandle<Result<Guard, Error>> {
    let before = stage.places(KEY).await;
    let waiter = tokio::spawn(client.fair_lock(KEY).acquire().into_future());
    stage.has_places(KEY, before + 1).await;
    waiter
}

/// A client whose waiters keep their places for this part of the lease.
async fn client_with_places(stage: &Stage, parts: u32, faulty: bool) -> Client {
    let faults = stage.faults().clone();
    stage
        .client_with(|builder| {
            let builder = builder.waiter_timeout(stage.part(parts));
            if faulty {
                builder.faults(&faults)
            } else {
                builder
            }
        })
        .await
}

async fn grants_follow_the_order_of_arrival_across_clients(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let held = clients[0].fair_lock(KEY).acquire().await.unwrap();
    let granted = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for n in 0..10 {
        let waiter = queued(stage, &clients[n % 2]).await;
        let granted = Arc::clone(&granted);
        waiters.push(tokio::spawn(async move {
            let guard = waiter.await.unwrap().unwrap();
            granted.lock().unwrap().push(n);
            guard.release().await.unwrap();
        }));
    }
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*granted.lock().unwrap(), Vec::from_iter(0..10));
}

async fn release_wakes_the_first_at_once(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    for client in [&one, &two] {
        for by_drop in [false, true] {
            let held = one.fair_lock(KEY).acquire().await.unwrap();
            let waiter = queued(stage, client).await;
            sleep(stage.part(5)).await;
            let start = Instant::now();
            end(held, by_drop).await;
            let guard = waiter.await.unwrap().unwrap();
            stage.assert_took(start, Duration::ZERO);
            guard.release().await.unwrap();
        }
    }
}

async fn single_tries_neither_overtake_nor_queue(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let held = one.fair_lock(KEY).acquire().await.unwrap();
    assert!(two.fair_lock(KEY).try_acquire().await.unwrap().is_none());
    let zero = two.fair_lock(KEY).acquire().wait(Duration::ZERO);
    assert!(refused(zero.await).is_busy());
    assert_eq!(stage.places(KEY).await, 0);
    // The one place that is left is of a waiter that hears of nothing for a while.
    let deaf = stage.faulty_client().await;
    let waiter = queued(stage, &deaf).await;
    stage
        .faults()
        .always(Op::Attempt, Fault::Delay(stage.part(20)));
    held.release().await.unwrap();
    assert!(one.fair_lock(KEY).try_acquire().await.unwrap().is_none());
    stage.faults().clear(Op::Attempt);
    waiter.await.unwrap().unwrap().release().await.unwrap();
    let free = one.fair_lock(KEY).try_acquire().await.unwrap();
    free.expect("nobody is left").release().await.unwrap();
}

async fn waiters_keep_their_places_for_as_long_as_they_wait(stage: &Stage) {
    let client = client_with_places(stage, 3, false).await;
    let held = client.fair_lock(KEY).acquire().await.unwrap();
    let (first, second) = (queued(stage, &client).await, queued(stage, &client).await);
    sleep(stage.lease() * 2).await;
    assert_eq!(stage.places(KEY).await, 2);
    held.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

async fn force_release_wakes_the_first(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let held = one.fair_lock(KEY).acquire().await.unwrap();
    let (first, second) = (queued(stage, &two).await, queued(stage, &one).await);
    sleep(stage.part(10)).await;
    let start = Instant::now();
    assert!(two.fair_lock(KEY).force_release().await.unwrap());
    let guard = first.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
    assert!(!second.is_finished());
    drop(held);
    guard.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

async fn end_of_a_lease_lets_the_first_in(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let start = Instant::now();
    let lease = stage.part(2);
    let held = one.fair_lock(KEY).acquire().lease(lease).await.unwrap();
    let (first, second) = (queued(stage, &two).await, queued(stage, &one).await);
    let guard = first.await.unwrap().unwrap();
    stage.assert_took(start, lease);
    drop(held);
    guard.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

async fn end_of_a_short_lease_granted_from_the_queue_lets_the_next_in(stage: &Stage) {
    let (client, brief) = (
        stage.client().await,
        stage.part(10).min(Duration::from_millis(200)),
    );
    let held = client.fair_lock(KEY).acquire().await.unwrap();
    let first = tokio::spawn(client.fair_lock(KEY).acquire().lease(brief).into_future());
    stage.has_places(KEY, 1).await;
    let second = queued(stage, &client).await;
    held.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    let start = Instant::now();
    let second = second.await.unwrap().unwrap();
    stage.assert_took(start, brief);
    assert!(!first.is_held());
    second.release().await.unwrap();
}

async fn nested_acquisition_enters_again_and_does_not_queue(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let lock = one.fair_lock(KEY);
    let outer = lock.acquire().await.unwrap();
    let waiter = queued(stage, &two).await;
    let body = async {
        let inner = lock.acquire().await.unwrap();
        assert_eq!(inner.owner(), outer.owner());
        assert_eq!(lock.hold_count().await.unwrap(), 2);
        assert!(
            lock.try_acquire().await.unwrap().is_none(),
            "its sibling is inside"
        );
        inner.release().await.unwrap();
        lock.acquire().run(async {}).await.unwrap();
        assert_eq!(stage.places(KEY).await, 1);
    };
    outer.scope(body).await.unwrap();
    assert!(!waiter.is_finished());
    outer.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn non_reentrant_one_is_never_entered_twice(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.non_reentrant_fair_lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let waiter = queued(stage, &client).await;
    let again = guard.scope(async { lock.acquire().await }).await.unwrap();
    assert!(refused(again).is_permanent() && refused(guard.reenter()).is_permanent());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn plain_and_fair_locks_of_one_key_exclude_each_other(stage: &Stage) {
    let (one, two) = (
        stage.client().await,
        client_with_places(stage, 6, false).await,
    );
    let plain = one.lock(KEY).acquire().await.unwrap();
    assert!(two.fair_lock(KEY).try_acquire().await.unwrap().is_none());
    let waiter = queued(stage, &two).await;
    // Nobody tells it: it finds out when it gives its next sign of life.
    let start = Instant::now();
    plain.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(start.elapsed() <= stage.part(18) + stage.slack());
    assert!(one.lock(KEY).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn force_release_leaves_what_is_no_lock(stage: &Stage) {
    let client = stage.client().await;
    let semaphore = client.semaphore(KEY);
    semaphore.try_set_permits(3).await.unwrap();
    let error = refused(client.fair_lock(KEY).force_release().await);
    assert!(matches!(error, Error::WrongType { .. }), "{error}");
    assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    assert!(semaphore.delete().await.unwrap());
}

on_every_backend![
    force_release_leaves_what_is_no_lock,
    grants_follow_the_order_of_arrival_across_clients,
    release_wakes_the_first_at_once,
    single_tries_neither_overtake_nor_queue,
    waiters_keep_their_places_for_as_long_as_they_wait,
    force_release_wakes_the_first,
    end_of_a_lease_lets_the_first_in,
    end_of_a_short_lease_granted_from_the_queue_lets_the_next_in,
    nested_acquisition_enters_again_and_does_not_queue,
    non_reentrant_one_is_never_entered_twice,
    plain_and_fair_locks_of_one_key_exclude_each_other,
];
