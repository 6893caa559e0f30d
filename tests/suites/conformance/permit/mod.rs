//! Permits with a lease: how many there are, how many are granted at once, which waiters are woken by more, and what is refused.

mod detached;
mod end;
mod outcome;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Client, Error, ExpirableSemaphore, PermitId};
use distlock_tests::faults::Op;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, drop_after, is_done_within, refused};

pub(crate) const KEY: &str = "seats";

pub(crate) async fn set(client: &Client, permits: u32) -> ExpirableSemaphore {
    let seats = client.expirable_semaphore(KEY);
    assert!(seats.try_set_permits(permits).await.unwrap());
    seats
}

/// Free, out, and all.
pub(crate) async fn counts(seats: &ExpirableSemaphore) -> (i64, i64, i64) {
    (
        seats.available_permits().await.unwrap(),
        seats.acquired_permits().await.unwrap(),
        seats.permits().await.unwrap(),
    )
}

/// Waits until all permits are back, and removes the semaphore.
pub(crate) async fn remove(stage: &Stage, seats: &ExpirableSemaphore, permits: i64) {
    let all = (permits, 0, permits);
    stage
        .eventually("all back", stage.lease(), async || {
            counts(seats).await == all
        })
        .await;
    assert!(seats.delete().await.unwrap());
}

/// Waits until a client keeps nothing.
pub(crate) async fn is_idle(stage: &Stage, client: &Client) {
    stage
        .eventually("idle", stage.lease(), async || {
            sizes(client) == Sizes::default()
        })
        .await;
}

async fn as_many_as_were_set_are_granted(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 3).await;
    let others = two.expirable_semaphore(KEY);
    let first = seats.acquire().await.unwrap();
    let second = others.acquire().await.unwrap();
    let third = seats.try_acquire().await.unwrap().unwrap();
    assert!(first.is_held() && second.is_held() && third.is_held());
    assert_eq!(counts(&others).await, (0, 3, 3));
    assert!(others.try_acquire().await.unwrap().is_none());
    assert!(refused(seats.acquire().wait(stage.part(10)).await).is_busy());
    first.release().await.unwrap();
    assert_eq!(counts(&seats).await, (1, 2, 3));
    let again = others.acquire().await.unwrap();
    drop((second, third, again));
    remove(stage, &seats, 3).await;
}

