//! Waits that end otherwise: by an outage, the end of their client, a drop, or another identity.

use distlock::Error;
use distlock::test_util::{Sizes, sizes};
use distlock_tests::faults::{Fault, Op};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::{KEY, looked, spawned};
use crate::conformance::stage::{Stage, is_done_within, refused};

async fn wait_that_nobody_answers_is_unavailable(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = stage.client().await.lock(KEY).acquire().await.unwrap();
    for fault in [Fault::FailBefore, Fault::Never] {
        stage.faults().always(Op::Inspect, fault);
        let start = Instant::now();
        let error = refused(client.lock(KEY).until_free().await);
        assert!(error.is_unavailable(), "{fault:?}: {error}");
        stage.assert_took(start, stage.unavailable_after());
        let (start, wait) = (Instant::now(), stage.part(10));
        let error = refused(client.lock(KEY).until_free().wait(wait).await);
        assert!(error.is_unavailable(), "{fault:?}: {error}");
        stage.assert_took(start, wait);
        stage.faults().clear(Op::Inspect);
    }
    guard.release().await.unwrap();
}

async fn waiter_outlives_a_short_outage_and_looks_again(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let looks = stage.faults().calls(Op::Inspect);
    stage.faults().next(Op::Inspect, Fault::FailBefore);
    stage.faults().next(Op::Inspect, Fault::FailAfter);
    let waiting = spawned(client.lock(KEY).until_free());
    looked(stage, looks + 3).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

async fn wait_on_a_closed_client_ends_as_closed(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.unlisted_client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let waiting = spawned(client.lock(KEY).until_free());
    looked(stage, 1).await;
    client.close(stage.lease()).await.unwrap();
    let later = client.lock(KEY).until_free().into_future();
    for ended in [waiting.await.unwrap(), later.await] {
        let error = refused(ended);
        assert!(matches!(error, Error::Closed { .. }), "{error}");
    }
    guard.release().await.unwrap();
}

async fn wait_that_is_dropped_at_any_point_leaves_nothing(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    for polls in 0..20 {
        let waiting = client.lock(KEY).until_free().into_future();
        let turns = async {
            for _ in 0..polls {
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            ended = waiting => panic!("{ended:?}"),
            () = turns => {}
        }
    }
    let quiet = async || stage.listened_channels().await == 0;
    stage.eventually("quiet", stage.lease(), quiet).await;
    assert_eq!(sizes(&client), Sizes::default());
    // The next one waits as ever.
    let waiting = spawned(client.lock(KEY).until_free());
    assert!(
        !is_done_within(stage.part(20), async {
            while !waiting.is_finished() {
                sleep(stage.part(100)).await;
            }
        })
        .await
    );
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

async fn waiter_of_a_client_with_another_identity_waits_on(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.unlisted_client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let looks = stage.faults().calls(Op::Inspect);
    let waiting = spawned(client.lock(KEY).until_free());
    looked(stage, looks + 1).await;
    client.renew_identity().unwrap();
    looked(stage, looks + 2).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

on_every_backend![
    wait_that_nobody_answers_is_unavailable,
    waiter_outlives_a_short_outage_and_looks_again,
    wait_on_a_closed_client_ends_as_closed,
    wait_that_is_dropped_at_any_point_leaves_nothing,
    waiter_of_a_client_with_another_identity_waits_on,
];
