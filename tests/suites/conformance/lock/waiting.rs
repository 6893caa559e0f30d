//! Waiting: what wakes a waiter, when a wait ends, and what many waiters cost.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Blocker, Error};
use distlock_tests::faults::{Fault, Op};
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, end, is_done_within, refused};

const KEY: &str = "order:42";

async fn waiter_gets_the_lock_when_another_client_releases(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    for by_drop in [false, true] {
        let held = one.lock(KEY).acquire().await.unwrap();
        let waiter = tokio::spawn(two.lock(KEY).acquire().into_future());
        stage.waiting(&two, 1).await;
        sleep(stage.part(2)).await;
        assert!(!waiter.is_finished());
        let start = Instant::now();
        end(held, by_drop).await;
        let guard = waiter.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        guard.release().await.unwrap();
    }
}

async fn waiter_gets_the_lock_when_the_lease_ends_without_a_word(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    for local in [true, false] {
        let start = Instant::now();
        let held = one.lock(KEY).acquire().lease(stage.part(3)).await.unwrap();
        let waiting = if local { &one } else { &two };
        let guard = waiting.lock(KEY).acquire().await.unwrap();
        stage.assert_took(start, stage.part(3));
        drop(held);
        guard.release().await.unwrap();
    }
}

async fn waiter_gets_the_lock_when_it_is_force_released(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    for local in [false, true] {
        let held = one.lock(KEY).acquire().await.unwrap();
        let waiting = if local { &one } else { &two };
        let waiter = tokio::spawn(waiting.lock(KEY).acquire().into_future());
        stage.waiting(waiting, 1).await;
        sleep(stage.part(10)).await;
        let start = Instant::now();
        assert!(two.lock(KEY).force_release().await.unwrap());
        let guard = waiter.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        assert!(guard.is_held());
        drop(held);
        guard.release().await.unwrap();
    }
}

async fn waits_end_on_time_wherever_the_waiter_stands(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let lock = client.lock(KEY);
    let start = Instant::now();
    let waits = (1..=20).map(|n| {
        let wait = stage.part(20) * n;
        let acquiring = lock.acquire().wait(wait).into_future();
        async move {
            let error = refused(acquiring.await);
            stage.assert_took(start, wait);
            error
        }
    });
    // The first to come has the shortest wait, and so each of them ends as the head or just behind.
    let errors = join_all(waits).await;
    assert!(errors.iter().all(Error::is_busy));
    held.release().await.unwrap();
}

async fn waiter_behind_others_is_told_so(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let lock = client.lock(KEY);
    let first = tokio::spawn(lock.acquire().into_future());
    stage.waiting(&client, 1).await;
    let error = refused(lock.acquire().wait(stage.part(10)).await);
    let Error::Timeout {
        blocker: Blocker::Queue(Some(left)),
        ..
    } = &error
    else {
        panic!("{error}")
    };
    // What the first in line has heard of the holder's lease.
    assert!(!left.is_zero() && *left <= stage.lease(), "{left:?}");
    let queue = r#"waiting for "order:42", behind other waiters of this client"#;
    assert!(error.to_string().contains(queue), "{error}");
    held.release().await.unwrap();
    drop(first.await.unwrap().unwrap());
}

async fn waiter_with_a_short_wait_does_not_take_the_place_of_those_behind(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let lock = client.lock(KEY);
    let short = tokio::spawn(lock.acquire().wait(stage.part(10)).into_future());
    stage.waiting(&client, 1).await;
    let long = tokio::spawn(lock.acquire().into_future());
    assert!(refused(short.await.unwrap()).is_busy());
    let start = Instant::now();
    held.release().await.unwrap();
    let guard = long.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
    guard.release().await.unwrap();
}

async fn head_that_is_cancelled_unanswered_makes_way_for_the_next(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let lock = client.lock(KEY);
    stage.faults().always(Op::Attempt, Fault::Never);
    let first = tokio::spawn(lock.acquire().into_future());
    stage.waiting(&client, 1).await;
    let second = tokio::spawn(lock.acquire().into_future());
    stage.waiting(&client, 2).await;
    first.abort();
    stage.faults().clear(Op::Attempt);
    held.release().await.unwrap();
    let guard = second.await.unwrap().unwrap();
    guard.release().await.unwrap();
}

