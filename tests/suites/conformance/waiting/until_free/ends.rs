//! Waits that end otherwise: by an outage, the end of their client, a drop, or another identity.

use std::time::Duration;

use distlock::Error;
use distlock::test_util::{Sizes, sizes};
use distlock_tests::faults::{Fault, Op};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::{KEY, looked, spawned};
use crate::conformance::stage::{Stage, is_done_within, refused};

/// So many looks in a row have failed that the pause until the next one is a long one.
const PAUSED_LOOKS: usize = 5;

/// Too short for a wait without an answer to show that the server is away.
const A_MOMENT: Duration = Duration::from_millis(50);

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

async fn waiter_that_comes_after_an_outage_does_not_wait_for_the_pause_of_earlier_ones(
    stage: &Stage,
) {
    let client = stage.faulty_client().await;
    let looks = stage.faults().calls(Op::Inspect);
    stage.faults().always(Op::Inspect, Fault::FailBefore);
    let early = spawned(client.lock(KEY).until_free());
    // The pauses are twice as long each time, and none ends before the next look.
    looked(stage, looks + PAUSED_LOOKS).await;
    stage.faults().clear(Op::Inspect);
    let pause = Duration::from_millis(20) * (1 << (PAUSED_LOOKS - 1));
    // Where time is real, its answer may take longer than the pause.
    let wait = if stage.is_paused() {
        pause / 2
    } else {
        stage.lease()
    };
    client.lock(KEY).until_free().wait(wait).await.unwrap();
    early.await.unwrap().unwrap();
}

/// The look that comes after an outage has its answer, and the next one has none.
async fn failure_before_an_answer_is_no_reason_for_the_end_of_a_later_wait(stage: &Stage) {
    let client = stage.faulty_client().await;
    let looks = stage.faults().calls(Op::Inspect);
    stage.faults().next(Op::Inspect, Fault::FailBefore);
    stage
        .faults()
        .next(Op::Inspect, Fault::DelayReply(A_MOMENT));
    stage.faults().next(Op::Inspect, Fault::Never);
    let early = spawned(client.lock(KEY).until_free());
    looked(stage, looks + 2).await;
    // It comes during a look, which says nothing to it.
    let later = spawned(client.lock(KEY).until_free().wait(A_MOMENT * 2));
    early.await.unwrap().unwrap();
    let error = refused(later.await.unwrap());
    assert!(error.is_busy(), "{error}");
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
    waiter_that_comes_after_an_outage_does_not_wait_for_the_pause_of_earlier_ones,
    wait_on_a_closed_client_ends_as_closed,
    wait_that_is_dropped_at_any_point_leaves_nothing,
    waiter_of_a_client_with_another_identity_waits_on,
];

// Where time is real, the moments of this test could be longer.
mod exact {
    use super::failure_before_an_answer_is_no_reason_for_the_end_of_a_later_wait;

    on_memory![failure_before_an_answer_is_no_reason_for_the_end_of_a_later_wait];
}
