//! Holds that are detached from their guard, and go on in another client or are released by it.

use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Builder, Client, DetachedHold, Error, FencedGuard, LockSource, Loss, Mode};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused, server_shows};

const KEY: &str = "order:42";
const KINDS: [Mode; 5] = [
    Mode::Reentrant,
    Mode::NonReentrant,
    Mode::Spin,
    Mode::Fair,
    Mode::NonReentrantFair,
];

/// As it gets to another process.
fn sent(detached: &DetachedHold) -> DetachedHold {
    detached.to_string().parse().unwrap()
}

#[track_caller]
fn assert_gone<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = refused(result);
    let gone = matches!(&error, Error::Lost { key, reason: Loss::Gone, .. } if key == KEY);
    assert!(gone, "{error}");
}

async fn detached(client: &Client) -> DetachedHold {
    let guard = client.lock(KEY).acquire().await.unwrap();
    sent(&guard.detach().unwrap())
}

async fn hold_of_each_kind_goes_on_in_another_client_and_keeps_others_out_all_the_time(
    stage: &Stage,
) {
    let (web, worker) = (stage.client().await, stage.client().await);
    for mode in KINDS {
        let guard = LockSource::from(&web).acquire(mode, [KEY]).await.unwrap();
        let owner = guard.owner();
        let detached = sent(&guard.detach().unwrap());
        assert_eq!((detached.key(), detached.owner()), (KEY, owner));
        stage.is_taken(KEY).await;
        assert_eq!(sizes(&web), Sizes::default());
        let guard = worker.attach(&detached).await.unwrap();
        assert_eq!(guard.owner().client_id(), worker.id());
        assert!(server_shows(&stage.client().await, &guard, 1).await);
        stage.is_taken(KEY).await;
        // It is one as any other: it is entered again where its kind allows that, and released.
        assert_eq!(
            guard.reenter().is_ok(),
            [Mode::Reentrant, Mode::Spin, Mode::Fair].contains(&mode)
        );
        guard.release().await.unwrap();
        stage.is_free(KEY).await;
        assert_eq!(sizes(&worker), Sizes::default());
    }
}

async fn attached_hold_is_renewed_and_a_detached_one_ends_with_its_lease(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    let start = Instant::now();
    let gone = detached(&web).await;
    let other = web.lock("other").acquire().await.unwrap();
    let other = sent(&other.detach().unwrap());
    let kept = worker.attach(&other).await.unwrap();
    stage.is_free_within(stage.lease(), KEY).await;
    stage.assert_took(start, stage.lease());
    assert_gone(worker.attach(&gone).await);
    assert_gone(worker.release_detached(&gone).await);
    sleep(stage.lease() / 2).await;
    assert!(kept.is_held());
    stage.is_taken("other").await;
    kept.release().await.unwrap();
}

async fn second_attach_is_refused_and_changes_nothing(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    let detached = detached(&web).await;
    let (one, two) = tokio::join!(worker.attach(&detached), web.attach(&detached));
    let (guard, refused) = match (one, two) {
        (Ok(guard), refused) | (refused, Ok(guard)) => (guard, refused),
        (Err(one), Err(two)) => panic!("{one}, {two}"),
    };
    assert_gone(refused);
    assert_gone(worker.attach(&detached).await);
    assert_gone(web.release_detached(&detached).await);
    assert!(server_shows(&stage.client().await, &guard, 1).await);
    guard.release().await.unwrap();
    assert_gone(worker.attach(&detached).await);
    stage.is_free(KEY).await;
}

async fn attach_whose_call_is_disturbed_has_the_hold_once(stage: &Stage) {
    let web = stage.client().await;
    for fault in stage.survivable_faults() {
        let set = |builder: Builder| builder.faults(stage.faults());
        let worker = stage.client_with(set).await;
        let detached = detached(&web).await;
        stage.faults().next(Op::Attempt, fault);
        let before = stage.faults().hits(Op::Attempt);
        let guard = worker.attach(&detached).await.unwrap();
        assert_eq!(stage.faults().hits(Op::Attempt), before + 1, "{fault:?}");
        assert!(server_shows(&web, &guard, 1).await, "{fault:?}");
        guard.release().await.unwrap();
        stage.is_free(KEY).await;
    }
    stage.is_quiet_within(stage.lease() * 2).await;
}

