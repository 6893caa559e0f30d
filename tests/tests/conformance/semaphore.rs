//! What a semaphore promises: never more permits out than there are, and each change counted once, whatever is lost,
//! doubled, late or dropped on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{Fault, Op, Sizes, sizes};
use distlock::{Client, Error, Permit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::stage::{Stage, drop_after, refused};

const KEY: &str = "pool";

/// A semaphore of so many permits.
async fn pool(client: &Client, permits: u32) -> Semaphore {
    let pool = client.semaphore(KEY);
    assert!(pool.try_set_permits(permits).await.unwrap());
    pool
}

/// Waits until so many permits are available and no client has anything to do; then they stay as many for a while.
async fn conserved(stage: &Stage, clients: &[&Client], permits: i64) {
    let pool = clients[0].semaphore(KEY);
    let settled = async || {
        let idle = clients.iter().all(|client| {
            matches!(
                sizes(client),
                Sizes {
                    waiters: 0,
                    holds: 0,
                    owed: 0,
                    ..
                }
            )
        });
        idle && pool.available_permits().await.unwrap() == permits
    };
    stage
        .eventually(&format!("{permits} permits"), stage.lease(), settled)
        .await;
    sleep(stage.part(10)).await;
    assert_eq!(pool.available_permits().await.unwrap(), permits);
}

async fn delete(client: &Client) {
    assert!(client.semaphore(KEY).delete().await.unwrap());
}

async fn no_more_permits_are_out_than_there_are(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    pool(&one, 3).await;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for n in 0..40_u32 {
        let client = if n % 2 == 0 { &one } else { &two };
        let acquire = client.semaphore(KEY).acquire_many(1 + n % 3);
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        tasks.push(tokio::spawn(async move {
            let permits = acquire.await.unwrap();
            let taken = permits.permits() as usize;
            let now = inside.fetch_add(taken, Ordering::SeqCst) + taken;
            assert!(now <= 3, "{now} permits are out");
            most.fetch_max(now, Ordering::SeqCst);
            sleep(Duration::from_millis(5)).await;
            inside.fetch_sub(taken, Ordering::SeqCst);
            permits.release().await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    conserved(stage, &[&one, &two], 3).await;
    delete(&one).await;
}

async fn number_is_set_once_added_to_and_drained(stage: &Stage) {
    let client = stage.client().await;
    let pool = client.semaphore(KEY);
    assert_eq!(pool.available_permits().await.unwrap(), 0);
    assert_eq!(pool.drain_permits().await.unwrap(), 0);
    assert!(pool.try_acquire().await.unwrap().is_none());
    assert!(pool.try_set_permits(3).await.unwrap());
    assert!(!pool.try_set_permits(7).await.unwrap());
    assert_eq!(pool.add_permits(2).await.unwrap(), 5);
    assert_eq!(pool.add_permits(-7).await.unwrap(), -2);
    assert_eq!(pool.available_permits().await.unwrap(), -2);
    assert!(pool.try_acquire().await.unwrap().is_none());
    assert_eq!(pool.release_permits(3).await.unwrap(), 1);
    assert!(pool.try_acquire_many(2).await.unwrap().is_none());
    assert_eq!(pool.add_permits(3).await.unwrap(), 4);
    assert_eq!(pool.drain_permits().await.unwrap(), 4);
    assert_eq!(pool.available_permits().await.unwrap(), 0);
    // Without permits there still is a number.
    assert!(!pool.try_set_permits(1).await.unwrap());
    assert!(pool.delete().await.unwrap() && !pool.delete().await.unwrap());
}

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
                let held = match taken {
                    true => Some(other.semaphore(KEY).acquire().await.unwrap()),
                    false => None,
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

async fn forgotten_permits_stay_taken_until_somebody_gives_them_back(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let pool = pool(&one, 3).await;
    pool.acquire_many(2).await.unwrap().forget();
    conserved(stage, &[&one], 1).await;
    let waiting = tokio::spawn(pool.acquire_many(3).into_future());
    stage.waiting(&one, 1).await;
    assert_eq!(two.semaphore(KEY).release_permits(2).await.unwrap(), 3);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    conserved(stage, &[&one], 3).await;
    delete(&one).await;
}

async fn permits_that_cannot_be_are_refused_before_anything_is_sent(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = client.semaphore(KEY);
    let too_many = i32::MAX as u32 + 1;
    let refusals = [
        (0, refused(pool.acquire_many(0).await)),
        (too_many, refused(pool.acquire_many(too_many).await)),
        (0, refused(pool.try_acquire_many(0).await)),
        (0, refused(pool.release_permits(0).await)),
        (u32::MAX, refused(pool.release_permits(u32::MAX).await)),
        (too_many, refused(pool.try_set_permits(too_many).await)),
    ];
    for (wanted, error) in refusals {
        let named =
            matches!(error, Error::InvalidPermits { permits, .. } if permits == u64::from(wanted));
        assert!(named && error.is_misuse(), "{error}");
    }
    assert!(refused(client.semaphore("").available_permits().await).is_misuse());
    let sent = [Op::Attempt, Op::Adjust].map(|op| stage.faults().calls(op));
    assert_eq!(sent, [0, 0]);
}

async fn key_of_another_type_is_refused_and_left_alone(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    let pool = client.semaphore(KEY);
    let latch = client.count_down_latch(KEY);
    let refusals = [
        refused(pool.try_acquire().await),
        refused(pool.acquire().await),
        refused(pool.try_set_permits(1).await),
        refused(pool.add_permits(1).await),
        refused(pool.drain_permits().await),
        refused(pool.available_permits().await),
        refused(pool.delete().await),
        refused(latch.try_set_count(1).await),
        refused(latch.count_down().await),
        refused(latch.count().await),
        refused(latch.wait().await),
        refused(latch.delete().await),
    ];
    for error in refusals {
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
    }
    guard.release().await.unwrap();
    pool.try_set_permits(1).await.unwrap();
    for error in [
        refused(client.lock(KEY).acquire().await),
        refused(client.lock(KEY).is_locked().await),
        refused(client.lock(KEY).force_release().await),
    ] {
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
    }
    delete(&client).await;
}

async fn acquisition_that_meets_a_fault_counts_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let pool = pool(&client, 3).await;
    for fault in [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Double,
        Fault::Late(stage.part(50)),
        Fault::DelayReply(stage.part(50)),
        Fault::Never,
    ] {
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
    let faults = [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Double,
        Fault::Late(stage.part(50)),
        Fault::DelayReply(stage.part(50)),
        Fault::Never,
    ];
    for fault in faults {
        let permits = pool.acquire_many(2).await.unwrap();
        stage.faults().next(Op::Release, fault);
        permits.release().await.unwrap();
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
    // Carried out at once, and nobody who answers for so long: nothing is remembered of it any more.
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
    for fault in [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Double,
        Fault::Late(stage.part(50)),
        Fault::DelayReply(stage.part(50)),
        Fault::Never,
    ] {
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

async fn permits_inside_one_another_are_apart(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, 2).await;
    let nested = pool.acquire().run(async {
        let inner = pool.acquire().run(pool.available_permits()).await;
        inner.unwrap().unwrap()
    });
    assert_eq!(nested.await.unwrap(), 0);
    let three = pool.acquire_many(3).wait(stage.part(10));
    let start = Instant::now();
    assert!(refused(three.await).is_busy());
    stage.assert_took(start, stage.part(10));
    assert!(refused(pool.acquire_many(3).wait(Duration::ZERO).await).is_busy());
    conserved(stage, &[&client], 2).await;
    delete(&client).await;
}

/// Nobody tells of permits that are set while the connection is down: a waiter asks again when it stands.
async fn waiter_that_misses_the_message_asks_again(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let pool = pool(&other, 0).await;
    let waiting = tokio::spawn(client.semaphore(KEY).acquire().into_future());
    stage.waiting(&client, 1).await;
    sleep(stage.part(20)).await;
    stage.faults().deafen();
    pool.add_permits(1).await.unwrap();
    let start = Instant::now();
    let permit = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() <= Duration::from_secs(5) + stage.slack());
    stage.faults().hear();
    permit.release().await.unwrap();
    conserved(stage, &[&client], 1).await;
    delete(&other).await;
}

async fn closed_client_acquires_nothing_and_gives_all_back(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, 2).await;
    drop(pool.acquire_many(2).await.unwrap());
    client.close(stage.lease()).await.unwrap();
    assert!(matches!(
        refused(pool.acquire().await),
        Error::Closed { .. }
    ));
    conserved(stage, &[&client], 2).await;
    delete(&client).await;
}

on_every_backend![
    no_more_permits_are_out_than_there_are,
    number_is_set_once_added_to_and_drained,
    permit_that_is_given_back_goes_to_a_waiter_at_once,
    as_many_waiters_are_woken_as_there_are_permits,
    waiter_for_many_is_not_overtaken_by_those_for_one,
    waiter_that_gives_up_passes_its_turn_on,
    acquisition_dropped_at_any_point_takes_nothing,
    release_dropped_at_any_point_goes_on,
    forgotten_permits_stay_taken_until_somebody_gives_them_back,
    permits_that_cannot_be_are_refused_before_anything_is_sent,
    key_of_another_type_is_refused_and_left_alone,
    acquisition_that_meets_a_fault_counts_once,
    acquisition_that_comes_after_its_owner_has_ended_takes_nothing,
    late_copy_of_an_attempt_that_was_granted_and_released_takes_nothing,
    release_that_meets_a_fault_counts_once,
    release_that_nobody_hears_for_long_counts_once,
    change_that_meets_a_fault_counts_once_and_answers_as_at_first,
    change_that_nobody_answers_is_unavailable,
    permits_inside_one_another_are_apart,
    waiter_that_misses_the_message_asks_again,
    closed_client_acquires_nothing_and_gives_all_back,
];
on_threads![
    no_more_permits_are_out_than_there_are,
    waiter_for_many_is_not_overtaken_by_those_for_one,
];
