//! A server that does not answer, or whose replicas confirm nothing, and the tasks of a client that wait for one key meanwhile.

use std::time::Duration;

use distlock::{Blocker, Builder, Error};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

async fn all_in_line_are_told_of_an_outage_when_the_first_one_is(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [Fault::FailBefore, Fault::Never] {
        stage.faults().always(Op::Attempt, fault);
        let start = Instant::now();
        let before = stage.faults().calls(Op::Attempt);
        let mut told = JoinSet::new();
        for _ in 0..50 {
            let acquiring = client.lock(KEY).acquire().into_future();
            let faults = stage.faults().clone();
            told.spawn(async move {
                let error = refused(acquiring.await);
                (error, faults.calls(Op::Attempt))
            });
        }
        let told = told.join_all().await;
        stage.assert_took(start, stage.unavailable_after());
        let asked = stage.faults().calls(Op::Attempt);
        assert!(asked > before);
        for (error, asked_then) in told {
            assert!(error.is_unavailable() && !error.is_busy(), "{error}");
            assert_eq!(asked_then, asked, "somebody asked again");
        }
        stage.faults().clear(Op::Attempt);
        stage.is_free(KEY).await;
        // An answer, so that the next outage begins anew.
        drop(client.lock(KEY).acquire().await.unwrap());
    }
}

/// A free key, so the first in line is granted it each time. The replicas are away, and the others learn that as well.
async fn all_in_line_are_told_that_no_replica_confirms_when_the_first_one_is(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in [Fault::FailBefore, Fault::Never] {
        stage.faults().always(Op::Confirm, fault);
        let (start, before) = (Instant::now(), stage.faults().calls(Op::Confirm));
        let waits = (0..6).map(|_| client.lock(KEY).acquire().into_future());
        for waited in join_all(waits).await {
            let error = refused(waited);
            assert!(error.is_unavailable() && !error.is_busy(), "{error}");
        }
        stage.assert_took(start, stage.unavailable_after());
        assert!(stage.faults().calls(Op::Confirm) > before);
        stage.faults().clear(Op::Confirm);
        // A grant that stands, so that the next outage begins anew.
        let stands = client.lock(KEY).acquire().await.unwrap();
        stands.release().await.unwrap();
    }
}

async fn waits_in_line_that_end_while_no_replica_confirms_are_unavailable(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Confirm, Fault::Never);
    // Shorter than the outage may last, and long enough for a grant that is not confirmed.
    let wait = stage.unavailable_after() * 4 / 5;
    let before = stage.faults().calls(Op::Confirm);
    let waits = (0..6).map(|_| client.lock(KEY).acquire().wait(wait).into_future());
    for waited in join_all(waits).await {
        let error = refused(waited);
        assert!(error.is_unavailable() && !error.is_busy(), "{error}");
    }
    assert!(stage.faults().calls(Op::Confirm) > before);
    stage.faults().clear(Op::Confirm);
}

/// Their grants are withdrawn in turn, and each is refused meanwhile because of the other one's.
async fn wait_behind_a_grant_of_another_client_that_no_replica_confirms_is_unavailable(
    stage: &Stage,
) {
    // So long a grant waits for its confirmation.
    let wait = stage.unavailable_after() / 8;
    let faults = stage.faults();
    let set = |builder: Builder| builder.response_timeout(wait).faults(faults);
    let clients = [stage.client_with(set).await, stage.client_with(set).await];
    faults.always(Op::Confirm, Fault::Never);
    let mut told = JoinSet::new();
    for client in &clients {
        for n in 0..3 {
            // They end one after another, so that some end while the other client's grant is in the way. By then each client has
            // had a grant of its own.
            let wait = wait * (12 + n) / 3;
            let acquiring = client.lock(KEY).acquire().wait(wait).into_future();
            told.spawn(async move { refused(acquiring.await) });
        }
    }
    for error in told.join_all().await {
        assert!(error.is_unavailable() && !error.is_busy(), "{error}");
    }
    assert!(faults.hits(Op::Confirm) >= 2);
    stage.faults().clear(Op::Confirm);
}