async fn crowd_is_served_one_by_one_at_a_bounded_cost(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let crowd = 1_000;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..crowd {
        let acquiring = client.lock(KEY).acquire().into_future();
        tasks.spawn(async move { acquiring.await.unwrap().release().await.unwrap() });
    }
    stage.waiting(&client, crowd).await;
    assert!(stage.faults().calls(Op::Attempt) <= 2, "only the head asks");
    held.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let asked = stage.faults().calls(Op::Attempt) + stage.faults().calls(Op::Release);
    assert!(asked <= 3 * crowd, "{asked} commands for {crowd} grants");
}

async fn crowd_with_random_waits_leaves_no_waiter_behind(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let seed = rand::random();
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let lock = client.lock(KEY);
    // On a cluster it now has a connection for the key.
    assert!(lock.is_locked().await.unwrap());
    let waits = (0..2_000).map(|n| {
        // The first one has time for an answer of the server; of the others each knows that it stands behind.
        let parts = if n == 0 {
            50
        } else {
            random.random_range(1..50)
        };
        let wait = stage.part(1_000) * parts;
        lock.acquire().wait(wait).into_future()
    });
    let ended = join_all(waits).await;
    assert!(ended.into_iter().all(|ended| refused(ended).is_busy()));
    assert_eq!(sizes(&client).waiters, 0);
    held.release().await.unwrap();
}

async fn waiters_of_two_clients_on_many_keys_all_get_in(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..200 {
        let lock = clients[n % 2].lock(format!("k:{}", n % 20));
        let stay = stage.part(100);
        tasks.spawn(async move { lock.acquire().run(sleep(stay)).await.unwrap() });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn word_that_comes_between_the_try_and_the_sleep_is_not_missed(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    for n in 0..200 {
        let held = one.lock(KEY).acquire().await.unwrap();
        let waiter = tokio::spawn(two.lock(KEY).acquire().into_future());
        for _ in 0..n % 20 {
            tokio::task::yield_now().await;
        }
        held.release().await.unwrap();
        let start = Instant::now();
        let guard = waiter.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        guard.release().await.unwrap();
    }
}

async fn word_that_comes_before_the_waiter_listens_is_not_missed(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.faulty_client().await);
    let slow = stage.part(20);
    let held = one.lock(KEY).acquire().await.unwrap();
    stage.faults().next(Op::Attempt, Fault::DelayReply(slow));
    let start = Instant::now();
    let waiter = tokio::spawn(two.lock(KEY).acquire().into_future());
    sleep(slow / 2).await;
    // Refused already, and not listening yet.
    held.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    stage.assert_took(start, slow);
    guard.release().await.unwrap();
}

async fn task_that_waits_for_itself_is_freed_by_its_wait(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let task = tokio::spawn(async move {
        let held = lock.acquire().await.unwrap();
        assert!(!is_done_within(Duration::from_millis(50), lock.acquire().into_future()).await);
        held
    });
    task.await.unwrap().release().await.unwrap();
}

on_every_backend![
    waiter_gets_the_lock_when_another_client_releases,
    waiter_gets_the_lock_when_the_lease_ends_without_a_word,
    waiter_gets_the_lock_when_it_is_force_released,
    waits_end_on_time_wherever_the_waiter_stands,
    waiter_behind_others_is_told_so,
    waiter_with_a_short_wait_does_not_take_the_place_of_those_behind,
    head_that_is_cancelled_unanswered_makes_way_for_the_next,
    crowd_is_served_one_by_one_at_a_bounded_cost,
    crowd_with_random_waits_leaves_no_waiter_behind,
    waiters_of_two_clients_on_many_keys_all_get_in,
    word_that_comes_between_the_try_and_the_sleep_is_not_missed,
    word_that_comes_before_the_waiter_listens_is_not_missed,
    task_that_waits_for_itself_is_freed_by_its_wait,
];

in_every_run![
    waiter_gets_the_lock_when_another_client_releases,
    waiter_gets_the_lock_when_the_lease_ends_without_a_word,
    waits_end_on_time_wherever_the_waiter_stands,
    crowd_is_served_one_by_one_at_a_bounded_cost,
    waiters_of_two_clients_on_many_keys_all_get_in,
];
