//! Numbers that expire after their last use: what moves their end, what does not, and which waiters learn of it.

use std::time::Duration;

use distlock::{Client, CountDownLatch, Error, ExpirableSemaphore, Primitive, Semaphore};
use distlock_tests::faults::Op;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

fn pool(client: &Client, stage: &Stage) -> Semaphore {
    client.semaphore("pool").expire_after(stage.lease())
}

fn jobs(client: &Client, stage: &Stage) -> CountDownLatch {
    client.count_down_latch("jobs").expire_after(stage.lease())
}

fn seats(client: &Client, stage: &Stage) -> ExpirableSemaphore {
    client
        .expirable_semaphore("seats")
        .expire_after(stage.lease())
}

/// Waits for the end of a number that was used last at `used`.
async fn goes(stage: &Stage, used: Instant, mut is_gone: impl AsyncFnMut() -> bool) {
    stage
        .eventually("gone", stage.lease(), async || is_gone().await)
        .await;
    stage.assert_took(used, stage.lease());
}

async fn each_use_of_a_semaphore_moves_its_end_and_then_nothing_is_left(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, stage);
    let pause = || sleep(stage.part(2));
    assert!(pool.try_set_permits(2).await.unwrap());
    pause().await;
    assert!(!pool.try_set_permits(5).await.unwrap());
    pause().await;
    let permit = pool.acquire().await.unwrap();
    pause().await;
    pool.add_permits(1).await.unwrap();
    pause().await;
    // The list of the owners has to last as long as the number.
    permit.release().await.unwrap();
    assert_eq!(pool.available_permits().await.unwrap(), 3);
    pause().await;
    assert_eq!(pool.drain_permits().await.unwrap(), 3);
    pause().await;
    let used = Instant::now();
    pool.release_permits(1).await.unwrap();
    goes(stage, used, async || {
        pool.available_permits().await.unwrap() == 0
    })
    .await;
    let used = Instant::now();
    assert!(pool.add_permits(4).await.unwrap() == 4, "it was not new");
    goes(stage, used, async || {
        pool.available_permits().await.unwrap() == 0
    })
    .await;
}

async fn neither_a_question_nor_a_refusal_moves_the_end_of_a_semaphore(stage: &Stage) {
    let client = stage.client().await;
    let pool = pool(&client, stage);
    pool.try_set_permits(1).await.unwrap();
    let used = Instant::now();
    pool.acquire().await.unwrap().forget();
    goes(stage, used, async || {
        assert!(pool.try_acquire().await.unwrap().is_none());
        pool.available_permits().await.unwrap();
        client.inspect("pool").await.unwrap().primitive == Primitive::Nothing
    })
    .await;
}

async fn permit_that_outlasts_its_semaphore_is_lost_and_a_waiter_is_told(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (pool, theirs) = (pool(&client, stage), other.semaphore("pool"));
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    let waiting = tokio::spawn(theirs.acquire().into_future());
    assert!(refused(waiting.await.unwrap()).is_lost());
    assert!(permit.release().await.unwrap_err().is_lost());
    // The permit of the one that is gone is not in the new one.
    assert!(pool.try_set_permits(1).await.unwrap());
    assert_eq!(pool.available_permits().await.unwrap(), 1);
    pool.delete().await.unwrap();
}

async fn latch_whose_counting_processes_died_is_told_and_set_again(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let latch = jobs(&one, stage);
    assert!(latch.try_set_count(3).await.unwrap());
    sleep(stage.part(2)).await;
    latch.count_down().await.unwrap();
    let used = Instant::now();
    // Of the next run: it finds the latch of the former one, and does not prolong it.
    let theirs = jobs(&two, stage);
    sleep(stage.part(2)).await;
    assert!(!theirs.try_set_count(2).await.unwrap());
    let error = refused(theirs.wait().await);
    assert!(error.is_lost(), "{error}");
    assert!(used.elapsed() + stage.part(10) >= stage.lease());
    assert!(theirs.try_set_count(2).await.unwrap());
    let waiting = tokio::spawn(theirs.wait().into_future());
    theirs.count_down().await.unwrap();
    theirs.count_down().await.unwrap();
    waiting.await.unwrap().unwrap();
}

