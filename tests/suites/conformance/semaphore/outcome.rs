//! A semaphore under faults: each acquisition, release and change counts once, also if it is lost, doubled, late or dropped
//! on the way.

use std::pin::pin;
use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Faults, Op};
use futures_util::future::poll_immediate;
use tokio::time::{Instant, sleep};

use super::{KEY, conserved, delete, pool};
use crate::conformance::stage::{Stage, drop_after, refused};

async fn acquisition_dropped_at_any_point_takes_nothing(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let pool = pool(&client, 2).await;
    let slow = Duration::from_millis(10);
    let faults = [
        None,
        Some(Fault::Delay(slow)),
        Some(Fault::DelayReply(slow)),
        Some(Fault::FailAfter),
        Some(Fault::FailBefore),
    ];
    for fault in faults {
        for taken in [false, true] {
            for polls in 0..100 {
                let held = if taken {
                    Some(other.semaphore(KEY).acquire().await.unwrap())
                } else {
                    None
                };
                let end = tokio::spawn(async move {
                    sleep(3 * slow).await;
                    drop(held);
                });
                if let Some(fault) = fault {
                    stage.faults().always(Op::Attempt, fault);
                }
                let acquiring = pool.acquire_many(2).wait(4 * slow).into_future();
                let done = drop_after(polls, acquiring).await.is_some();
                stage.faults().clear(Op::Attempt);
                end.await.unwrap();
                conserved(stage, &[&client, &other], 2).await;
                if done || (!stage.is_paused() && polls > 4) {
                    break;
                }
                assert!(polls < 99, "not done after 100 polls");
            }
        }
    }
    delete(&client).await;
}

async fn release_dropped_at_any_point_goes_on(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 2).await;
    let slow = Duration::from_millis(10);
    for fault in [
        Fault::Delay(slow),
        Fault::DelayReply(slow),
        Fault::FailAfter,
        Fault::FailBefore,
        Fault::Late(slow),
    ] {
        for polls in 0..100 {
            let permit = pool.acquire_many(2).await.unwrap();
            stage.faults().next(Op::Release, fault);
            let done = drop_after(polls, permit.release()).await.is_some();
            conserved(stage, &[&client], 2).await;
            stage.faults().clear(Op::Release);
            if done {
                break;
            }
        }
    }
    delete(&client).await;
}

async fn acquisition_that_meets_a_fault_counts_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 3).await;
    for fault in stage.survivable_faults() {
        stage.faults().next(Op::Attempt, fault);
        let permits = pool.acquire_many(2).await.unwrap();
        sleep(stage.part(20)).await;
        assert_eq!(pool.available_permits().await.unwrap(), 1, "{fault:?}");
        permits.release().await.unwrap();
        conserved(stage, &[&client], 3).await;
    }
    assert_eq!(stage.faults().hits(Op::Attempt), 6);
    delete(&client).await;
}

async fn acquisition_that_comes_after_its_owner_has_ended_takes_nothing(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 2).await;
    let late = stage.part(5);
    for fault in [
        Fault::Late(late),
        Fault::FailAfter,
        Fault::FailBefore,
        Fault::Delay(late),
        Fault::DelayReply(late),
    ] {
        stage.faults().always(Op::Attempt, fault);
        refused(pool.acquire().wait(stage.part(20)).await);
        refused(pool.try_acquire().await);
        stage.faults().clear(Op::Attempt);
        sleep(late).await;
        conserved(stage, &[&client], 2).await;
    }
    // The server remembers their end: it is not told again and again for as long as permits may be out.
    let told = stage.faults().calls(Op::Release);
    sleep(stage.lease() * 3).await;
    assert_eq!(stage.faults().calls(Op::Release), told);
    delete(&client).await;
}

async fn late_copy_of_an_attempt_that_was_granted_and_released_takes_nothing(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 2).await;
    let late = stage.part(5);
    stage.faults().next(Op::Attempt, Fault::Late(late));
    let permit = pool.acquire().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(pool.available_permits().await.unwrap(), 2);
    sleep(late).await;
    conserved(stage, &[&client], 2).await;
    delete(&client).await;
}

async fn release_that_meets_a_fault_counts_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 3).await;
    for fault in stage.survivable_faults() {
        let permits = pool.acquire_many(2).await.unwrap();
        stage.faults().next(Op::Release, fault);
        // The second of two copies finds nothing to give back.
        let released = permits.release().await;
        assert_eq!(released.is_ok(), fault != Fault::Double, "{fault:?}");
        conserved(stage, &[&client], 3).await;
        let permits = pool.acquire_many(2).await.unwrap();
        stage.faults().next(Op::Release, fault);
        drop(permits);
        conserved(stage, &[&client], 3).await;
        let permits = pool.acquire_many(2).await.unwrap();
        stage.faults().next(Op::Release, fault);
        permits.forget();
        conserved(stage, &[&client], 1).await;
        pool.release_permits(2).await.unwrap();
    }
    delete(&client).await;
}

