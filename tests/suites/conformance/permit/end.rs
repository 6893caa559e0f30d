//! A permit that is out: the watchdog renews it, or it ends by its id from anywhere, by its lease or with the semaphore; and
//! which holders learn of it.

use std::time::Duration;

use distlock::{Blocker, Error, PermitId};
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, counts, is_idle, remove, set};
use crate::conformance::stage::{Stage, refused};

async fn permit_is_released_by_its_id_from_anywhere(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 3).await;
    let others = two.expirable_semaphore(KEY);
    let permits = seats.acquire_many(3).await.unwrap();
    let ids: Vec<PermitId> = permits.ids().collect();
    assert_eq!(ids[0], permits.id());
    let start = Instant::now();
    let text = ids[1].to_string();
    others.release(text.parse().unwrap()).await.unwrap();
    assert_eq!(counts(&seats).await, (1, 2, 3));
    let error = refused(others.release(ids[1]).await);
    assert!(
        error.is_lost() && error.to_string().contains(KEY),
        "{error}"
    );
    assert!(refused(others.remaining_lease(ids[1]).await).is_lost());
    assert!(refused(others.update_lease(ids[1], stage.lease()).await).is_lost());
    // Its guard hears of it at the next renewal, and what is left goes back.
    timeout(stage.lease() + stage.slack(), permits.lost())
        .await
        .unwrap();
    stage.assert_took(start, stage.part(3));
    assert!(!permits.is_held());
    let all = (3, 0, 3);
    stage
        .eventually("the rest back", stage.part(100), async || {
            counts(&seats).await == all
        })
        .await;
    stage.assert_took(start, stage.part(3));
    assert!(refused(permits.release().await).is_lost());
    remove(stage, &seats, 3).await;
}

async fn extended_permits_outlast_their_lease_and_are_extended_together_or_not_at_all(
    stage: &Stage,
) {
    let client = stage.client().await;
    let seats = set(&client, 3).await;
    let (lease, start) = (stage.part(3), Instant::now());
    let permits = seats.acquire_many(2).lease(lease).await.unwrap();
    let deadline = permits.extend(2 * stage.lease()).await.unwrap();
    assert!(deadline + stage.slack() >= start + 2 * stage.lease());
    sleep(lease * 5 / 4).await;
    assert!(permits.is_held() && permits.remaining() > Duration::ZERO);
    assert_eq!(counts(&seats).await, (1, 2, 3));
    let ids: Vec<PermitId> = permits.ids().collect();
    seats.release(ids[0]).await.unwrap();
    assert!(refused(permits.extend(4 * stage.lease()).await).is_lost());
    assert_eq!(permits.remaining(), Duration::ZERO);
    drop(permits);
    let all = (3, 0, 3);
    let back = async || counts(&seats).await == all;
    stage.eventually("back", stage.lease(), back).await;
    remove(stage, &seats, 3).await;
}

/// Its holder is gone, so nobody sends a message when it ends. That is after the waiter has looked for the first time.
async fn permit_that_nobody_returns_goes_to_a_waiter_at_its_end(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 1).await;
    let lease = Duration::from_secs(8);
    let start = Instant::now();
    let left = seats.acquire().lease(lease).await.unwrap();
    left.into_id().unwrap();
    is_idle(stage, &one).await;
    let waiting = two.expirable_semaphore(KEY);
    let next = timeout(lease * 3, waiting.acquire().into_future()).await;
    let next = next.expect("a free permit").unwrap();
    assert!(
        start.elapsed() + stage.slack() >= lease,
        "{:?}",
        start.elapsed()
    );
    next.release().await.unwrap();
    remove(stage, &seats, 1).await;
}

async fn release_of_a_guard_without_all_its_permits_gives_back_the_rest(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, 3).await;
    let permits = seats.acquire_many(2).await.unwrap();
    seats.release(permits.id()).await.unwrap();
    assert!(refused(permits.release().await).is_lost());
    assert_eq!(counts(&seats).await, (3, 0, 3));
    remove(stage, &seats, 3).await;
}

async fn permit_that_was_left_out_ends_by_id_or_with_its_lease(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 4).await;
    let others = two.expirable_semaphore(KEY);
    let start = Instant::now();
    let first = seats.acquire().await.unwrap().into_id().unwrap();
    let second = seats
        .acquire()
        .lease(stage.lease() * 2)
        .await
        .unwrap()
        .into_id()
        .unwrap();
    let both = seats.acquire_many(2).await.unwrap().into_ids().unwrap();
    is_idle(stage, &one).await;
    assert_eq!(counts(&others).await, (0, 4, 4));
    others.release(both[0]).await.unwrap();
    others
        .update_lease(both[1], stage.lease() * 3)
        .await
        .unwrap();
    let left = others.remaining_lease(both[1]).await.unwrap().unwrap();
    assert!(
        left > stage.lease() * 2 && left <= stage.lease() * 3,
        "{left:?}"
    );
    // Nobody renews it.
    stage
        .eventually("the first back", stage.lease(), async || {
            seats.remaining_lease(first).await.is_err()
        })
        .await;
    stage.assert_took(start, stage.lease());
    assert_eq!(counts(&others).await, (2, 2, 4));
    assert!(refused(others.release(first).await).is_lost());
    others.release(second).await.unwrap();
    others.release(both[1]).await.unwrap();
    remove(stage, &seats, 4).await;
}

async fn guard_that_is_lost_cannot_be_left(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, 1).await;
    let permit = seats.acquire().lease(stage.part(10)).await.unwrap();
    permit.lost().await;
    assert!(refused(permit.into_id()).is_lost());
    remove(stage, &seats, 1).await;
}

