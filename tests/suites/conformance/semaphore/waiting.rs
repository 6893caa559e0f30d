//! Waiters for permits of a semaphore: which waiters are woken, in which order, and also where the message was missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Blocker, Client, Error, Permit};
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, conserved, delete, pool};
use crate::conformance::stage::{Stage, refused};

async fn permit_that_is_given_back_goes_to_a_waiter_at_once(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let pool = pool(&one, 1).await;
    for (holder, waiter) in [(&one, &two), (&one, &one), (&two, &one)] {
        let permit = holder.semaphore(KEY).acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.semaphore(KEY).acquire().into_future());
        stage.waiting(waiter, 1).await;
        sleep(stage.part(100)).await;
        let start = Instant::now();
        permit.release().await.unwrap();
        let permit = waiting.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        assert_eq!(pool.available_permits().await.unwrap(), 0);
        drop(permit);
        conserved(stage, &[&one, &two], 1).await;
    }
    delete(&one).await;
}

async fn as_many_waiters_are_woken_as_there_are_permits(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let pool = pool(&one, 0).await;
    let mut waiting = Vec::new();
    for client in [&one, &one, &two, &two, &two] {
        waiting.push(tokio::spawn(client.semaphore(KEY).acquire().into_future()));
    }
    stage.waiting(&one, 2).await;
    stage.waiting(&two, 3).await;
    sleep(stage.part(100)).await;
    let start = Instant::now();
    pool.add_permits(4).await.unwrap();
    let left = async || sizes(&one).waiters + sizes(&two).waiters == 1;
    stage.eventually("one waits", Duration::ZERO, left).await;
    if stage.is_paused() {
        stage.assert_took(start, Duration::ZERO);
    }
    pool.add_permits(1).await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    conserved(stage, &[&one, &two], 5).await;
    delete(&one).await;
}

async fn waiter_for_many_is_not_overtaken_by_those_for_one(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, 3).await;
    let held: Vec<Permit> = [
        pool.acquire().await.unwrap(),
        pool.acquire().await.unwrap(),
        pool.acquire().await.unwrap(),
    ]
    .into();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (n, permits) in [3, 1, 1, 2].into_iter().enumerate() {
        let (acquire, order) = (pool.acquire_many(permits), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let permits = acquire.await.unwrap();
            order.lock().unwrap().push(permits.permits());
            sleep(Duration::from_millis(1)).await;
            permits.release().await.unwrap();
        }));
        stage.waiting(&client, n + 1).await;
    }
    let mut newcomer = None;
    for permit in held {
        permit.release().await.unwrap();
        sleep(stage.part(100)).await;
        // One is free now, and yet not for those behind.
        if newcomer.is_none() {
            newcomer = Some(tokio::spawn(pool.acquire().into_future()));
            stage.waiting(&client, 5).await;
        }
    }
    let last = newcomer.unwrap().await.unwrap().unwrap();
    last.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(order.lock().unwrap()[0], 3);
    conserved(stage, &[&client], 3).await;
    delete(&client).await;
}

async fn waiter_that_gives_up_passes_its_turn_on(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, 1).await;
    let held = pool.acquire().await.unwrap();
    let first = tokio::spawn(pool.acquire_many(2).wait(stage.part(10)).into_future());
    stage.waiting(&client, 1).await;
    let second = tokio::spawn(pool.acquire().into_future());
    stage.waiting(&client, 2).await;
    held.release().await.unwrap();
    // One is free, and the first in line wants two.
    assert!(refused(first.await.unwrap()).is_busy());
    second.await.unwrap().unwrap().release().await.unwrap();
    conserved(stage, &[&client], 1).await;
    delete(&client).await;
}

/// As after a restart without the data.
async fn waiters_of_a_semaphore_that_is_gone_are_told(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let permit = pool(&one, 1).await.acquire().await.unwrap();
    let wait = |client: &Client| tokio::spawn(client.semaphore(KEY).acquire().into_future());
    let waiting = [wait(&one), wait(&one), wait(&one), wait(&two)];
    stage.waiting(&one, 3).await;
    stage.waiting(&two, 1).await;
    sleep(stage.part(20)).await;
    stage.wipe().await;
    for waiting in waiting {
        // They ask again every 5 s.
        let told = timeout(Duration::from_secs(5) + stage.slack(), waiting).await;
        let error = refused(told.expect("told").unwrap());
        assert!(error.to_string().contains("its number is gone"), "{error}");
        assert!(error.is_lost());
    }
    assert!(refused(permit.release().await).is_lost());
    // An acquisition that begins now waits for a new semaphore.
    let waiting = wait(&two);
    stage.waiting(&two, 1).await;
    sleep(stage.part(20)).await;
    drop(pool(&one, 1).await);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    conserved(stage, &[&one, &two], 1).await;
    delete(&one).await;
}

