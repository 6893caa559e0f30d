//! Commands whose outcome is unknown: replies lost, doubled, late or never given, on the way in and on the way out.

use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Error, Loss};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, assert_lost_by, is_done_within, refused, server_shows};

const KEY: &str = "order:42";

#[track_caller]
fn assert_unavailable(error: &Error) {
    let unavailable = matches!(error, Error::Unavailable { key, .. } if key == KEY);
    assert!(
        unavailable && error.is_unavailable() && !error.is_busy(),
        "{error}"
    );
}

async fn unheard_grant_is_asked_for_again_by_the_same_owner(stage: &Stage) {
    let (client, observer) = (stage.faulty_client().await, stage.client().await);
    for lost in 1..4 {
        for _ in 0..lost {
            stage.faults().next(Op::Attempt, Fault::FailAfter);
        }
        let guard = client.lock(KEY).acquire().await.unwrap();
        assert_eq!(guard.owner().number(), lost, "another owner was taken");
        assert!(server_shows(&observer, &guard, 1).await);
        guard.release().await.unwrap();
        stage.is_free(KEY).await;
        assert_eq!(sizes(&client), Sizes::default());
    }
    assert_eq!(stage.faults().hits(Op::Attempt), 6);
}

async fn failed_attempt_is_tried_again(stage: &Stage) {
    let client = stage.faulty_client().await;
    for _ in 0..3 {
        stage.faults().next(Op::Attempt, Fault::FailBefore);
    }
    let guard = client.lock(KEY).acquire().await.unwrap();
    assert_eq!(stage.faults().calls(Op::Attempt), 4);
    guard.release().await.unwrap();
}

async fn doubled_attempt_is_one_hold_that_one_release_frees(stage: &Stage) {
    let (client, observer) = (stage.faulty_client().await, stage.client().await);
    stage.faults().next(Op::Attempt, Fault::Double);
    let guard = client.lock(KEY).acquire().await.unwrap();
    assert!(server_shows(&observer, &guard, 1).await);
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn attempts_that_fail_are_unavailable_after_a_time_and_not_busy(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Never] {
        stage.faults().always(Op::Attempt, fault);
        let start = Instant::now();
        let error = refused(client.lock(KEY).acquire().await);
        assert_unavailable(&error);
        stage.assert_took(start, stage.unavailable_after());
        stage.faults().clear(Op::Attempt);
        stage.is_quiet_within(stage.part(10)).await;
        stage.is_free(KEY).await;
    }
}

async fn attempts_that_fail_for_a_whole_wait_are_unavailable_and_not_busy(stage: &Stage) {
    let client = stage.faulty_client().await;
    let wait = stage.part(10);
    for fault in [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Never,
        Fault::Delay(2 * wait),
    ] {
        stage.faults().always(Op::Attempt, fault);
        let start = Instant::now();
        let error = refused(client.lock(KEY).acquire().wait(wait).await);
        assert_unavailable(&error);
        stage.assert_took(start, wait);
        stage.faults().clear(Op::Attempt);
        stage.is_quiet_within(stage.part(10)).await;
        stage.is_free(KEY).await;
    }
}

async fn single_try_that_fails_is_unavailable_and_leaves_nothing(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    for fault in [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Never,
        Fault::Late(stage.part(10)),
    ] {
        stage.faults().next(Op::Attempt, fault);
        stage.faults().next(Op::Attempt, fault);
        let start = Instant::now();
        assert_unavailable(&refused(lock.try_acquire().await));
        assert_unavailable(&refused(lock.acquire().wait(Duration::ZERO).await));
        assert!(
            start.elapsed() <= stage.part(3) + stage.slack(),
            "{fault:?}"
        );
        stage.is_quiet_within(stage.lease() * 3 / 2).await;
        stage.is_free(KEY).await;
    }
}

async fn failures_in_a_row_are_counted_anew_after_an_answer(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let held = other
        .lock(KEY)
        .acquire()
        .lease(stage.lease())
        .await
        .unwrap();
    let start = Instant::now();
    let acquiring = tokio::spawn(client.lock(KEY).acquire().into_future());
    // Not answered for less than the limit, at the beginning and when the lease is over.
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    sleep(stage.part(10)).await;
    stage.faults().clear(Op::Attempt);
    sleep(stage.part(2)).await;
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    sleep(stage.part(2)).await;
    assert!(stage.faults().hits(Op::Attempt) > 2);
    stage.faults().clear(Op::Attempt);
    let guard = acquiring.await.unwrap().unwrap();
    assert!(start.elapsed() >= stage.lease());
    drop((held, guard));
}

