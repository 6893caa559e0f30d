//! The semaphore: never more permits out than there are, what changes their number, and what is refused.

mod outcome;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Client, Error, Semaphore};
use distlock_tests::faults::Op;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

pub(crate) const KEY: &str = "pool";

/// A semaphore with this many permits.
pub(crate) async fn pool(client: &Client, permits: u32) -> Semaphore {
    let pool = client.semaphore(KEY);
    assert!(pool.try_set_permits(permits).await.unwrap());
    pool
}

/// Waits until this many permits are available and no client has anything to do; the number then stays for a while.
pub(crate) async fn conserved(stage: &Stage, clients: &[&Client], permits: i64) {
    let pool = clients[0].semaphore(KEY);
    let settled = async || {
        let idle = clients.iter().all(|client| {
            matches!(
                sizes(client),
                Sizes {
                    waiters: 0,
                    holds: 0,
                    pending_releases: 0,
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

pub(crate) async fn delete(client: &Client) {
    assert!(client.semaphore(KEY).delete().await.unwrap());
}

async fn no_more_permits_are_out_than_there_are(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    drop(pool(&one, 3).await);
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

async fn permit_of_a_deleted_semaphore_is_not_one_of_the_next(stage: &Stage) {
    let client = stage.client().await;
    let first = pool(&client, 5).await;
    let (told, dropped) = (
        first.acquire().await.unwrap(),
        first.acquire().await.unwrap(),
    );
    delete(&client).await;
    assert!(refused(told.release().await).is_lost());
    assert!(!first.delete().await.unwrap(), "a release made a semaphore");
    let next = pool(&client, 5).await;
    drop(dropped);
    conserved(stage, &[&client], 5).await;
    assert!(next.try_acquire_many(6).await.unwrap().is_none());
    delete(&client).await;
}

async fn sum_that_redisson_could_not_read_is_refused_and_changes_nothing(stage: &Stage) {
    let client = stage.client().await;
    let most = i32::MAX as u32;
    let pool = pool(&client, most).await;
    for (error, sum) in [
        (refused(pool.release_permits(1).await), 1_i64 << 31),
        (refused(pool.release_permits(most).await), (1 << 32) - 2),
    ] {
        assert!(
            matches!(error, Error::InvalidPermits { permits, .. } if permits == sum),
            "{error}"
        );
    }
    assert_eq!(pool.available_permits().await.unwrap(), i64::from(most));
    assert_eq!(pool.add_permits(i32::MIN).await.unwrap(), -1);
    let error = refused(pool.add_permits(i32::MIN).await);
    assert_eq!(
        error.to_string(),
        "invalid number of permits -2147483649: expected -2147483647 to 2147483647"
    );
    assert!(error.is_permanent());
    assert_eq!(pool.available_permits().await.unwrap(), -1);
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
            matches!(error, Error::InvalidPermits { permits, .. } if permits == i64::from(wanted));
        assert!(named && error.is_permanent(), "{error}");
    }
    assert!(refused(client.semaphore("").available_permits().await).is_permanent());
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
    forgotten_permits_stay_taken_until_somebody_gives_them_back,
    permit_of_a_deleted_semaphore_is_not_one_of_the_next,
    sum_that_redisson_could_not_read_is_refused_and_changes_nothing,
    permits_inside_one_another_are_apart,
    permits_that_cannot_be_are_refused_before_anything_is_sent,
    key_of_another_type_is_refused_and_left_alone,
    closed_client_acquires_nothing_and_gives_all_back,
];

on_threads![no_more_permits_are_out_than_there_are];