async fn expired_permit_goes_back_by_itself_and_wakes_a_waiter(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 1).await;
    let start = Instant::now();
    let permit = seats.acquire().lease(stage.part(2)).await.unwrap();
    let others = two.expirable_semaphore(KEY);
    let Error::Timeout {
        blocker: Blocker::Owner(Some(left)),
        ..
    } = refused(others.acquire().wait(Duration::ZERO).await)
    else {
        panic!("no end of the permit in the way is known");
    };
    assert!(left <= stage.part(2), "{left:?}");
    let next = others.acquire().await.unwrap();
    stage.assert_took(start, stage.part(2));
    assert!(!permit.is_held());
    assert!(refused(permit.release().await).is_lost());
    assert_eq!(counts(&seats).await, (0, 1, 1));
    assert!(next.is_held());
    next.release().await.unwrap();
    remove(stage, &seats, 1).await;
}

async fn watchdog_renews_all_permits_of_a_guard(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, 5).await;
    let (one, three) = (
        seats.acquire().await.unwrap(),
        seats.acquire_many(3).await.unwrap(),
    );
    let other = client.lock("beside").acquire().await.unwrap();
    sleep(stage.lease() * 3).await;
    assert!(one.is_held() && three.is_held() && other.is_held());
    assert_eq!(counts(&seats).await, (1, 4, 5));
    for id in three.ids() {
        let left = seats.remaining_lease(id).await.unwrap().unwrap();
        assert!(left <= stage.lease() + stage.slack(), "{left:?}");
    }
    one.release().await.unwrap();
    three.release().await.unwrap();
    other.release().await.unwrap();
    remove(stage, &seats, 5).await;
}

async fn shorter_lease_hastens_who_waits(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 1).await;
    let long = stage.lease() * 100;
    let id = seats
        .acquire()
        .lease(long)
        .await
        .unwrap()
        .into_id()
        .unwrap();
    let waiting = tokio::spawn(two.expirable_semaphore(KEY).acquire().into_future());
    stage.waiting(&two, 1).await;
    sleep(stage.part(10)).await;
    let start = Instant::now();
    seats.update_lease(id, stage.part(10)).await.unwrap();
    let next = timeout(long, waiting).await.unwrap().unwrap().unwrap();
    stage.assert_took(start, stage.part(10));
    next.release().await.unwrap();
    remove(stage, &seats, 1).await;
}

/// Redisson's `updateLeaseTime` publishes nothing.
async fn lease_that_is_cut_short_without_a_message_is_noticed_by_who_waits(stage: &Stage) {
    const LONG: Duration = Duration::from_secs(1_000);
    let (one, two) = (stage.client().await, stage.faulty_client().await);
    let seats = set(&one, 1).await;
    let permit = seats.acquire().lease(LONG).await.unwrap();
    let id = permit.into_id().unwrap();
    let waiting = tokio::spawn(two.expirable_semaphore(KEY).acquire().into_future());
    stage.waiting(&two, 1).await;
    sleep(stage.part(10)).await;
    let keys = [KEY.to_owned(), format!("{}{KEY}", stage.prefix())];
    keys.iter().for_each(|key| stage.faults().silence(key));
    seats.update_lease(id, stage.part(10)).await.unwrap();
    let next = timeout(LONG / 10, waiting).await.expect("it looks");
    keys.iter().for_each(|key| stage.faults().tell_again(key));
    next.unwrap().unwrap().release().await.unwrap();
    remove(stage, &seats, 1).await;
}

async fn body_ends_with_its_permit(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, 2).await;
    let permit = seats.acquire().await.unwrap();
    let start = Instant::now();
    seats.release(permit.id()).await.unwrap();
    let body = permit.scope(std::future::pending::<()>());
    assert!(refused(body.await).is_lost());
    stage.assert_took(start, stage.part(3));
    drop(permit);
    let run = seats
        .acquire()
        .lease(stage.part(10))
        .run(std::future::pending::<()>());
    assert!(refused(run.await).is_lost());
    assert_eq!(seats.acquire().run(async { 7 }).await.unwrap(), 7);
    remove(stage, &seats, 2).await;
}

async fn holders_and_waiters_of_a_removed_semaphore_are_told(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let seats = set(&one, 1).await;
    let permit = seats.acquire().await.unwrap();
    let waiting = tokio::spawn(two.expirable_semaphore(KEY).acquire().into_future());
    stage.waiting(&two, 1).await;
    let start = Instant::now();
    assert!(seats.delete().await.unwrap());
    permit.lost().await;
    stage.assert_took(start, stage.part(3));
    assert!(refused(permit.release().await).is_lost());
    assert!(refused(waiting.await.unwrap()).is_lost());
    let waiting = tokio::spawn(two.expirable_semaphore(KEY).acquire().into_future());
    stage.waiting(&two, 1).await;
    seats.set_permits(1).await.unwrap();
    let next = timeout(stage.lease() + stage.slack(), waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    next.release().await.unwrap();
    remove(stage, &seats, 1).await;
}

on_every_backend![
    permit_is_released_by_its_id_from_anywhere,
    extended_permits_outlast_their_lease_and_are_extended_together_or_not_at_all,
    release_of_a_guard_without_all_its_permits_gives_back_the_rest,
    permit_that_was_left_out_ends_by_id_or_with_its_lease,
    guard_that_is_lost_cannot_be_left,
    expired_permit_goes_back_by_itself_and_wakes_a_waiter,
    watchdog_renews_all_permits_of_a_guard,
    shorter_lease_hastens_who_waits,
    lease_that_is_cut_short_without_a_message_is_noticed_by_who_waits,
    permit_that_nobody_returns_goes_to_a_waiter_at_its_end,
    body_ends_with_its_permit,
    holders_and_waiters_of_a_removed_semaphore_are_told,
];
