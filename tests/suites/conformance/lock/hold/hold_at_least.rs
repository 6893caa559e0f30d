//! `hold_at_least`: a key stays taken for the rest of its time.

use std::time::Duration;

use distlock::{Error, MultiLock};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "job";

async fn key_stays_taken_for_the_rest_of_its_time(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let time = stage.part(2);
    for fenced in [false, true] {
        let start = Instant::now();
        if fenced {
            let job = client.fenced_lock(KEY).acquire().hold_at_least(time);
            job.run(async {}).await.unwrap();
        } else {
            let job = client.lock(KEY).acquire().hold_at_least(time);
            job.run(async {}).await.unwrap();
        }
        stage.is_taken(KEY).await;
        let left = other.lock(KEY).remaining_lease().await.unwrap();
        assert!(left.is_some_and(|left| left <= time), "{left:?}");
        let next = other.lock(KEY).acquire().await.unwrap();
        stage.assert_took(start, time);
        next.release().await.unwrap();
    }
}

async fn holder_that_has_released_the_lock_is_told_as_such(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().hold_at_least(stage.lease()).await.unwrap();
    let owner = guard.owner().to_string();
    let [holder] = &lock.holders().await.unwrap()[..] else {
        panic!("one holder");
    };
    assert_eq!((&holder.owner, holder.is_released()), (&owner, false));
    guard.release().await.unwrap();
    let [holder] = &lock.holders().await.unwrap()[..] else {
        panic!("one holder");
    };
    assert_eq!((holder.count, holder.is_released()), (1, true));
    assert_eq!(holder.owner, format!("{owner}:rest"));
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    assert!(lock.is_locked().await.unwrap());
    assert!(lock.force_release().await.unwrap());
    assert!(lock.holders().await.unwrap().is_empty());
}

async fn waiter_that_trusted_a_long_lease_is_granted_when_the_rest_is_over(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (lock, time) = (client.lock(KEY), stage.part(2));
    let start = Instant::now();
    let job = lock.acquire().hold_at_least(time).await.unwrap();
    let (near, far) = (lock.acquire(), other.lock(KEY).acquire());
    let near = tokio::spawn(near.run(async {}));
    let far = tokio::spawn(far.run(async {}));
    stage.waiting(&client, 1).await;
    stage.waiting(&other, 1).await;
    job.release().await.unwrap();
    assert!(start.elapsed() < time, "too slow to tell");
    let both = async { (near.await.unwrap().unwrap(), far.await.unwrap().unwrap()) };
    // Half a lease later they would have looked at the key.
    let in_time = timeout(time + stage.part(4) + stage.slack(), both).await;
    assert!(in_time.is_ok() && start.elapsed() >= time - stage.part(50));
}

async fn time_that_has_passed_leaves_nothing(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.part(10);
    let job = client.lock(KEY).acquire().hold_at_least(time);
    job.run(sleep(time * 2)).await.unwrap();
    stage.is_free(KEY).await;
}

async fn time_beyond_the_lease_is_kept_as_well(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.lease() * 2;
    let start = Instant::now();
    drop(
        client
            .lock(KEY)
            .acquire()
            .hold_at_least(time)
            .await
            .unwrap(),
    );
    let other = stage.client().await;
    let next = other.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, time);
    next.release().await.unwrap();
}

async fn several_keys_stay_taken_together(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.part(3);
    let both = client.multi_lock(["a", "b"]);
    both.acquire()
        .hold_at_least(time)
        .run(async {})
        .await
        .unwrap();
    stage.is_taken("a").await;
    stage.is_taken("b").await;
}

async fn keys_of_a_failed_acquisition_do_not_stay_taken(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let time = stage.lease() * 10;
    let blocker = other.lock("z").acquire().await.unwrap();
    // Two commands, of which the first is granted.
    let apart = MultiLock::of([client.fenced_lock("a").into(), client.lock("z").into()]);
    let busy = apart
        .acquire()
        .wait(Duration::ZERO)
        .hold_at_least(time)
        .await;
    assert!(refused(busy).is_busy());
    let soon = stage.part(10) + stage.slack();
    stage.is_free_within(soon, "a").await;
    // And one of which the scope around has the first key.
    let outer = client.lock("b").acquire().await.unwrap();
    let both = client.multi_lock(["b", "z"]).acquire();
    let both = both.wait(Duration::ZERO).hold_at_least(time);
    let busy = outer.scope(both.into_future()).await.unwrap();
    assert!(refused(busy).is_busy());
    outer.release().await.unwrap();
    stage.is_free_within(soon, "b").await;
    blocker.release().await.unwrap();
}

async fn rest_is_not_lengthened_by_a_renewal_that_comes_late(stage: &Stage) {
    let client = stage.faulty_client().await;
    let (time, late) = (stage.part(2), stage.part(10));
    let start = Instant::now();
    let job = client
        .lock(KEY)
        .acquire()
        .hold_at_least(time)
        .await
        .unwrap();
    stage.faults().next(Op::Renew, Fault::Late(late));
    let under_way = async || stage.faults().calls(Op::Renew) > 0;
    stage
        .eventually("a renewal under way", stage.part(2), under_way)
        .await;
    job.release().await.unwrap();
    assert!(start.elapsed() < stage.part(3) + late, "too slow to tell");
    let other = stage.client().await;
    let next = other.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, time);
    next.release().await.unwrap();
}

async fn kinds_that_cannot_stay_taken_are_refused(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.part(2);
    let fair = client.fair_lock(KEY).acquire().hold_at_least(time).await;
    assert!(matches!(refused(fair), Error::Unsupported { .. }));
    let members = [client.lock("a").into(), client.rw_lock("b").write().into()];
    let mixed = MultiLock::of(members).acquire().hold_at_least(time).await;
    assert!(matches!(refused(mixed), Error::Unsupported { .. }));
    let lease = client.lock(KEY).acquire().lease(time / 2);
    let shorter = refused(lease.hold_at_least(time).await);
    assert!(matches!(shorter, Error::InvalidConfig { .. }), "{shorter}");
    for endless in [
        client
            .lock(KEY)
            .acquire()
            .hold_at_least(time)
            .max_hold(time / 2),
        client.lock(KEY).acquire().hold_at_least(Duration::MAX),
        client.lock(KEY).acquire().max_hold(Duration::ZERO),
    ] {
        let error = refused(endless.await);
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
}

on_every_backend! {
    key_stays_taken_for_the_rest_of_its_time,
    holder_that_has_released_the_lock_is_told_as_such,
    waiter_that_trusted_a_long_lease_is_granted_when_the_rest_is_over,
    time_that_has_passed_leaves_nothing,
    time_beyond_the_lease_is_kept_as_well,
    several_keys_stay_taken_together,
    keys_of_a_failed_acquisition_do_not_stay_taken,
    kinds_that_cannot_stay_taken_are_refused,
}

/// Exact on paused time alone. That no late command finds a hold on Redis, its state there shows.
#[test]
fn rest_is_not_lengthened_by_a_late_renewal() {
    crate::conformance::stage::memory(|stage| {
        Box::pin(rest_is_not_lengthened_by_a_renewal_that_comes_late(stage))
    });
}