async fn late_attempt_of_a_waiter_who_gave_up_is_cleaned_up(stage: &Stage) {
    let client = stage.faulty_client().await;
    let wait = stage.part(10);
    stage.faults().always(Op::Attempt, Fault::Late(2 * wait));
    assert_unavailable(&refused(client.lock(KEY).acquire().wait(wait).await));
    stage.faults().clear(Op::Attempt);
    sleep(2 * wait).await;
    // Whatever came late is gone long before its lease is over, which is counted from the attempt.
    let free = async || !client.lock(KEY).is_locked().await.unwrap();
    stage.eventually("freed", stage.part(10), free).await;
    sleep(wait).await;
    stage.is_free(KEY).await;
}

async fn late_attempt_of_a_hold_that_was_granted_and_released_is_cleaned_up(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    stage.faults().next(Op::Attempt, Fault::Late(stage.part(3)));
    let guard = client.lock(KEY).acquire().await.unwrap();
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
    sleep(stage.part(3)).await;
    let next = other.lock(KEY).acquire().wait(stage.part(5)).await.unwrap();
    next.release().await.unwrap();
}

async fn late_attempt_of_a_hold_that_was_lost_is_cleaned_up(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for by_guard in [false, true] {
        let late = Fault::Late(stage.part(2) + stage.part(10));
        stage.faults().next(Op::Attempt, late);
        let start = Instant::now();
        let guard = client.lock(KEY).acquire().await.unwrap();
        other.lock(KEY).force_release().await.unwrap();
        if by_guard {
            assert!(refused(guard.release().await).is_lost());
        } else {
            guard.lost().await;
            drop(guard);
        }
        // It comes now, and its lease would go far beyond.
        sleep((stage.part(2) + stage.part(9)).saturating_sub(start.elapsed())).await;
        let wait = stage.part(5);
        let next = other.lock(KEY).acquire().wait(wait).await.unwrap();
        next.release().await.unwrap();
        stage.is_quiet_within(stage.part(10)).await;
        sleep(stage.lease()).await;
    }
}

async fn late_attempt_of_a_hold_that_lives_does_no_harm(stage: &Stage) {
    let (client, observer) = (stage.faulty_client().await, stage.client().await);
    stage
        .faults()
        .next(Op::Attempt, Fault::Late(stage.part(10)));
    let guard = client.lock(KEY).acquire().await.unwrap();
    let again = guard.reenter().unwrap();
    sleep(stage.lease()).await;
    assert!(guard.is_held());
    assert!(server_shows(&observer, &guard, 2).await);
    drop(again);
    guard.release().await.unwrap();
}

async fn grant_that_comes_when_its_lease_is_nearly_over_is_given_back(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    // Shorter than the response timeout: else the answer would count as none.
    let lease = stage.most_delay();
    stage
        .faults()
        .next(Op::Attempt, Fault::DelayReply(lease * 9 / 10));
    let start = Instant::now();
    let guard = lock.acquire().lease(lease).await.unwrap();
    let left = lock.remaining_lease().await.unwrap().unwrap();
    assert!(left > lease / 3 && guard.is_held(), "{left:?}");
    assert!(start.elapsed() >= lease * 9 / 10);
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn grant_that_comes_after_the_wait_is_given_back(stage: &Stage) {
    let client = stage.faulty_client().await;
    let wait = stage.part(20);
    for fault in [Fault::Delay(2 * wait), Fault::DelayReply(2 * wait)] {
        stage.faults().next(Op::Attempt, fault);
        let start = Instant::now();
        assert!(client.lock(KEY).acquire().wait(wait).await.is_err());
        stage.assert_took(start, wait);
        stage.is_quiet_within(stage.part(10)).await;
        stage.is_free(KEY).await;
    }
}

async fn unheard_release_is_sent_again_and_ok(stage: &Stage) {
    let client = stage.faulty_client().await;
    for lost in 1..4 {
        let guard = client.lock(KEY).acquire().await.unwrap();
        for _ in 0..lost {
            stage.faults().next(Op::Release, Fault::FailAfter);
        }
        guard.release().await.unwrap();
        stage.is_free(KEY).await;
        let run = client.lock(KEY).acquire().run(async {
            stage.faults().next(Op::Release, Fault::FailAfter);
        });
        run.await.unwrap();
    }
}

async fn release_that_fails_is_unavailable_after_a_time_and_the_background_goes_on(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [Fault::FailBefore, Fault::Never] {
        let guard = client.lock(KEY).acquire().await.unwrap();
        stage.faults().always(Op::Release, fault);
        let start = Instant::now();
        let error = refused(guard.release().await);
        assert_unavailable(&error);
        stage.assert_took(start, stage.unavailable_after());
        stage.is_taken(KEY).await;
        assert_eq!(sizes(&client).pending_releases, 1);
        stage.faults().clear(Op::Release);
        // Before the lease is over.
        stage.is_quiet_within(stage.part(2)).await;
        stage.is_free(KEY).await;
    }
}

async fn hold_whose_release_never_arrives_is_freed_by_its_lease(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for fault in [Fault::FailBefore, Fault::Never] {
        let guard = client.lock(KEY).acquire().await.unwrap();
        let start = Instant::now();
        stage.faults().always(Op::Release, fault);
        assert_unavailable(&refused(guard.release().await));
        let next = other.lock(KEY).acquire().await.unwrap();
        stage.assert_took(start, stage.lease());
        next.release().await.unwrap();
        // And no debt stays, though nobody ever answered.
        stage.is_quiet_within(stage.part(2)).await;
        stage.faults().clear(Op::Release);
    }
}

async fn body_of_a_run_whose_release_nobody_answers_gives_its_result(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Release, Fault::FailBefore);
    let start = Instant::now();
    let run = client.lock(KEY).acquire().run(async { 7 });
    assert_eq!(run.await.unwrap(), 7);
    stage.assert_took(start, stage.unavailable_after());
}

