//! A client that takes another identity. What a copy of a process does is tested in the package `tests/gates/fork`.

use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Error, Loss};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

fn is_left_alone(error: &Error) -> bool {
    matches!(
        error,
        Error::Lost {
            reason: Loss::NewIdentity,
            ..
        }
    )
}

async fn renewed_client_sends_nothing_for_what_it_held_and_the_lease_ends_it(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let dropped = client.lock("dropped").acquire().await.unwrap();
    let (lost, former) = (tokio::spawn(guard.lost()), client.id());
    tokio::task::yield_now().await;
    client.renew_identity().unwrap();
    assert_ne!(client.id(), former);
    timeout(stage.part(10), lost).await.unwrap().unwrap();
    assert!(!guard.is_held());
    assert!(is_left_alone(&refused(guard.reenter())));
    assert!(is_left_alone(&refused(guard.release().await)));
    drop(dropped);
    let losses = client.snapshot().losses;
    let reasons: Vec<_> = losses.iter().map(|lost| lost.loss).collect();
    assert_eq!(reasons, [Loss::NewIdentity; 2]);
    // Taken, for the client itself too, and nobody renews it.
    assert!(client.lock(KEY).try_acquire().await.unwrap().is_none());
    assert!(other.lock("dropped").try_acquire().await.unwrap().is_none());
    assert_eq!(sizes(&client), Sizes::default());
    for key in [KEY, "dropped"] {
        let next = other.lock(key).acquire().wait(stage.lease() * 2);
        next.await.unwrap().release().await.unwrap();
    }
    let of_holds = [Op::Renew, Op::Release];
    assert_eq!(of_holds.map(|op| stage.faults().calls(op)), [0; 2]);
}

async fn waiters_of_a_renewed_client_begin_anew_and_are_granted(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = other.lock(KEY).acquire().await.unwrap();
    let latch = other.count_down_latch("latch");
    assert!(latch.try_set_count(1).await.unwrap());
    let waiting: Vec<_> = (0..3)
        .map(|_| tokio::spawn(client.lock(KEY).acquire().into_future()))
        .collect();
    let several = tokio::spawn(client.multi_lock([KEY, "more"]).acquire().into_future());
    let opened = client.count_down_latch("latch");
    let opened = tokio::spawn(async move { opened.wait().await });
    stage
        .eventually("all wait", stage.lease(), async || {
            sizes(&client).waiters == 4
        })
        .await;
    client.renew_identity().unwrap();
    let id = client.id();
    guard.release().await.unwrap();
    latch.count_down().await.unwrap();
    opened.await.unwrap().unwrap();
    for waiter in waiting {
        let guard = waiter.await.unwrap().unwrap();
        assert_eq!(guard.owner().client_id(), id);
        guard.release().await.unwrap();
    }
    let guard = several.await.unwrap().unwrap();
    assert_eq!(guard.owner().client_id(), id);
    guard.release().await.unwrap();
}

async fn waits_of_a_renewed_client_have_their_whole_time_again(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = other.lock(KEY).acquire().await.unwrap();
    let latch = other.count_down_latch("latch");
    assert!(latch.try_set_count(1).await.unwrap());
    let (wait, renewed) = (stage.part(4), stage.part(8));
    let start = Instant::now();
    let ended = |error: Error| {
        assert!(error.is_busy(), "{error}");
        stage.assert_took(start, renewed + wait);
    };
    let one = async { ended(refused(client.lock(KEY).acquire().wait(wait).await)) };
    let several = async {
        let both = client.multi_lock([KEY, "more"]);
        ended(refused(both.acquire().wait(wait).await));
    };
    let opened = async {
        let latch = client.count_down_latch("latch");
        ended(refused(latch.wait().timeout(wait).await));
    };
    let free = async {
        let lock = client.lock(KEY);
        ended(refused(lock.until_free().wait(wait).await));
    };
    let renewing = async {
        sleep(renewed).await;
        client.renew_identity().unwrap();
    };
    tokio::join!(one, several, opened, free, renewing);
    guard.release().await.unwrap();
    latch.count_down().await.unwrap();
}

async fn change_of_a_number_that_was_not_answered_fails_if_the_client_is_renewed(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let latch = client.count_down_latch("latch");
    assert!(latch.try_set_count(2).await.unwrap());
    let before = stage.faults().calls(Op::Adjust);
    // It is executed, and its answer is lost.
    stage.faults().always(Op::Adjust, Fault::FailAfter);
    let counting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.count_down().await }
    });
    let sent = async || stage.faults().calls(Op::Adjust) > before;
    stage.eventually("it is sent", stage.lease(), sent).await;
    client.renew_identity().unwrap();
    stage.faults().clear(Op::Adjust);
    let error = refused(counting.await.unwrap());
    assert!(error.is_unavailable(), "{error}");
    let observed = other.count_down_latch("latch");
    assert_eq!(observed.count().await.unwrap(), 1);
    latch.count_down().await.unwrap();
    assert_eq!(observed.count().await.unwrap(), 0);
}

async fn renewed_client_is_closed_if_it_was_closed_and_works_if_it_was_not(stage: &Stage) {
    let client = stage.client().await;
    let (lock, clone) = (client.lock(KEY), client.clone());
    for _ in 0..3 {
        client.renew_identity().unwrap();
        assert!(!client.is_closed() && clone.id() == client.id());
        // A lock of before is one of the client as it is now.
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.owner().client_id(), client.id());
        guard.release().await.unwrap();
    }
    client.close(Duration::MAX).await.unwrap();
    client.renew_identity().unwrap();
    assert!(client.is_closed());
    let error = refused(lock.acquire().await);
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}

on_every_backend![
    renewed_client_sends_nothing_for_what_it_held_and_the_lease_ends_it,
    waiters_of_a_renewed_client_begin_anew_and_are_granted,
    waits_of_a_renewed_client_have_their_whole_time_again,
    change_of_a_number_that_was_not_answered_fails_if_the_client_is_renewed,
    renewed_client_is_closed_if_it_was_closed_and_works_if_it_was_not,
];
