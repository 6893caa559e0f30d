//! Renewals that fail, that nobody hears of, or that come late: what they do to the deadline of a hold.

use distlock::Loss;
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep};

use super::loss::{KEY, assert_lost};
use crate::conformance::stage::{Stage, refused};

async fn lost_renewal_is_tried_again_and_the_hold_survives(stage: &Stage) {
    let client = stage.faulty_client().await;
    let faults = [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Delay(stage.part(5)),
        Fault::DelayReply(stage.part(5)),
        Fault::Late(stage.part(5)),
        Fault::Never,
        Fault::Double,
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        let guard = client.lock(KEY).acquire().await.unwrap();
        stage.faults().next(Op::Renew, fault);
        sleep(stage.size(stage.lease() * 4 / 3, 2 * stage.lease())).await;
        assert_eq!(stage.faults().hits(Op::Renew), n + 1, "{fault:?}");
        assert!(guard.is_held(), "{fault:?}");
        stage.is_taken(KEY).await;
        guard.release().await.unwrap();
    }
}

async fn outage_shorter_than_the_lease_is_survived(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Never] {
        let guard = client.lock(KEY).acquire().await.unwrap();
        stage.faults().always(Op::Renew, fault);
        sleep(stage.part(2)).await;
        stage.faults().clear(Op::Renew);
        sleep(stage.size(stage.lease() * 4 / 3, 3 * stage.lease())).await;
        assert!(guard.is_held(), "{fault:?}");
        guard.release().await.unwrap();
    }
}

async fn hold_that_cannot_be_renewed_is_lost_when_its_lease_is_over(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for fault in [Fault::FailBefore, Fault::Never, Fault::Delay(stage.lease())] {
        stage.faults().always(Op::Renew, fault);
        let hits = stage.faults().hits(Op::Renew);
        let start = Instant::now();
        let guard = client.lock(KEY).acquire().await.unwrap();
        let next = other.lock(KEY).acquire().into_future();
        let next = tokio::spawn(next);
        guard.lost().await;
        stage.assert_took(start, stage.lease());
        assert!(!guard.is_held());
        let next = next.await.unwrap().unwrap();
        stage.assert_took(start, stage.lease());
        assert_lost(&refused(guard.reenter()), Loss::Expired, false);
        assert_lost(&refused(guard.release().await), Loss::Expired, false);
        let tries = stage.faults().hits(Op::Renew) - hits;
        assert!(tries >= 2, "{fault:?} was tried {tries} times");
        stage.faults().clear(Op::Renew);
        next.release().await.unwrap();
    }
}

async fn unheard_renewals_do_not_move_the_deadline(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Renew, Fault::FailAfter);
    let start = Instant::now();
    let guard = client.lock(KEY).acquire().await.unwrap();
    guard.lost().await;
    stage.assert_took(start, stage.lease());
    // The server still has it, renewed and unheard: it is ended in the background.
    let free = async || !client.lock(KEY).is_locked().await.unwrap();
    stage.eventually("freed", stage.part(10), free).await;
    assert_lost(&refused(guard.release().await), Loss::Expired, false);
}

async fn deadline_counts_from_before_sending_and_not_from_the_answer(stage: &Stage) {
    let client = stage.faulty_client().await;
    let slow = Fault::DelayReply(stage.part(20));
    // The grant's answer is slow, and no renewal gets through.
    stage.faults().next(Op::Attempt, slow);
    stage.faults().always(Op::Renew, Fault::FailBefore);
    let start = Instant::now();
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, stage.part(20));
    guard.lost().await;
    stage.assert_took(start, stage.lease());
    drop(guard);
    stage.faults().clear(Op::Renew);
    // The answer of a renewal is slow, and no other gets through.
    let start = Instant::now();
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.faults().next(Op::Renew, slow);
    stage.faults().always(Op::Renew, Fault::FailBefore);
    guard.lost().await;
    stage.assert_took(start, stage.part(3) + stage.lease());
}

async fn renewal_under_way_at_the_release_revives_nothing(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for fault in [Fault::Delay(stage.part(20)), Fault::Late(stage.part(20))] {
        let guard = client.lock(KEY).acquire().await.unwrap();
        stage.faults().next(Op::Renew, fault);
        sleep(stage.part(3) + stage.part(100)).await;
        guard.release().await.unwrap();
        let next = other.lock(KEY).try_acquire().await.unwrap().unwrap();
        sleep(stage.part(10)).await;
        assert_eq!(other.lock(KEY).hold_count().await.unwrap(), 1);
        next.release().await.unwrap();
        stage.is_free(KEY).await;
    }
}

on_every_backend![
    lost_renewal_is_tried_again_and_the_hold_survives,
    outage_shorter_than_the_lease_is_survived,
    hold_that_cannot_be_renewed_is_lost_when_its_lease_is_over,
    unheard_renewals_do_not_move_the_deadline,
    deadline_counts_from_before_sending_and_not_from_the_answer,
    renewal_under_way_at_the_release_revives_nothing,
];