async fn attach_without_an_answer_is_unavailable_and_leaves_no_hold_that_nobody_has(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.faulty_client().await);
    let detached = detached(&web).await;
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        stage.faults().always(Op::Attempt, fault);
        let start = Instant::now();
        let error = refused(worker.attach(&detached).await);
        assert!(error.is_unavailable(), "{fault:?}: {error}");
        stage.assert_took(start, stage.unavailable_after());
        stage.faults().clear(Op::Attempt);
        if fault == Fault::FailBefore {
            // Nothing was carried out, so the hold is still there.
            let owners = web.lock(KEY).holders().await.unwrap();
            assert_eq!(owners[0].owner, detached.owner().to_string());
        }
    }
    stage.is_quiet_within(stage.lease()).await;
    assert_gone(worker.attach(&detached).await);
    stage.is_free(KEY).await;
}

async fn dropped_attach_leaves_no_hold_that_nobody_has(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.faulty_client().await);
    let detached = detached(&web).await;
    let late = stage.part(10);
    stage.faults().next(Op::Attempt, Fault::DelayReply(late));
    let waits = timeout(late / 2, worker.attach(&detached)).await;
    assert!(waits.is_err(), "it was answered");
    stage.is_free_within(stage.part(2), KEY).await;
    stage.is_quiet_within(stage.lease() * 2).await;
}

async fn what_the_former_client_still_sends_finds_nothing(stage: &Stage) {
    let (web, worker) = (stage.faulty_client().await, stage.client().await);
    // Its attempt lies in a socket, and is carried out when another owner has the key.
    stage.faults().next(Op::Attempt, Fault::Double);
    let guard = web.lock(KEY).acquire().await.unwrap();
    let renewal = stage.part(20);
    stage.faults().next(Op::Renew, Fault::Late(renewal));
    let renewed = async || stage.faults().hits(Op::Renew) > 0;
    stage.eventually("a renewal", stage.lease(), renewed).await;
    let detached = sent(&guard.detach().unwrap());
    let guard = worker.attach(&detached).await.unwrap();
    sleep(renewal * 2).await;
    assert!(server_shows(&worker, &guard, 1).await);
    web.close(stage.lease()).await.unwrap();
    stage.is_taken(KEY).await;
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

/// The first try of the acquisition was not answered, and is carried out when the hold has ended elsewhere.
async fn late_copy_of_the_attempt_of_a_detached_hold_keeps_others_out_for_a_moment(stage: &Stage) {
    let (web, worker) = (stage.faulty_client().await, stage.client().await);
    let late = stage.part(10);
    for mode in [Mode::Reentrant, Mode::Fair] {
        for attaches in [true, false] {
            stage.faults().next(Op::Attempt, Fault::Late(late));
            let guard = LockSource::from(&web).acquire(mode, [KEY]).await.unwrap();
            let start = Instant::now();
            let detached = sent(&guard.detach().unwrap());
            if attaches {
                worker
                    .attach(&detached)
                    .await
                    .unwrap()
                    .release()
                    .await
                    .unwrap();
            } else {
                worker.release_detached(&detached).await.unwrap();
            }
            stage.is_free(KEY).await;
            // By now it was carried out.
            sleep((late * 2).saturating_sub(start.elapsed())).await;
            stage.is_free_within(stage.part(5), KEY).await;
            stage.is_quiet_within(stage.part(5)).await;
        }
    }
    // What is sent again in the background is not waited for.
    for client in [web, worker] {
        client.close(stage.part(20)).await.unwrap();
    }
}

/// It is carried out while another owner has the lock, so it joins the queue.
async fn late_copy_of_the_attempt_of_a_detached_fair_lock_keeps_no_place_in_the_queue(
    stage: &Stage,
) {
    let (web, worker) = (stage.faulty_client().await, stage.client().await);
    let late = stage.part(10);
    for attaches in [true, false] {
        stage.faults().next(Op::Attempt, Fault::Late(late));
        let guard = web.fair_lock(KEY).acquire().await.unwrap();
        let detached = sent(&guard.detach().unwrap());
        if attaches {
            let guard = worker.attach(&detached).await.unwrap();
            guard.release().await.unwrap();
        } else {
            worker.release_detached(&detached).await.unwrap();
        }
        let next = worker.fair_lock(KEY).acquire().await.unwrap();
        if stage.is_paused() {
            stage.has_places(KEY, 1).await;
        } else {
            sleep(late * 2).await;
        }
        let left = async || stage.places(KEY).await == 0;
        stage
            .eventually("no place is left", stage.part(5), left)
            .await;
        next.release().await.unwrap();
        stage.is_quiet_within(stage.part(5)).await;
    }
}

/// Nobody attaches it, so nobody else knows when it has ended.
async fn detached_hold_ends_with_its_lease_although_a_late_copy_of_its_attempt_lengthens_that(
    stage: &Stage,
) {
    let web = stage.faulty_client().await;
    stage
        .faults()
        .next(Op::Attempt, Fault::Late(stage.lease() / 2));
    let detached = detached(&web).await;
    let start = Instant::now();
    stage.is_free_within(stage.lease(), KEY).await;
    stage.assert_took(start, stage.lease());
    assert_gone(web.attach(&detached).await);
    stage.is_quiet_within(stage.lease()).await;
}

async fn waiters_of_both_clients_get_in_when_the_attached_hold_ends_and_not_before(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    for mode in [Mode::Reentrant, Mode::Fair] {
        let guard = LockSource::from(&web).acquire(mode, [KEY]).await.unwrap();
        let wait = |client: &Client| {
            let acquire = LockSource::from(client).acquire(mode, [KEY]);
            let acquire = acquire.wait(stage.lease() * 2).into_future();
            tokio::spawn(async move { acquire.await?.release().await })
        };
        let (near, far) = (wait(&web), wait(&worker));
        if mode == Mode::Fair {
            stage.has_places(KEY, 2).await;
        } else {
            stage.waiting(&web, 1).await;
            stage.waiting(&worker, 1).await;
        }
        let detached = sent(&guard.detach().unwrap());
        let guard = worker.attach(&detached).await.unwrap();
        assert!(server_shows(&stage.client().await, &guard, 1).await);
        assert!(!near.is_finished() && !far.is_finished(), "{mode:?}");
        let start = Instant::now();
        guard.release().await.unwrap();
        for waiter in [near, far] {
            waiter.await.unwrap().expect("told");
        }
        assert!(start.elapsed() <= stage.part(2) + stage.slack());
    }
}

async fn waiter_hears_of_a_detached_hold_that_is_released_by_its_text(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.faulty_client().await);
    for fault in [None, Some(Fault::FailAfter), Some(Fault::Double)] {
        let detached = detached(&web).await;
        let acquire = web.lock(KEY).acquire().wait(stage.lease() * 2);
        let waiter = tokio::spawn(acquire.into_future());
        stage.waiting(&web, 1).await;
        if let Some(fault) = fault {
            stage.faults().next(Op::Release, fault);
        }
        let start = Instant::now();
        let released = worker.release_detached(&detached).await;
        match fault {
            None => released.unwrap(),
            // The answer of the try that has released it is lost.
            Some(Fault::FailAfter) => assert!(refused(released).is_unavailable()),
            Some(_) => assert_gone(released),
        }
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() <= stage.part(2) + stage.slack());
        assert_gone(worker.release_detached(&detached).await);
    }
}