/// Also behind one that has waited since before, and notices the deletion later.
async fn acquisition_that_begins_after_a_deletion_waits_for_new_permits(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, 1).await;
    let _gone = pool.acquire().await.unwrap();
    let first = tokio::spawn(pool.acquire().into_future());
    stage.waiting(&client, 1).await;
    sleep(stage.part(20)).await;
    delete(&client).await;
    sleep(stage.part(20)).await;
    let second = tokio::spawn(pool.acquire().into_future());
    stage.waiting(&client, 2).await;
    let told = timeout(Duration::from_secs(5) + stage.slack(), first).await;
    assert!(refused(told.expect("told").unwrap()).is_lost());
    sleep(stage.part(20)).await;
    assert!(pool.try_set_permits(1).await.unwrap());
    second.await.unwrap().unwrap().release().await.unwrap();
    delete(&client).await;
}

/// Each failed acquisition is followed by another one. That the earlier ones failed says nothing of a number.
async fn loss_of_a_semaphore_is_told_once_to_each_and_the_next_acquisitions_wait(stage: &Stage) {
    const TASKS: usize = 16;
    let (one, two) = (stage.client().await, stage.client().await);
    let permit = pool(&one, 1).await.acquire().await.unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for n in 0..TASKS {
        let client = if n % 2 == 0 { &one } else { &two };
        let (pool, told) = (client.semaphore(KEY), Arc::clone(&told));
        tasks.push(tokio::spawn(async move {
            loop {
                match pool.acquire().await {
                    Ok(permit) => return permit.release().await.unwrap(),
                    Err(error) => assert!(error.is_lost(), "{error}"),
                }
                told.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    stage.waiting(&one, TASKS / 2).await;
    stage.waiting(&two, TASKS / 2).await;
    sleep(stage.part(20)).await;
    stage.wipe().await;
    assert!(refused(permit.release().await).is_lost());
    let all_told = async || told.load(Ordering::Relaxed) >= TASKS;
    let patience = Duration::from_secs(5) + stage.slack();
    stage.eventually("all told", patience, all_told).await;
    // All wait again, for permits that are not set.
    stage.waiting(&one, TASKS / 2).await;
    stage.waiting(&two, TASKS / 2).await;
    sleep(stage.part(100)).await;
    assert_eq!(told.load(Ordering::Relaxed), TASKS);
    drop(pool(&one, 1).await);
    for task in tasks {
        task.await.unwrap();
    }
    conserved(stage, &[&one, &two], 1).await;
    delete(&one).await;
}

/// Nobody tells of permits that are set while the connection is down: a waiter asks again when it stands.
async fn waiter_that_misses_the_message_asks_again(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let pool = pool(&other, 0).await;
    let waiting = tokio::spawn(client.semaphore(KEY).acquire().into_future());
    stage.waiting(&client, 1).await;
    sleep(stage.part(20)).await;
    stage.faults().mute();
    pool.add_permits(1).await.unwrap();
    let start = Instant::now();
    let permit = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() <= Duration::from_secs(5) + stage.slack());
    stage.faults().unmute();
    permit.release().await.unwrap();
    conserved(stage, &[&client], 1).await;
    delete(&other).await;
}

/// The error of a wait that the server has answered within. A busy machine may need longer for that than a short wait lasts.
async fn answered(wait: impl AsyncFn() -> Error) -> Error {
    for _ in 0..100 {
        let error = wait().await;
        if !matches!(&error, Error::Timeout { blocker, .. } if *blocker == Blocker::Unanswered) {
            return error;
        }
    }
    panic!("the server answers none of a hundred waits in time");
}

async fn wait_for_permits_that_nobody_has_set_says_so(stage: &Stage) {
    let client = stage.client().await;
    let (pool, seats) = (client.semaphore(KEY), client.expirable_semaphore("seats"));
    for wait in [Duration::ZERO, stage.part(100)] {
        let errors = [
            answered(async || refused(pool.acquire().wait(wait).await)).await,
            answered(async || refused(seats.acquire().wait(wait).await)).await,
        ];
        for error in errors {
            let Error::Timeout { blocker, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!(blocker, Blocker::PermitsNotSet, "{error}");
            assert!(error.to_string().contains("has no permits yet"), "{error}");
        }
    }
    // Permits that are all taken are something else.
    assert!(pool.try_set_permits(1).await.unwrap());
    let held = pool.acquire().await.unwrap();
    for wait in [Duration::ZERO, stage.part(100)] {
        let error = answered(async || refused(pool.acquire().wait(wait).await)).await;
        assert!(error.to_string().contains("no known end"), "{error}");
    }
    held.release().await.unwrap();
    delete(&client).await;
}

on_every_backend![
    wait_for_permits_that_nobody_has_set_says_so,
    permit_that_is_given_back_goes_to_a_waiter_at_once,
    as_many_waiters_are_woken_as_there_are_permits,
    waiter_for_many_is_not_overtaken_by_those_for_one,
    waiter_that_gives_up_passes_its_turn_on,
    waiters_of_a_semaphore_that_is_gone_are_told,
    acquisition_that_begins_after_a_deletion_waits_for_new_permits,
    loss_of_a_semaphore_is_told_once_to_each_and_the_next_acquisitions_wait,
    waiter_that_misses_the_message_asks_again,
];

on_threads![waiter_for_many_is_not_overtaken_by_those_for_one];