/// Longer than the server remembers an owner's end.
async fn release_that_nobody_hears_for_long_counts_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 3).await;
    for fault in [Fault::FailAfter, Fault::FailBefore] {
        let permits = pool.acquire_many(2).await.unwrap();
        stage.faults().always(Op::Release, fault);
        assert!(refused(permits.release().await).is_unavailable());
        sleep(stage.lease() * 2).await;
        stage.faults().clear(Op::Release);
        conserved(stage, &[&client], 3).await;
    }
    // Carried out at once, and unanswered for so long that the server has forgotten it.
    let permits = pool.acquire_many(2).await.unwrap();
    stage.faults().next(Op::Release, Fault::FailAfter);
    stage.faults().always(Op::Release, Fault::FailBefore);
    drop(permits);
    sleep(stage.lease() * 2).await;
    assert_eq!(pool.available_permits().await.unwrap(), 3);
    stage.faults().clear(Op::Release);
    conserved(stage, &[&client], 3).await;
    delete(&client).await;
}

async fn change_that_meets_a_fault_counts_once_and_answers_as_at_first(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let pool = client.semaphore(KEY);
    for fault in stage.survivable_faults() {
        let next = || stage.faults().next(Op::Adjust, fault);
        next();
        assert!(pool.try_set_permits(3).await.unwrap(), "{fault:?}");
        next();
        assert_eq!(pool.add_permits(2).await.unwrap(), 5, "{fault:?}");
        next();
        assert_eq!(pool.add_permits(-1).await.unwrap(), 4, "{fault:?}");
        sleep(stage.part(20)).await;
        assert_eq!(other.semaphore(KEY).available_permits().await.unwrap(), 4);
        next();
        assert_eq!(pool.drain_permits().await.unwrap(), 4, "{fault:?}");
        sleep(stage.part(20)).await;
        delete(&client).await;
    }
}

async fn change_that_nobody_answers_is_unavailable(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Never] {
        stage.faults().always(Op::Adjust, fault);
        let start = Instant::now();
        let error = refused(client.semaphore(KEY).add_permits(1).await);
        assert!(error.is_unavailable(), "{error}");
        stage.assert_took(start, stage.unavailable_after());
        stage.faults().clear(Op::Adjust);
    }
    // The second of the three was carried out, once.
    conserved(stage, &[&client], 1).await;
    delete(&client).await;
}

async fn release_that_failed_for_long_is_tried_again_soon(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 1).await;
    let permit = pool.acquire().await.unwrap();
    stage.faults().always(Op::Release, Fault::FailBefore);
    drop(permit);
    let leases = if stage.is_paused() { 100 } else { 2 };
    sleep(stage.lease() * leases).await;
    assert_eq!(pool.available_permits().await.unwrap(), 0);
    stage.faults().clear(Op::Release);
    // No lease frees the permit, so the pauses between the tries do not grow for ever.
    let back = async || pool.available_permits().await.unwrap() == 1;
    stage.eventually("given back", stage.part(10), back).await;
    delete(&client).await;
}

on_every_backend![
    release_that_failed_for_long_is_tried_again_soon,
    acquisition_dropped_at_any_point_takes_nothing,
    release_dropped_at_any_point_goes_on,
    acquisition_that_meets_a_fault_counts_once,
    acquisition_that_comes_after_its_owner_has_ended_takes_nothing,
    late_copy_of_an_attempt_that_was_granted_and_released_takes_nothing,
    release_that_meets_a_fault_counts_once,
    release_that_nobody_hears_for_long_counts_once,
    change_that_meets_a_fault_counts_once_and_answers_as_at_first,
    change_that_nobody_answers_is_unavailable,
];

/// The server has forgotten the request by the time when it is polled again, so the change would count twice.
#[tokio::test(start_paused = true)]
async fn change_that_is_left_between_two_tries_is_not_sent_again_when_it_is_polled_later() {
    let faults = Faults::new();
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let pool = pool(&client, 1).await;
    faults.next(Op::Adjust, Fault::FailAfter);
    let mut add = pin!(pool.add_permits(1));
    assert!(poll_immediate(&mut add).await.is_none());
    sleep(Duration::from_secs(3_600)).await;
    let error = refused(add.await);
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(pool.available_permits().await.unwrap(), 2);
}

/// As above, but the second try has begun: it waits for its connection.
#[tokio::test(start_paused = true)]
async fn change_that_is_left_in_its_second_try_is_not_sent_when_it_is_polled_later() {
    let faults = Faults::new();
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let pool = pool(&client, 1).await;
    faults.next(Op::Adjust, Fault::FailAfter);
    faults.next(Op::Adjust, Fault::Delay(Duration::from_secs(1)));
    let mut add = pin!(pool.add_permits(1));
    assert!(poll_immediate(&mut add).await.is_none());
    sleep(Duration::from_millis(50)).await;
    assert!(poll_immediate(&mut add).await.is_none());
    assert_eq!(faults.hits(Op::Adjust), 2);
    sleep(Duration::from_secs(3_600)).await;
    let error = refused(add.await);
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(pool.available_permits().await.unwrap(), 2);
}

/// The answer is there before the server may have forgotten the request.
#[tokio::test(start_paused = true)]
async fn answer_to_a_second_try_counts_if_it_is_polled_a_little_late() {
    let faults = Faults::new();
    let patience = Duration::from_secs(5);
    let builder = Client::builder().faults(&faults);
    let builder = builder.unavailable_after(patience);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let pool = pool(&client, 1).await;
    faults.next(Op::Adjust, Fault::FailAfter);
    faults.next(Op::Adjust, Fault::DelayReply(Duration::from_secs(1)));
    let mut add = pin!(pool.add_permits(1));
    assert!(poll_immediate(&mut add).await.is_none());
    sleep(Duration::from_millis(50)).await;
    assert!(poll_immediate(&mut add).await.is_none());
    sleep(patience).await;
    assert_eq!(add.await.unwrap(), 2);
}