async fn release_that_meets_an_attach_after_an_unanswered_try_is_not_confirmed(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    let releasing = stage.faulty_client().await;
    let detached = detached(&web).await;
    stage
        .faults()
        .next(Op::Release, Fault::FailLate(stage.part(20)));
    let release = {
        let detached = detached.clone();
        tokio::spawn(async move { releasing.release_detached(&detached).await })
    };
    let sent = async || stage.faults().hits(Op::Release) > 0;
    stage.eventually("a release", stage.lease(), sent).await;
    let guard = worker.attach(&detached).await.unwrap();
    let error = refused(release.await.unwrap());
    assert!(error.is_unavailable(), "{error}");
    assert!(server_shows(&web, &guard, 1).await);
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn release_whose_command_was_not_executed_is_repeated_and_confirmed(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.faulty_client().await);
    let detached = detached(&web).await;
    stage.faults().next(Op::Release, Fault::FailBefore);
    worker.release_detached(&detached).await.unwrap();
    assert_eq!(stage.faults().hits(Op::Release), 1);
    stage.is_free(KEY).await;
}

async fn fencing_token_travels_with_its_hold(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    let guard = web.fenced_lock(KEY).acquire().await.unwrap();
    let token = guard.token();
    let message = guard.detach().unwrap().to_string();
    let detached: DetachedHold<FencedGuard> = message.parse().unwrap();
    assert_eq!(detached.fencing_token(), Some(token));
    let guard = worker.attach(&detached).await.unwrap();
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
    // The worker knows it, and so does the server.
    for client in [worker, web] {
        let next = client.fenced_lock(KEY).acquire().await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

async fn fencing_token_that_was_not_issued_attaches_nothing(stage: &Stage) {
    let (web, worker) = (stage.client().await, stage.client().await);
    let guard = web.fenced_lock(KEY).acquire().await.unwrap();
    let token = guard.token();
    let text = guard.detach().unwrap().to_string();
    for highest in [token + 1, i64::MAX as u64] {
        let text = text.replace(&token.to_string(), &highest.to_string());
        let detached: DetachedHold<FencedGuard> = text.parse().unwrap();
        assert_gone(worker.attach(&detached).await);
    }
    // The hold has stayed.
    let detached: DetachedHold<FencedGuard> = text.parse().unwrap();
    let guard = worker.attach(&detached).await.unwrap();
    guard.release().await.unwrap();
    for client in [worker, web] {
        let next = client.fenced_lock(KEY).acquire().await.unwrap();
        assert!(next.token() > token && next.token() < i64::MAX as u64);
        next.release().await.unwrap();
    }
}

async fn guard_that_cannot_be_detached_is_refused_and_released(stage: &Stage) {
    let client = stage.client().await;
    let locks = LockSource::from(&client);
    for guard in [
        locks.acquire(Mode::Read, [KEY]).await.unwrap(),
        locks.acquire(Mode::Write, ["written"]).await.unwrap(),
        client.multi_lock(["a", "b"]).acquire().await.unwrap(),
    ] {
        let error = refused(guard.detach());
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    stage.is_quiet_within(stage.part(3)).await;
    let first = client.lock(KEY).acquire().await.unwrap();
    let second = first.reenter().unwrap();
    let error = refused(first.detach());
    assert!(error.to_string().contains("other guards"), "{error}");
    assert!(second.is_held());
    let detached = second.detach().unwrap();
    client.release_detached(&detached).await.unwrap();
    let lost = client.lock(KEY).acquire().await.unwrap();
    client.lock(KEY).force_release().await.unwrap();
    lost.lost().await;
    assert_gone(lost.detach());
}

async fn attach_to_a_client_that_is_closed_meanwhile_is_refused_and_released(stage: &Stage) {
    let (web, worker) = (stage.lasting_client().await, stage.lasting_client().await);
    let detached = detached(&web).await;
    let late = stage.part(10);
    stage.faults().next(Op::Attempt, Fault::DelayReply(late));
    let closing = async {
        sleep(late / 2).await;
        worker.close(stage.lease()).await.unwrap();
    };
    let (attached, ()) = tokio::join!(worker.attach(&detached), closing);
    let error = refused(attached);
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    // Sooner than the lease would end.
    stage.is_free_within(stage.part(10), KEY).await;
}

async fn guard_whose_own_lease_is_over_has_no_hold_to_detach(stage: &Stage) {
    let lease = stage.part(2);
    for margin in [Duration::ZERO, lease / 10] {
        let client = stage
            .client_with(|builder| builder.lease_margin(margin))
            .await;
        let guard = client.lock(KEY).acquire().lease(lease).await.unwrap();
        let longer = guard.reenter().unwrap();
        longer.extend(stage.lease() * 20).await.unwrap();
        longer.release().await.unwrap();
        guard.lost().await;
        // The server still has the hold, for the guard that has ended.
        let error = refused(guard.detach());
        assert!(error.is_lost(), "{error}");
        stage.is_free_within(stage.lease() * 2, KEY).await;
    }
}

on_every_backend![
    hold_of_each_kind_goes_on_in_another_client_and_keeps_others_out_all_the_time,
    attached_hold_is_renewed_and_a_detached_one_ends_with_its_lease,
    second_attach_is_refused_and_changes_nothing,
    attach_whose_call_is_disturbed_has_the_hold_once,
    attach_without_an_answer_is_unavailable_and_leaves_no_hold_that_nobody_has,
    dropped_attach_leaves_no_hold_that_nobody_has,
    what_the_former_client_still_sends_finds_nothing,
    late_copy_of_the_attempt_of_a_detached_hold_keeps_others_out_for_a_moment,
    late_copy_of_the_attempt_of_a_detached_fair_lock_keeps_no_place_in_the_queue,
    detached_hold_ends_with_its_lease_although_a_late_copy_of_its_attempt_lengthens_that,
    waiters_of_both_clients_get_in_when_the_attached_hold_ends_and_not_before,
    waiter_hears_of_a_detached_hold_that_is_released_by_its_text,
    release_that_meets_an_attach_after_an_unanswered_try_is_not_confirmed,
    release_whose_command_was_not_executed_is_repeated_and_confirmed,
    fencing_token_travels_with_its_hold,
    fencing_token_that_was_not_issued_attaches_nothing,
    guard_that_cannot_be_detached_is_refused_and_released,
    guard_whose_own_lease_is_over_has_no_hold_to_detach,
    attach_to_a_client_that_is_closed_meanwhile_is_refused_and_released,
];