async fn wait_for_a_key_that_is_held_is_a_timeout_while_no_replica_confirms(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let held = other.lock(KEY).acquire().await.unwrap();
    stage.faults().always(Op::Confirm, Fault::FailBefore);
    let free = client.lock("{order:42}:other").try_acquire().await;
    assert!(refused(free).is_unavailable());
    for wait in [Duration::ZERO, stage.part(20)] {
        let error = refused(client.lock(KEY).acquire().wait(wait).await);
        let is_held = matches!(
            &error,
            Error::Timeout {
                blocker: Blocker::Owner(Some(_)),
                ..
            }
        );
        assert!(is_held && error.is_busy(), "{error}");
    }
    stage.faults().clear(Op::Confirm);
    held.release().await.unwrap();
}

async fn waits_in_line_that_end_in_an_outage_are_unavailable_and_not_busy(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Attempt, Fault::Never);
    // The first one withdraws its attempt. An answer to that would show a server that is there.
    stage.faults().always(Op::Release, Fault::FailBefore);
    let start = Instant::now();
    let waits = (0..6).map(|_| {
        client
            .lock(KEY)
            .acquire()
            .wait(stage.part(10))
            .into_future()
    });
    for waited in join_all(waits).await {
        let error = refused(waited);
        let waited = matches!(error, Error::Unavailable { after, .. } if after >= stage.part(10));
        assert!(waited, "{error}");
    }
    stage.assert_took(start, stage.part(10));
    stage.faults().clear(Op::Attempt);
    stage.faults().clear(Op::Release);
}

async fn waiters_that_come_after_an_outage_are_served(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    let first = tokio::spawn(client.lock(KEY).acquire().into_future());
    stage.waiting(&client, 1).await;
    let second = tokio::spawn(client.lock(KEY).acquire().into_future());
    assert!(refused(first.await.unwrap()).is_unavailable());
    assert!(refused(second.await.unwrap()).is_unavailable());
    // They ask again, although the outage is known.
    stage.faults().clear(Op::Attempt);
    let late = (0..3).map(|_| client.lock(KEY).acquire().into_future());
    join_all(late.map(|acquiring| async { acquiring.await.unwrap().release().await.unwrap() }))
        .await;
    // The next outage counts anew: a shorter one is survived.
    for _ in 0..3 {
        stage.faults().next(Op::Attempt, Fault::FailBefore);
    }
    drop(client.lock(KEY).acquire().await.unwrap());
}

async fn wait_of_a_few_milliseconds_beside_a_live_server_is_a_timeout(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage
        .faults()
        .always(Op::Attempt, Fault::DelayReply(stage.part(50)));
    for _ in 0..stage.size(10, 50) {
        let error = refused(client.lock(KEY).acquire().wait(stage.part(500)).await);
        let too_short = matches!(
            &error,
            Error::Timeout {
                blocker: Blocker::Unanswered,
                ..
            }
        );
        assert!(too_short && error.is_busy(), "{error}");
        stage.is_quiet_within(stage.part(5)).await;
    }
    stage.faults().clear(Op::Attempt);
}

async fn short_waits_in_a_long_outage_are_unavailable_in_the_end(stage: &Stage) {
    let client = stage.faulty_client().await;
    stage.faults().always(Op::Attempt, Fault::Never);
    stage.faults().always(Op::Release, Fault::Never);
    let start = Instant::now();
    let wait = Duration::from_millis(5);
    loop {
        let error = refused(client.lock(KEY).acquire().wait(wait).await);
        if error.is_unavailable() {
            break;
        }
        assert!(error.is_busy(), "{error}");
        assert!(start.elapsed() < stage.unavailable_after() + stage.slack());
    }
    stage.faults().clear_all();
}

