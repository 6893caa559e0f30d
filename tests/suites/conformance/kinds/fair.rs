//! The fair lock: the order of its grants, and the places in its queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Blocker, Client, Error, Guard};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, drop_after, end, refused};

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

/// Ends a waiter as a crash would: nothing of it reaches the server any more, until the faults are cleared.
async fn kill(stage: &Stage, waiter: JoinHandle<Result<Guard, Error>>) {
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    stage.faults().always(Op::Release, Fault::FailBefore);
    waiter.abort();
    drop(waiter.await);
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

async fn waiter_that_leaves_gives_up_its_place_at_once(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let held = one.fair_lock(KEY).acquire().await.unwrap();
    let first = queued(stage, &two).await;
    // In real time a busy machine must have seen it wait before it gives up.
    let wait = if stage.is_paused() {
        stage.part(4)
    } else {
        stage.lease() * 3
    };
    let waiting = two.fair_lock(KEY).acquire().wait(wait);
    let timed = tokio::spawn(waiting.into_future());
    stage.has_places(KEY, 2).await;
    let last = queued(stage, &one).await;
    let start = Instant::now();
    first.abort();
    stage.has_places(KEY, 2).await;
    let error = refused(timed.await.unwrap());
    let behind_the_holder = matches!(
        error,
        Error::Timeout {
            blocker: Blocker::Owner(Some(_)),
            ..
        }
    );
    assert!(behind_the_holder, "{error}");
    assert!(start.elapsed() <= wait + stage.slack());
    stage.has_places(KEY, 1).await;
    let start = Instant::now();
    held.release().await.unwrap();
    let guard = last.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
    guard.release().await.unwrap();
}

async fn first_that_leaves_a_free_lock_wakes_the_next(stage: &Stage) {
    let (one, two) = (stage.faulty_client().await, stage.client().await);
    let held = two.fair_lock(KEY).acquire().await.unwrap();
    let first = queued(stage, &one).await;
    let second = queued(stage, &two).await;
    // Its attempts do not get through, so it is the first of a free lock until it goes.
    stage.faults().always(Op::Attempt, Fault::Never);
    held.release().await.unwrap();
    sleep(stage.part(50)).await;
    assert!(!second.is_finished());
    let start = Instant::now();
    first.abort();
    let guard = second.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
    stage.faults().clear(Op::Attempt);
    guard.release().await.unwrap();
}

async fn killed_waiters_delay_the_others_once(stage: &Stage) {
    let (dying, other) = (
        client_with_places(stage, 3, true).await,
        client_with_places(stage, 3, false).await,
    );
    let held = other.fair_lock(KEY).acquire().await.unwrap();
    let mut dead = Vec::new();
    for _ in 0..3 {
        dead.push(queued(stage, &dying).await);
    }
    let living = [queued(stage, &other).await, queued(stage, &other).await];
    let start = Instant::now();
    for waiter in dead {
        kill(stage, waiter).await;
    }
    held.release().await.unwrap();
    for waiter in living {
        let guard = waiter.await.unwrap().unwrap();
        assert!(start.elapsed() <= stage.part(3) + stage.slack());
        guard.release().await.unwrap();
    }
    if stage.is_paused() {
        // Between two signs of life, no sooner and no later.
        assert!(start.elapsed() >= stage.part(3) - stage.part(9));
    }
    stage.faults().clear(Op::Attempt);
    stage.faults().clear(Op::Release);
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

async fn hundred_waiters_go_in_order_whoever_leaves(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..stage.rounds(20) {
        let held = clients[0].fair_lock(KEY).acquire().await.unwrap();
        let (granted, all_queue) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (mut tasks, mut stay) = (JoinSet::new(), Vec::new());
        for n in 0..100 {
            let acquire = clients[random.random_range(0..2)].fair_lock(KEY).acquire();
            let leaves_after = random
                .random_bool(0.3)
                .then(|| stage.part(2_000) * random.random_range(0..80));
            stay.extend(leaves_after.is_none().then_some(n));
            let (granted, all_queue) = (Arc::clone(&granted), Arc::clone(&all_queue));
            tasks.spawn(async move {
                let leave = async {
                    all_queue.notified().await;
                    match leaves_after {
                        Some(time) => sleep(time).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = leave => {}
                    guard = acquire => {
                        granted.lock().unwrap().push(n);
                        sleep(Duration::from_millis(1)).await;
                        guard.unwrap().release().await.unwrap();
                    }
                }
            });
            stage.has_places(KEY, n + 1).await;
        }
        all_queue.notify_waiters();
        held.release().await.unwrap();
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let granted = granted.lock().unwrap();
        assert!(granted.is_sorted(), "{granted:?}");
        assert!(stay.iter().all(|n| granted.contains(n)), "{granted:?}");
    }
}

async fn waiter_dropped_at_any_point_leaves_nothing(stage: &Stage) {
    let (one, two) = (stage.faulty_client().await, stage.client().await);
    for slow in [false, true] {
        let mut polls = 0;
        loop {
            let held = two.fair_lock(KEY).acquire().await.unwrap();
            let release = async {
                sleep(stage.part(100)).await;
                held.release().await.unwrap();
            };
            if slow {
                let fault = Fault::DelayReply(stage.part(200));
                stage.faults().always(Op::Attempt, fault);
            }
            let acquiring = drop_after(polls, one.fair_lock(KEY).acquire().into_future());
            let (acquired, ()) = tokio::join!(acquiring, release);
            let done = acquired.is_some();
            drop(acquired);
            stage.faults().clear(Op::Attempt);
            stage.is_quiet_within(stage.part(10)).await;
            if done {
                assert!(polls >= 2, "it never waited");
                break;
            }
            polls += 1;
        }
    }
}

async fn attempts_of_unknown_outcome_take_one_place(stage: &Stage) {
    let (one, two) = (stage.faulty_client().await, stage.client().await);
    for fault in [Fault::FailAfter, Fault::FailBefore, Fault::Double] {
        let held = two.fair_lock(KEY).acquire().await.unwrap();
        stage.faults().next(Op::Attempt, fault);
        let first = queued(stage, &one).await;
        let second = queued(stage, &two).await;
        sleep(stage.part(10)).await;
        assert_eq!(stage.places(KEY).await, 2);
        stage.faults().next(Op::Attempt, fault);
        held.release().await.unwrap();
        first.await.unwrap().unwrap().release().await.unwrap();
        second.await.unwrap().unwrap().release().await.unwrap();
        stage.is_quiet_within(stage.part(10)).await;
    }
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
    waiter_that_leaves_gives_up_its_place_at_once,
    first_that_leaves_a_free_lock_wakes_the_next,
    killed_waiters_delay_the_others_once,
    waiters_keep_their_places_for_as_long_as_they_wait,
    force_release_wakes_the_first,
    end_of_a_lease_lets_the_first_in,
    end_of_a_short_lease_granted_from_the_queue_lets_the_next_in,
    nested_acquisition_enters_again_and_does_not_queue,
    non_reentrant_one_is_never_entered_twice,
    plain_and_fair_locks_of_one_key_exclude_each_other,
    hundred_waiters_go_in_order_whoever_leaves,
    waiter_dropped_at_any_point_leaves_nothing,
    attempts_of_unknown_outcome_take_one_place,
];
