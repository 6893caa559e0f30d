//! Permits that are detached from their guard, and go on in another client or are released by it.

use distlock::{DetachedHold, ExpirablePermit};
use distlock_tests::faults::{Fault, Op};
use tokio::time::sleep;

use super::{KEY, counts, is_idle, remove, set};
use crate::conformance::stage::{Stage, refused};

async fn permits_go_on_in_another_client_under_ids_of_its_own_and_are_counted_once(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.faulty_client().await);
    let seats = set(&web, 3).await;
    for fault in [
        None,
        Some(Fault::FailBefore),
        Some(Fault::FailAfter),
        Some(Fault::Double),
    ] {
        let guard = seats.acquire_many(2).await.unwrap();
        let before: Vec<_> = guard.ids().collect();
        let message = guard.detach().unwrap().to_string();
        let detached: DetachedHold<ExpirablePermit> = message.parse().unwrap();
        assert_eq!(counts(&seats).await, (1, 2, 3));
        if let Some(fault) = fault {
            stage.faults().next(Op::Attempt, fault);
        }
        let permits = worker.attach(&detached).await.unwrap();
        assert_eq!(counts(&seats).await, (1, 2, 3), "{fault:?}");
        assert_eq!(permits.ids().len(), 2);
        for id in before {
            assert!(refused(seats.release(id).await).is_lost());
        }
        assert!(refused(web.attach(&detached).await).is_lost());
        // They are renewed.
        sleep(stage.lease() * 5 / 4).await;
        assert!(permits.is_held());
        assert_eq!(counts(&seats).await, (1, 2, 3), "{fault:?}");
        permits.release().await.unwrap();
        assert_eq!(counts(&seats).await, (3, 0, 3), "{fault:?}");
    }
    is_idle(stage, &worker).await;
    remove(stage, &seats, 3).await;
}

async fn detached_permits_are_released_by_their_text_or_end_with_their_lease(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    let seats = set(&web, 3).await;
    let (one, two) = (
        seats.acquire_many(2).await.unwrap().detach().unwrap(),
        seats.acquire().await.unwrap().detach().unwrap(),
    );
    worker.release_detached(&one).await.unwrap();
    assert_eq!(counts(&seats).await, (2, 1, 3));
    assert!(refused(worker.release_detached(&one).await).is_lost());
    assert!(refused(worker.attach(&one).await).is_lost());
    let ended = async || seats.available_permits().await.unwrap() == 3;
    stage.eventually("ended", stage.lease(), ended).await;
    assert!(refused(worker.attach(&two).await).is_lost());
    assert_eq!(two.key(), KEY);
    remove(stage, &seats, 3).await;
}

/// The first try of the acquisition was not answered, and is carried out when the permits were released elsewhere.
async fn late_copy_of_the_attempt_of_detached_permits_takes_them_for_a_moment(stage: &Stage) {
    let (web, worker) = (stage.faulty_client().await, stage.client().await);
    let seats = set(&worker, 3).await;
    let late = stage.part(10);
    stage.faults().next(Op::Attempt, Fault::Late(late));
    let permits = web.expirable_semaphore(KEY).acquire_many(2).await.unwrap();
    let detached = permits.detach().unwrap();
    worker.release_detached(&detached).await.unwrap();
    assert_eq!(counts(&seats).await, (3, 0, 3));
    sleep(late * 2).await;
    let free = async || seats.available_permits().await.unwrap() == 3;
    stage.eventually("all are free", stage.part(5), free).await;
    remove(stage, &seats, 3).await;
}

on_every_backend![
    permits_go_on_in_another_client_under_ids_of_its_own_and_are_counted_once,
    detached_permits_are_released_by_their_text_or_end_with_their_lease,
    late_copy_of_the_attempt_of_detached_permits_takes_them_for_a_moment,
];