/// Nobody is known to hold the key.
async fn short_wait_in_line_behind_an_attempt_without_an_answer_is_not_held_by_another(
    stage: &Stage,
) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    stage.faults().always(Op::Attempt, Fault::Never);
    let before = stage.faults().calls(Op::Attempt);
    let first = tokio::spawn(lock.acquire().into_future());
    let is_asked = async || stage.faults().calls(Op::Attempt) > before;
    stage
        .eventually("an attempt", stage.lease(), is_asked)
        .await;
    let wait = stage.part(100);
    let error = refused(lock.acquire().wait(wait).await);
    assert!(!error.is_held_by_another(), "{error}");
    first.abort();
    // Nor is it for one that has become the first meanwhile.
    let waits = [wait, 2 * wait].map(|wait| lock.acquire().wait(wait).into_future());
    for waited in join_all(waits).await {
        let error = refused(waited);
        assert!(!error.is_held_by_another(), "{error}");
    }
    stage.faults().clear_all();
}

async fn wait_in_line_for_a_key_that_is_held_is_a_timeout_after_an_outage(stage: &Stage) {
    let client = stage.faulty_client().await;
    let held = client.lock(KEY).acquire().await.unwrap();
    let first = tokio::spawn(client.lock(KEY).acquire().into_future());
    stage.waiting(&client, 1).await;
    // The first waiter is refused, and sleeps until the lease ends. A later answer to it would end the outage too early, and
    // the test could not fail.
    sleep(stage.part(6)).await;
    // The last attempt of this client for some time is not answered.
    stage.faults().next(Op::Attempt, Fault::FailAfter);
    let other = client.lock("{order:42}:other").try_acquire().await;
    assert!(refused(other).is_unavailable());
    let error = refused(client.lock(KEY).acquire().wait(stage.part(50)).await);
    let is_in_line = matches!(
        &error,
        Error::Timeout {
            blocker: Blocker::Queue(Some(_)),
            ..
        }
    );
    assert!(is_in_line && error.is_busy(), "{error}");
    held.release().await.unwrap();
    drop(first.await.unwrap().unwrap());
}

async fn lease_of_a_former_owner_does_not_hide_an_outage(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    // It is not handed over, so the next waiter asks the server.
    let lock = client.fenced_lock(KEY);
    let long = other.fenced_lock(KEY).acquire().lease(stage.lease() * 10);
    let foreign = long.await.unwrap();
    let waiting = tokio::spawn(lock.acquire().into_future());
    // The first one in line counts as waiting only after its refusal, which tells it the end of the lease.
    stage.waiting(&client, 1).await;
    foreign.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    let first = tokio::spawn(lock.acquire().into_future());
    stage.waiting(&client, 1).await;
    stage.faults().always(Op::Attempt, Fault::FailBefore);
    held.release().await.unwrap();
    let error = refused(lock.acquire().wait(stage.part(10)).await);
    assert!(error.is_unavailable() && !error.is_busy(), "{error}");
    stage.faults().clear(Op::Attempt);
    drop(first.await.unwrap());
}

on_every_backend![
    lease_of_a_former_owner_does_not_hide_an_outage,
    all_in_line_are_told_of_an_outage_when_the_first_one_is,
    all_in_line_are_told_that_no_replica_confirms_when_the_first_one_is,
    waits_in_line_that_end_while_no_replica_confirms_are_unavailable,
    wait_behind_a_grant_of_another_client_that_no_replica_confirms_is_unavailable,
    wait_for_a_key_that_is_held_is_a_timeout_while_no_replica_confirms,
    waits_in_line_that_end_in_an_outage_are_unavailable_and_not_busy,
    waiters_that_come_after_an_outage_are_served,
    wait_of_a_few_milliseconds_beside_a_live_server_is_a_timeout,
    short_waits_in_a_long_outage_are_unavailable_in_the_end,
    short_wait_in_line_behind_an_attempt_without_an_answer_is_not_held_by_another,
    wait_in_line_for_a_key_that_is_held_is_a_timeout_after_an_outage,
];