async fn release_of_a_hold_that_is_gone_is_lost_at_the_first_answer(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for fault in [None, Some(Fault::Delay(stage.part(100)))] {
        let guard = client.lock(KEY).acquire().await.unwrap();
        other.lock(KEY).force_release().await.unwrap();
        if let Some(fault) = fault {
            stage.faults().next(Op::Release, fault);
        }
        let error = refused(guard.release().await);
        assert_lost_by(&error, Loss::Gone);
    }
}

async fn dropped_guard_is_released_in_the_background_whatever_fails(stage: &Stage) {
    let client = stage.faulty_client().await;
    let faults = [
        None,
        Some(Fault::FailBefore),
        Some(Fault::FailAfter),
        Some(Fault::Delay(stage.part(20))),
        Some(Fault::Never),
        Some(Fault::Double),
        Some(Fault::Late(stage.part(20))),
    ];
    for fault in faults {
        let guard = client.lock(KEY).acquire().await.unwrap();
        if let Some(fault) = fault {
            stage.faults().next(Op::Release, fault);
        }
        drop(guard);
        stage.is_quiet_within(stage.part(3)).await;
        stage.is_free(KEY).await;
    }
}

async fn questions_that_fail_are_unavailable(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    stage.faults().always(Op::Inspect, Fault::FailBefore);
    stage.faults().always(Op::ForceRelease, Fault::FailBefore);
    assert_unavailable(&refused(lock.is_locked().await));
    assert_unavailable(&refused(lock.holders().await));
    assert_unavailable(&refused(lock.remaining_lease().await));
    assert_unavailable(&refused(lock.force_release().await));
    // A pair of waits that the fault never ends must not hang for ever either.
    stage.faults().always(Op::Inspect, Fault::Never);
    assert!(is_done_within(stage.part(2), lock.is_locked()).await);
    stage.faults().always(Op::ForceRelease, Fault::Never);
    assert!(is_done_within(stage.part(2), lock.force_release()).await);
}

on_every_backend![
    unheard_grant_is_asked_for_again_by_the_same_owner,
    failed_attempt_is_tried_again,
    doubled_attempt_is_one_hold_that_one_release_frees,
    attempts_that_fail_are_unavailable_after_a_time_and_not_busy,
    attempts_that_fail_for_a_whole_wait_are_unavailable_and_not_busy,
    single_try_that_fails_is_unavailable_and_leaves_nothing,
    failures_in_a_row_are_counted_anew_after_an_answer,
    late_attempt_of_a_waiter_who_gave_up_is_cleaned_up,
    late_attempt_of_a_hold_that_was_granted_and_released_is_cleaned_up,
    late_attempt_of_a_hold_that_was_lost_is_cleaned_up,
    late_attempt_of_a_hold_that_lives_does_no_harm,
    grant_that_comes_when_its_lease_is_nearly_over_is_given_back,
    grant_that_comes_after_the_wait_is_given_back,
    unheard_release_is_sent_again_and_ok,
    release_that_fails_is_unavailable_after_a_time_and_the_background_goes_on,
    hold_whose_release_never_arrives_is_freed_by_its_lease,
    body_of_a_run_whose_release_nobody_answers_gives_its_result,
    release_of_a_hold_that_is_gone_is_lost_at_the_first_answer,
    dropped_guard_is_released_in_the_background_whatever_fails,
    questions_that_fail_are_unavailable,
];
