//! Waiters of a fair lock that leave its queue: by their end, by a crash, or at any point.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Blocker, Error, Guard};
use distlock_tests::faults::{Fault, Op};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::{KEY, client_with_places, queued};
use crate::conformance::stage::{Stage, drop_after, refused};

/// Ends a waiter as a crash would: nothing of it reaches the server any more, until the faults are cleared.
async fn kill(stage: &Stage, waiter: JoinHandle<Result<Guard, Error>>) {
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    stage.faults().always(Op::Release, Fault::FailBefore);
    waiter.abort();
    drop(waiter.await);
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

/// No message tells that a lease has ended, and each waiter looks a third of its place after its last attempt at the latest.
async fn waiter_that_is_the_first_shortly_before_a_lease_ends_is_granted_at_that_end(
    stage: &Stage,
) {
    let (dying, other) = (stage.faulty_client().await, stage.client().await);
    let at = async |start: Instant, ms| {
        tokio::time::sleep_until(start + Duration::from_millis(ms)).await;
    };
    for crashes in [false, true] {
        let start = Instant::now();
        let guard = other.fair_lock(KEY).acquire().await.unwrap();
        let _nobody_renews_it = guard.detach().unwrap();
        at(start, 1_000).await;
        let first = queued(stage, &dying).await;
        at(start, 2_600).await;
        let second = queued(stage, &other).await;
        at(start, 2_900).await;
        let third = queued(stage, &other).await;
        if crashes {
            // Its place lasts until 29.3 s. The second one attempts shortly before that, and the third one after it.
            at(start, 25_000).await;
            kill(stage, first).await;
        } else {
            at(start, 29_700).await;
            first.abort();
        }
        let guard = second.await.unwrap().unwrap();
        stage.assert_took(start, stage.lease());
        guard.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        stage.faults().clear_all();
    }
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

on_every_backend![
    waiter_that_leaves_gives_up_its_place_at_once,
    first_that_leaves_a_free_lock_wakes_the_next,
    killed_waiters_delay_the_others_once,
    hundred_waiters_go_in_order_whoever_leaves,
    waiter_dropped_at_any_point_leaves_nothing,
    attempts_of_unknown_outcome_take_one_place,
];

// The times of this test are exact.
mod on_paused_time {
    use super::waiter_that_is_the_first_shortly_before_a_lease_ends_is_granted_at_that_end;

    on_memory![waiter_that_is_the_first_shortly_before_a_lease_ends_is_granted_at_that_end];
}
