//! Permits under faults: answers that are lost, commands that come twice or late, futures that are dropped.

use std::time::Duration;

use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep};

use super::{KEY, counts, is_idle, remove, set};
use crate::conformance::stage::{Stage, drop_after, refused};

async fn lost_answers_and_doubled_commands_count_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let seats = set(&client, 5).await;
    for fault in [Fault::FailAfter, Fault::FailBefore, Fault::Double] {
        stage.faults().next(Op::Attempt, fault);
        let permits = seats.acquire_many(2).await.unwrap();
        assert_eq!(counts(&seats).await, (3, 2, 5), "{fault:?}");
        stage.faults().next(Op::Renew, fault);
        sleep(stage.part(2)).await;
        assert!(permits.is_held(), "{fault:?}");
        stage.faults().next(Op::Release, fault);
        let released = permits.release().await;
        // The second answer to a release that was carried out twice is that nothing is there.
        assert_eq!(released.is_ok(), fault != Fault::Double, "{fault:?}");
        assert_eq!(counts(&seats).await, (5, 0, 5), "{fault:?}");
        for faulty in 0..4 {
            let id = seats.acquire().await.unwrap().into_id().unwrap();
            stage.faults().next(Op::Adjust, fault);
            match faulty {
                0 => seats.add_permits(2).await.unwrap(),
                1 => seats.set_permits(5).await.unwrap(),
                2 => seats.update_lease(id, stage.lease() * 2).await.unwrap(),
                _ => assert!(!seats.try_set_permits(9).await.unwrap()),
            }
            let all = if faulty == 0 { 7 } else { 5 };
            assert_eq!(
                counts(&seats).await,
                (all - 1, 1, all),
                "{fault:?} {faulty}"
            );
            stage.faults().next(Op::Adjust, fault);
            seats.release(id).await.unwrap();
            assert_eq!(counts(&seats).await, (all, 0, all), "{fault:?} {faulty}");
        }
        assert!(seats.delete().await.unwrap());
        stage.faults().next(Op::Adjust, fault);
        assert!(seats.try_set_permits(5).await.unwrap());
    }
    remove(stage, &seats, 5).await;
}

async fn attempt_that_comes_after_its_withdrawal_takes_nothing(stage: &Stage) {
    let (client, observer) = (stage.faulty_client().await, stage.client().await);
    let seats = set(&client, 2).await;
    let looks = observer.expirable_semaphore(KEY);
    stage.faults().next(Op::Attempt, Fault::Late(stage.part(4)));
    assert!(refused(seats.try_acquire_many(2).await).is_unavailable());
    let start = Instant::now();
    // It would be withdrawn again soon, so nobody may look away.
    while start.elapsed() < stage.part(2) {
        assert_eq!(counts(&looks).await, (2, 0, 2), "{:?}", start.elapsed());
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(stage.faults().hits(Op::Attempt), 1);
    remove(stage, &seats, 2).await;
}

async fn acquisition_dropped_at_any_point_leaves_all_permits(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let seats = set(&client, 3).await;
    let others = other.expirable_semaphore(KEY);
    for polls in 0..8 {
        for blocked in [false, true] {
            let held = others
                .acquire_many(if blocked { 3 } else { 1 })
                .await
                .unwrap();
            let acquiring = drop_after(polls, seats.acquire_many(2).into_future());
            let release = async {
                sleep(stage.part(100)).await;
                held.release().await.unwrap();
            };
            let (acquired, ()) = tokio::join!(acquiring, release);
            if let Some(permits) = acquired {
                let released = drop_after(polls, permits.unwrap().release());
                drop(released.await);
            }
            is_idle(stage, &client).await;
            assert_eq!(counts(&seats).await, (3, 0, 3), "{polls} {blocked}");
            let tried = drop_after(polls, Box::pin(seats.try_acquire()));
            drop(tried.await);
            is_idle(stage, &client).await;
            assert_eq!(counts(&seats).await, (3, 0, 3), "{polls} {blocked}");
        }
    }
    remove(stage, &seats, 3).await;
}

async fn change_dropped_at_any_point_is_made_once_or_not(stage: &Stage) {
    let client = stage.client().await;
    let seats = set(&client, 1).await;
    for polls in 0..4 {
        let before = counts(&seats).await.0;
        let added = drop_after(polls, Box::pin(seats.add_permits(1))).await;
        sleep(stage.part(50)).await;
        let after = counts(&seats).await.0;
        assert!(after == before || after == before + 1);
        assert!(added.is_none() || after == before + 1);
    }
    assert!(seats.delete().await.unwrap());
}

on_every_backend![
    lost_answers_and_doubled_commands_count_once,
    attempt_that_comes_after_its_withdrawal_takes_nothing,
    acquisition_dropped_at_any_point_leaves_all_permits,
    change_dropped_at_any_point_is_made_once_or_not,
];
