//! Waiters that must hear, and go in turn.

use std::time::Duration;

use distlock::test_util::Verbs;
use distlock_tests::flaws::Flaw;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::stage::{KEY, LEASE, MOMENT, SECOND, Stage, gets_in_within, hold, waiting};

pub(super) async fn release_just_after_subscribing_is_heard(stage: &Stage) -> bool {
    let held = hold(&stage.other()).await;
    let waiting = waiting(&stage.client()).await;
    held.release().await.unwrap();
    gets_in_within(SECOND, waiting).await
}

pub(super) async fn waiter_dropped_after_wake_passes_it_on(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&stage.other()).await;
    let (first, second) = (waiting(&client).await, waiting(&client).await);
    held.release().await.unwrap();
    first.abort();
    gets_in_within(SECOND, second).await
}

pub(super) async fn waiter_just_after_another_gave_up_hears(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&stage.other()).await;
    let gave_up = client.lock(KEY).acquire().wait(SECOND).await;
    assert!(gave_up.unwrap_err().is_busy());
    let waiting = waiting(&client).await;
    sleep(SECOND).await;
    held.release().await.unwrap();
    gets_in_within(SECOND, waiting).await
}

pub(super) async fn waiter_tries_when_its_subscription_stands_again(stage: &Stage) -> bool {
    let held = hold(&stage.other()).await;
    let waiting = waiting(&stage.client()).await;
    assert_eq!(stage.faults.mute(), 1);
    sleep(MOMENT).await;
    held.release().await.unwrap();
    stage.faults.unmute();
    gets_in_within(SECOND, waiting).await
}

pub(super) async fn waiter_after_a_fixed_lease_gets_one_that_is_kept(stage: &Stage) -> bool {
    let client = stage.client();
    let acquiring = client.lock(KEY).acquire().lease(SECOND);
    let first = acquiring.await.unwrap();
    let waiting = waiting(&client).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    sleep(2 * SECOND).await;
    second.is_held()
}

pub(super) async fn waiter_gets_a_key_that_was_deleted_without_a_message(stage: &Stage) -> bool {
    let (other, key) = (stage.other(), "order:43");
    let _held = other.lock(key).acquire().lease(10 * LEASE).await.unwrap();
    let waiting = tokio::spawn(stage.client().lock(key).acquire().into_future());
    sleep(SECOND).await;
    stage.faults.silence(key);
    assert!(other.lock(key).force_release().await.unwrap());
    gets_in_within(LEASE, waiting).await
}

pub(super) async fn waiter_gets_a_key_whose_lease_was_cut_short_without_a_message(
    stage: &Stage,
) -> bool {
    let other = stage.other();
    let verbs = Verbs::new(&other, other.id());
    verbs.attempt(KEY, 1, 10 * LEASE).await.unwrap();
    let waiting = waiting(&stage.client()).await;
    sleep(SECOND).await;
    stage.faults.silence(KEY);
    other.lock(KEY).force_release().await.unwrap();
    verbs.attempt(KEY, 1, LEASE / 2).await.unwrap();
    gets_in_within(LEASE, waiting).await
}

pub(super) async fn waiter_for_two_hot_keys_gets_both(stage: &Stage) -> bool {
    let client = stage.client();
    let mut singles = JoinSet::new();
    for key in ["a", "a", "a", "b", "b", "b"] {
        let acquire = client.lock(key).acquire();
        singles.spawn(async move {
            loop {
                acquire.clone().run(sleep(SECOND / 1_000)).await.unwrap();
            }
        });
    }
    sleep(SECOND).await;
    let lock = client.multi_lock(["a", "b"]);
    let once = || lock.acquire().wait(Duration::ZERO).into_future();
    let both = match stage.flaw {
        Some(Flaw::SeveralKeysByTries) => Flaw::by_tries(once, Some(SECOND)).await,
        _ => lock.acquire().wait(SECOND).await,
    };
    both.is_ok()
}

pub(super) async fn waiter_behind_one_that_is_not_polled_gets_in(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    let acquiring = client.lock(KEY).acquire().into_future();
    let mut unpolled = Flaw::around_waiter(stage.flaw, acquiring);
    assert!(timeout(MOMENT, &mut unpolled).await.is_err());
    let next = waiting(&client).await;
    held.release().await.unwrap();
    gets_in_within(3 * SECOND, next).await
}

pub(super) async fn reader_waits_for_the_writer(stage: &Stage) -> bool {
    let client = stage.client();
    let writing = stage.other().rw_lock(KEY).write().acquire().await;
    let _writing = writing.unwrap();
    client
        .rw_lock(KEY)
        .read()
        .try_acquire()
        .await
        .unwrap()
        .is_none()
}

pub(super) async fn waiter_that_came_first_is_first(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let held = other.fair_lock(KEY).acquire().await.unwrap();
    let first = tokio::spawn(client.fair_lock(KEY).acquire().into_future());
    sleep(MOMENT).await;
    let second = tokio::spawn(other.fair_lock(KEY).acquire().into_future());
    sleep(MOMENT).await;
    held.release().await.unwrap();
    sleep(MOMENT).await;
    first.is_finished() && !second.is_finished()
}
