//! A hold that is lost: how and when its holder is told, and that the former holder can do nothing any more.

use std::time::Duration;

use distlock::test_util::{Answer, Verbs};
use distlock::{Client, Error, Loss};
use distlock_tests::faults::{Fault, Op};
use futures_util::future::poll_immediate;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

#[track_caller]
fn assert_lost(error: &Error, expected: Loss, completed: bool) {
    let Error::Lost {
        key,
        reason,
        body_completed,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (&**key, *reason, *body_completed),
        (KEY, expected, completed)
    );
    assert!(error.is_lost() && error.body_completed() == completed);
}

/// Takes the key away from its holder, and holds it.
async fn take_over(by: &Client) -> distlock::Guard {
    let lock = by.lock(KEY);
    assert!(lock.force_release().await.unwrap());
    lock.try_acquire().await.unwrap().unwrap()
}

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

async fn force_release_is_told_within_a_third_of_the_lease(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    sleep(stage.part(10)).await;
    let start = Instant::now();
    assert!(other.lock(KEY).force_release().await.unwrap());
    assert!(guard.is_held());
    guard.lost().await;
    assert!(start.elapsed() <= stage.part(3) + stage.slack());
    assert!(!guard.is_held());
    assert_lost(&refused(guard.reenter()), Loss::Gone, false);
    assert_lost(&refused(guard.scope(async {}).await), Loss::Gone, false);
    assert_lost(&refused(guard.release().await), Loss::Gone, false);
}

async fn take_over_is_told_and_the_new_owner_is_not_touched(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for told in [true, false] {
        for release in [true, false] {
            let old = client.lock(KEY).acquire().await.unwrap();
            let new = take_over(&other).await;
            let start = Instant::now();
            if told {
                old.lost().await;
                assert!(start.elapsed() <= stage.part(3) + stage.slack());
            }
            if release {
                assert_lost(&refused(old.release().await), Loss::Gone, false);
            } else {
                drop(old);
            }
            sleep(stage.lease()).await;
            assert!(new.is_held());
            assert_eq!(other.lock(KEY).hold_count().await.unwrap(), 1);
            new.release().await.unwrap();
        }
    }
}

async fn hold_lost_to_the_clock_leaves_the_next_owner_alone(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for release in [true, false] {
        let lease = stage.part(10);
        let old = client.lock(KEY).acquire().lease(lease).await.unwrap();
        let new = other.lock(KEY).acquire().await.unwrap();
        if release {
            assert_lost(&refused(old.release().await), Loss::Expired, false);
        } else {
            drop(old);
        }
        sleep(stage.lease()).await;
        assert!(new.is_held());
        stage.is_taken(KEY).await;
        new.release().await.unwrap();
    }
}

async fn same_client_may_acquire_again_after_a_loss(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let old = client.lock(KEY).acquire().await.unwrap();
    other.lock(KEY).force_release().await.unwrap();
    let new = client.lock(KEY).acquire().await.unwrap();
    assert_ne!(old.owner(), new.owner());
    old.lost().await;
    drop(old);
    sleep(3 * stage.lease()).await;
    assert!(
        new.is_held(),
        "the old hold stands in the way of the new one's renewal"
    );
    new.release().await.unwrap();
}

async fn scope_is_dropped_at_a_loss(stage: &Stage) {
    struct OnDrop<'a>(&'a mut Option<Instant>);
    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            *self.0 = Some(Instant::now());
        }
    }
    let (client, other) = (stage.client().await, stage.client().await);
    let (mut dropped, mut forced) = (None, None);
    let body = async {
        let _on_drop = OnDrop(&mut dropped);
        sleep(stage.part(10)).await;
        other.lock(KEY).force_release().await.unwrap();
        forced = Some(Instant::now());
        std::future::pending::<()>().await;
    };
    let error = refused(client.lock(KEY).acquire().run(body).await);
    assert_lost(&error, Loss::Gone, false);
    let told = dropped.unwrap() - forced.unwrap();
    assert!(told <= stage.part(3) + stage.slack(), "{told:?}");
}

async fn nested_scopes_are_all_dropped_at_a_loss(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let lock = client.lock(KEY);
    let mut inner = None;
    let body = async {
        let deeper = async {
            other.lock(KEY).force_release().await.unwrap();
            std::future::pending::<()>().await;
        };
        inner = Some(lock.acquire().run(deeper).await);
    };
    assert_lost(&refused(lock.acquire().run(body).await), Loss::Gone, false);
    // Either the inner scope was dropped with its surroundings, or it reported the loss: the first to look decides.
    if let Some(inner) = inner {
        assert_lost(&refused(inner), Loss::Gone, false);
    }
}

async fn loss_found_after_the_body_says_that_it_completed(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let body = async {
        other.lock(KEY).force_release().await.unwrap();
        7
    };
    let error = refused(client.lock(KEY).acquire().run(body).await);
    assert_lost(&error, Loss::Gone, true);
    assert!(error.to_string().ends_with("; the body had completed"));
    let lease = stage.part(10);
    let run = client.lock(KEY).acquire().lease(lease).run(async {
        if stage.is_paused() {
            tokio::time::advance(lease).await;
        } else {
            std::thread::sleep(lease);
        }
    });
    // Cut or completed: the clock is compared before each poll, and this body needs at most two.
    assert!(refused(run.await).is_lost());
}