async fn numbers_are_set_added_and_counted(stage: &Stage) {
    let client = stage.client().await;
    let seats = client.expirable_semaphore(KEY);
    assert_eq!(counts(&seats).await, (0, 0, 0));
    assert!(seats.try_acquire().await.unwrap().is_none());
    assert!(!seats.delete().await.unwrap());
    assert!(seats.try_set_permits(2).await.unwrap());
    assert!(!seats.try_set_permits(7).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    seats.set_permits(5).await.unwrap();
    assert_eq!(counts(&seats).await, (4, 1, 5));
    seats.set_permits(0).await.unwrap();
    assert_eq!(counts(&seats).await, (-1, 1, 0));
    assert!(seats.try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
    assert_eq!(counts(&seats).await, (0, 0, 0));
    seats.add_permits(3).await.unwrap();
    seats.add_permits(-1).await.unwrap();
    assert_eq!(counts(&seats).await, (2, 0, 2));
    remove(stage, &seats, 2).await;
    seats.add_permits(1).await.unwrap();
    remove(stage, &seats, 1).await;
    seats.set_permits(4).await.unwrap();
    remove(stage, &seats, 4).await;
}

async fn several_at_once_are_granted_all_or_none(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 4).await;
    let others = two.expirable_semaphore(KEY);
    let held = others.acquire_many(2).await.unwrap();
    assert!(seats.try_acquire_many(3).await.unwrap().is_none());
    assert_eq!(counts(&seats).await, (2, 2, 4));
    let waiting = tokio::spawn(seats.acquire_many(4).into_future());
    stage.waiting(&one, 1).await;
    let single = others.acquire().await.unwrap();
    held.release().await.unwrap();
    assert!(
        !is_done_within(stage.part(100), async {
            while !waiting.is_finished() {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
    );
    single.release().await.unwrap();
    let all = timeout(stage.lease(), waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!((all.ids().count(), counts(&seats).await), (4, (0, 4, 4)));
    all.release().await.unwrap();
    remove(stage, &seats, 4).await;
}

async fn acquiring_within_a_scope_is_another_permit(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, 2).await;
    let permit = seats.acquire().await.unwrap();
    let within = async {
        let second = seats.acquire().await.unwrap();
        assert_ne!(second.id(), permit.id());
        assert_eq!(counts(&seats).await, (0, 2, 2));
        assert!(seats.try_acquire().await.unwrap().is_none());
        second.release().await.unwrap();
    };
    permit.scope(within).await.unwrap();
    permit.release().await.unwrap();
    remove(stage, &seats, 2).await;
}

async fn permits_that_are_added_wake_as_many_waiters_as_they_suffice_for(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 0).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for client in [&one, &two] {
        for _ in 0..4 {
            let acquire = client.expirable_semaphore(KEY).acquire();
            let inside = Arc::clone(&inside);
            tasks.push(tokio::spawn(async move {
                let permit = acquire.await.unwrap();
                inside.fetch_add(1, Ordering::SeqCst);
                permit
            }));
        }
    }
    stage.waiting(&one, 4).await;
    stage.waiting(&two, 4).await;
    for (added, expected) in [(3, 3), (4, 7), (1, 8)] {
        let start = Instant::now();
        seats.add_permits(added).await.unwrap();
        stage
            .eventually("woken", stage.part(10), async || {
                inside.load(Ordering::SeqCst) == expected
            })
            .await;
        stage.assert_took(start, Duration::ZERO);
    }
    for task in tasks {
        drop(task.await.unwrap());
    }
    remove(stage, &seats, 8).await;
}

async fn storm_never_has_more_inside_than_permits(stage: &Stage) {
    const PERMITS: usize = 3;
    let clients = [stage.client().await, stage.client().await];
    let seats = set(&clients[0], PERMITS as u32).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for n in 0..stage.rounds(200).max(40) {
        let wants = n % PERMITS + 1;
        let acquire = clients[n % 2]
            .expirable_semaphore(KEY)
            .acquire_many(wants as u32);
        let inside = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            let permits = acquire.await.unwrap();
            let now = inside.fetch_add(wants, Ordering::SeqCst) + wants;
            assert!(now <= PERMITS, "{now} at once");
            sleep(Duration::from_millis(1)).await;
            inside.fetch_sub(wants, Ordering::SeqCst);
            if n % 3 == 0 {
                drop(permits);
            } else {
                permits.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    remove(stage, &seats, PERMITS as i64).await;
}

async fn bad_numbers_are_refused_before_anything_is_sent(stage: &Stage) {
    let client = stage.faulty_client().await;
    let seats = client.expirable_semaphore(KEY);
    let most_at_once = 1_000;
    let is = |error: Error, number: i64, (least, most): (i32, u32)| {
        let text = format!("invalid number of permits {number}: expected {least} to {most}");
        assert_eq!(error.to_string(), text);
        assert!(error.is_permanent());
        assert!(matches!(error, Error::InvalidPermits { permits, .. } if permits == number));
    };
    for number in [0, most_at_once + 1, u32::MAX] {
        for error in [
            refused(seats.acquire_many(number).await),
            refused(seats.try_acquire_many(number).await),
        ] {
            is(error, number.into(), (1, most_at_once));
        }
    }
    for number in [1 << 31, u32::MAX] {
        for error in [
            refused(seats.try_set_permits(number).await),
            refused(seats.set_permits(number).await),
        ] {
            is(error, number.into(), (0, i32::MAX as u32));
        }
    }
    let id: PermitId = "00112233445566778899aabbccddeeff".parse().unwrap();
    let error = refused(seats.update_lease(id, Duration::ZERO).await);
    assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
    let nameless = client.expirable_semaphore("");
    assert!(matches!(
        refused(nameless.permits().await),
        Error::InvalidKey { .. }
    ));
    for op in [Op::Attempt, Op::Adjust, Op::Release] {
        assert_eq!(stage.faults().calls(op), 0, "{op:?}");
    }
}

async fn sum_that_redisson_could_not_read_is_refused_and_changes_nothing(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, i32::MAX as u32).await;
    let error = refused(seats.add_permits(1).await);
    assert!(
        matches!(error, Error::InvalidPermits { permits, .. } if permits == 1 << 31),
        "{error}"
    );
    remove(stage, &seats, i64::from(i32::MAX)).await;
}

async fn as_many_as_can_be_at_once_are_granted_and_more_than_there_are_are_not(stage: &Stage) {
    let client = stage.client().await;
    let most = 1_000;
    // A busy server may not meet a short lease with its short timeouts.
    let many = if stage.is_paused() { most } else { 100 };
    let seats = set(&client, many).await;
    let permits = seats.acquire_many(many).await.unwrap();
    assert_eq!(counts(&seats).await, (0, many.into(), many.into()));
    permits.release().await.unwrap();
    remove(stage, &seats, many.into()).await;
    let seats = set(&client, 2).await;
    assert!(seats.try_acquire_many(most).await.unwrap().is_none());
    // Where nobody answered yet, what was asked for is withdrawn.
    assert!(
        drop_after(1, seats.acquire_many(most).into_future())
            .await
            .is_none()
    );
    is_idle(stage, &client).await;
    remove(stage, &seats, 2).await;
}

async fn key_of_another_kind_is_refused_and_left_alone(stage: &Stage) {
    let client = stage.client().await;
    let (lock, seats) = (client.lock(KEY), client.expirable_semaphore(KEY));
    let is = |error: Error| assert!(matches!(error, Error::WrongType { .. }), "{error}");
    let guard = lock.acquire().await.unwrap();
    let id: PermitId = "00112233445566778899aabbccddeeff".parse().unwrap();
    is(refused(seats.try_acquire().await));
    is(refused(seats.try_set_permits(1).await));
    is(refused(seats.set_permits(1).await));
    is(refused(seats.add_permits(1).await));
    is(refused(seats.permits().await));
    is(refused(seats.release(id).await));
    is(refused(seats.update_lease(id, stage.lease()).await));
    is(refused(seats.remaining_lease(id).await));
    is(refused(seats.delete().await));
    guard.release().await.unwrap();
    seats.set_permits(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    is(refused(lock.try_acquire().await));
    is(refused(lock.is_locked().await));
    is(refused(lock.force_release().await));
    permit.release().await.unwrap();
    remove(stage, &seats, 1).await;
}

on_every_backend![
    as_many_as_were_set_are_granted,
    numbers_are_set_added_and_counted,
    several_at_once_are_granted_all_or_none,
    acquiring_within_a_scope_is_another_permit,
    permits_that_are_added_wake_as_many_waiters_as_they_suffice_for,
    storm_never_has_more_inside_than_permits,
    bad_numbers_are_refused_before_anything_is_sent,
    sum_that_redisson_could_not_read_is_refused_and_changes_nothing,
    as_many_as_can_be_at_once_are_granted_and_more_than_there_are_are_not,
    key_of_another_kind_is_refused_and_left_alone,
];

on_threads![storm_never_has_more_inside_than_permits];