async fn latch_that_is_counted_in_time_opens_however_long_it_takes(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let latch = jobs(&one, stage);
    assert!(latch.try_set_count(4).await.unwrap());
    let waiting = tokio::spawn(two.count_down_latch("jobs").wait().into_future());
    for left in [3, 2, 1, 0] {
        sleep(stage.part(2)).await;
        assert_eq!(latch.count_down().await.unwrap(), left);
    }
    waiting.await.unwrap().unwrap();
}

async fn renewed_permit_keeps_its_semaphore_and_then_both_go(stage: &Stage) {
    let client = stage.client().await;
    let seats = seats(&client, stage);
    assert!(seats.try_set_permits(2).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    sleep(2 * stage.lease()).await;
    assert!(permit.is_held());
    assert_eq!(seats.permits().await.unwrap(), 2);
    let used = Instant::now();
    permit.release().await.unwrap();
    goes(stage, used, async || seats.permits().await.unwrap() == 0).await;
}

/// Another handle, or Redisson, has made the semaphore with an end.
async fn permit_of_a_handle_without_an_end_keeps_its_semaphore(stage: &Stage) {
    let client = stage.client().await;
    assert!(seats(&client, stage).try_set_permits(1).await.unwrap());
    let plain = client.expirable_semaphore("seats");
    let permit = plain.acquire().await.unwrap();
    sleep(2 * stage.lease()).await;
    assert_eq!(plain.permits().await.unwrap(), 1);
    let detached = permit.detach().unwrap();
    let permit = client.attach(&detached).await.unwrap();
    sleep(2 * stage.lease()).await;
    assert!(permit.is_held());
    assert_eq!(plain.permits().await.unwrap(), 1);
    permit.release().await.unwrap();
}

async fn permit_with_a_lease_beyond_the_end_of_its_semaphore_keeps_it(stage: &Stage) {
    let client = stage.client().await;
    let seats = client
        .expirable_semaphore("seats")
        .expire_after(stage.lease() / 6);
    assert!(seats.try_set_permits(1).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    sleep(stage.lease()).await;
    assert!(permit.is_held());
    let id = permit.ids().next().unwrap();
    seats.update_lease(id, 3 * stage.lease()).await.unwrap();
    sleep(2 * stage.lease()).await;
    assert_eq!(seats.permits().await.unwrap(), 1);
    permit.release().await.unwrap();
}

async fn each_change_of_an_expirable_semaphore_moves_its_end(stage: &Stage) {
    let client = stage.client().await;
    let seats = seats(&client, stage);
    let pause = || sleep(stage.part(2));
    seats.set_permits(1).await.unwrap();
    pause().await;
    assert!(!seats.try_set_permits(4).await.unwrap());
    pause().await;
    seats.add_permits(1).await.unwrap();
    pause().await;
    // The semaphore lasts at least as long as a lease, so these are too short to hide what a use moves.
    let short = stage.part(4);
    seats
        .acquire()
        .lease(short)
        .await
        .unwrap()
        .into_id()
        .unwrap();
    sleep(stage.part(2) + short).await;
    assert_eq!(seats.permits().await.unwrap(), 2);
    let plain = client.expirable_semaphore("seats");
    let permit = plain.acquire().lease(short).await.unwrap();
    seats
        .update_lease(permit.into_id().unwrap(), short)
        .await
        .unwrap();
    sleep(stage.part(2) + short).await;
    assert_eq!(seats.permits().await.unwrap(), 2);
    let permit = plain.acquire().lease(stage.part(2) + short).await.unwrap();
    let id = permit.into_id().unwrap();
    pause().await;
    let used = Instant::now();
    seats.release(id).await.unwrap();
    goes(stage, used, async || seats.permits().await.unwrap() == 0).await;
    assert!(seats.release(id).await.is_err());
}

async fn number_that_was_there_without_an_end_keeps_none(stage: &Stage) {
    let client = stage.client().await;
    let plain = (
        client.semaphore("pool"),
        client.count_down_latch("jobs"),
        client.expirable_semaphore("seats"),
    );
    plain.0.try_set_permits(2).await.unwrap();
    plain.1.try_set_count(3).await.unwrap();
    plain.2.try_set_permits(2).await.unwrap();
    pool(&client, stage).add_permits(1).await.unwrap();
    drop(pool(&client, stage).acquire().await.unwrap());
    jobs(&client, stage).count_down().await.unwrap();
    seats(&client, stage).add_permits(1).await.unwrap();
    drop(seats(&client, stage).acquire().await.unwrap());
    sleep(stage.lease() + stage.part(2)).await;
    assert_eq!(plain.0.available_permits().await.unwrap(), 3);
    assert_eq!(plain.1.count().await.unwrap(), 2);
    assert_eq!(plain.2.permits().await.unwrap(), 3);
    assert!(plain.0.delete().await.unwrap());
    assert!(plain.1.delete().await.unwrap());
    assert!(plain.2.delete().await.unwrap());
}

/// A handle with another time, and one without, leave a later end as it is.
async fn end_is_never_moved_to_an_earlier_time(stage: &Stage) {
    let client = stage.client().await;
    let long = client.semaphore("pool").expire_after(2 * stage.lease());
    let used = Instant::now();
    long.try_set_permits(2).await.unwrap();
    client
        .semaphore("pool")
        .expire_after(stage.part(5))
        .add_permits(1)
        .await
        .unwrap();
    client.semaphore("pool").add_permits(1).await.unwrap();
    sleep(stage.lease()).await;
    assert_eq!(long.available_permits().await.unwrap(), 4);
    stage
        .eventually("gone", stage.lease(), async || {
            long.available_permits().await.unwrap() == 0
        })
        .await;
    stage.assert_took(used, 2 * stage.lease());
}

async fn time_that_cannot_be_is_refused_before_anything_is_sent(stage: &Stage) {
    let client = stage.faulty_client().await;
    for time in [
        Duration::ZERO,
        Duration::from_micros(999),
        Duration::from_secs(45 * 24 * 3600 + 1),
        Duration::MAX,
    ] {
        let pool = client.semaphore("pool").expire_after(time);
        let jobs = client.count_down_latch("jobs").expire_after(time);
        let seats = client.expirable_semaphore("seats").expire_after(time);
        let refusals: [Error; 5] = [
            refused(pool.try_set_permits(1).await),
            refused(pool.acquire().await),
            refused(jobs.try_set_count(1).await),
            refused(jobs.wait().await),
            refused(seats.acquire().await),
        ];
        for error in refusals {
            let text = error.to_string();
            assert!(
                text.contains("expire_after") && error.is_permanent(),
                "{text}"
            );
        }
    }
    assert_eq!(stage.faults().calls(Op::Adjust), 0);
    assert_eq!(stage.faults().calls(Op::Attempt), 0);
}

on_every_backend![
    each_use_of_a_semaphore_moves_its_end_and_then_nothing_is_left,
    neither_a_question_nor_a_refusal_moves_the_end_of_a_semaphore,
    permit_that_outlasts_its_semaphore_is_lost_and_a_waiter_is_told,
    latch_whose_counting_processes_died_is_told_and_set_again,
    latch_that_is_counted_in_time_opens_however_long_it_takes,
    renewed_permit_keeps_its_semaphore_and_then_both_go,
    permit_of_a_handle_without_an_end_keeps_its_semaphore,
    permit_with_a_lease_beyond_the_end_of_its_semaphore_keeps_it,
    each_change_of_an_expirable_semaphore_moves_its_end,
    number_that_was_there_without_an_end_keeps_none,
    end_is_never_moved_to_an_earlier_time,
    time_that_cannot_be_is_refused_before_anything_is_sent,
];