#[derive(Debug)]
enum Failed {
    Lock(Error),
    Own,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

async fn try_run_gives_the_bodys_own_error_before_a_loss(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let lock = client.lock(KEY);
    let run = lock.acquire().try_run(async { Ok::<_, Failed>(7) });
    assert_eq!(run.await.unwrap(), 7);
    let run = lock.acquire().try_run(async { Err::<(), _>(Failed::Own) });
    assert!(matches!(run.await, Err(Failed::Own)));
    let run = lock.acquire().try_run(async {
        other.lock(KEY).force_release().await?;
        Err::<(), _>(Failed::Own)
    });
    assert!(matches!(run.await, Err(Failed::Own)));
    let run = lock.acquire().try_run(async {
        other.lock(KEY).force_release().await?;
        Ok::<_, Failed>(7)
    });
    match run.await {
        Err(Failed::Lock(error)) => assert_lost(&error, Loss::Gone, true),
        other => panic!("{other:?}"),
    }
    let _held = other.lock(KEY).acquire().await.unwrap();
    let busy = lock.acquire().wait(Duration::ZERO);
    let run = busy.try_run(async { Ok::<_, Failed>(7) });
    assert!(matches!(run.await, Err(Failed::Lock(error)) if error.is_busy()));
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

async fn guard_that_was_lost_and_lives_on_is_in_nobodys_way(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let lost = client.lock(KEY).acquire().await.unwrap();
    assert!(other.lock(KEY).force_release().await.unwrap());
    lost.lost().await;
    let start = Instant::now();
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    assert_lost(&refused(lost.release().await), Loss::Gone, false);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// A release that was sent before its future was dropped is sent again in the background, and finds nothing then.
async fn release_that_nobody_waits_for_is_no_loss(stage: &Stage) {
    let client = stage.client().await;
    for _ in 0..3 {
        let guard = client.lock(KEY).acquire().await.unwrap();
        let mut release = Box::pin(guard.release());
        let _sent = poll_immediate(&mut release).await;
        // Time in which the server carries it out. A command whose caller is gone before it is written is not sent.
        sleep(stage.part(100)).await;
        drop(release);
        // It is granted again when the release was answered.
        client
            .lock(KEY)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    stage.is_quiet_within(stage.lease() * 3).await;
    assert_eq!(client.snapshot().losses, []);
}

async fn loss_that_a_release_finds_is_shown(stage: &Stage) {
    let client = stage.client().await;
    for is_dropped in [false, true] {
        let lock = client.non_reentrant_lock(KEY);
        let guard = lock.acquire().await.unwrap();
        let (owner, before) = (guard.owner(), client.snapshot().losses.len());
        stage.wipe().await;
        if is_dropped {
            drop(guard)
        } else {
            assert_lost(&guard.release().await.unwrap_err(), Loss::Gone, false)
        }
        let shown = async || client.snapshot().losses.len() > before;
        stage.eventually("the loss", stage.lease(), shown).await;
        let lost = client.snapshot().losses.swap_remove(0);
        assert_eq!((lost.owner, lost.loss), (owner, Loss::Gone));
    }
}

async fn lost_hold_that_a_copy_of_the_server_has_again_is_ended(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.wipe().await;
    stage.faults().reconnect();
    let told = async || !guard.is_held();
    stage.eventually("the loss", stage.lease(), told).await;
    let noted = async || client.snapshot().losses.len() == 1;
    stage.eventually("its record", stage.lease(), noted).await;
    assert_eq!(client.snapshot().losses[0].loss, Loss::Gone);
    let copy = Verbs::new(&other, client.id());
    let back = copy.attempt(KEY, guard.owner().number(), stage.lease() * 10);
    assert_eq!(back.await.unwrap(), Answer::Granted);
    stage.faults().reconnect();
    stage.is_free_within(stage.lease(), KEY).await;
}

on_every_backend![
    lost_hold_that_a_copy_of_the_server_has_again_is_ended,
    release_that_nobody_waits_for_is_no_loss,
    loss_that_a_release_finds_is_shown,
    guard_that_was_lost_and_lives_on_is_in_nobodys_way,
    lost_renewal_is_tried_again_and_the_hold_survives,
    outage_shorter_than_the_lease_is_survived,
    hold_that_cannot_be_renewed_is_lost_when_its_lease_is_over,
    unheard_renewals_do_not_move_the_deadline,
    deadline_counts_from_before_sending_and_not_from_the_answer,
    force_release_is_told_within_a_third_of_the_lease,
    take_over_is_told_and_the_new_owner_is_not_touched,
    hold_lost_to_the_clock_leaves_the_next_owner_alone,
    same_client_may_acquire_again_after_a_loss,
    scope_is_dropped_at_a_loss,
    nested_scopes_are_all_dropped_at_a_loss,
    loss_found_after_the_body_says_that_it_completed,
    try_run_gives_the_bodys_own_error_before_a_loss,
    renewal_under_way_at_the_release_revives_nothing,
];
