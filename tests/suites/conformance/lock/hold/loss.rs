//! A hold that is lost: how and when its holder learns of it, and that the former holder can change nothing any more.

use std::time::Duration;

use distlock::test_util::{Answer, Verbs};
use distlock::{Client, Error, Loss};
use distlock_tests::lock_once;
use futures_util::future::poll_immediate;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

pub(super) const KEY: &str = "order:42";

#[track_caller]
pub(super) fn assert_lost(error: &Error, expected: Loss, completed: bool) {
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
        lock_once(&client, KEY).await;
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
    force_release_is_told_within_a_third_of_the_lease,
    take_over_is_told_and_the_new_owner_is_not_touched,
    hold_lost_to_the_clock_leaves_the_next_owner_alone,
    same_client_may_acquire_again_after_a_loss,
    scope_is_dropped_at_a_loss,
    nested_scopes_are_all_dropped_at_a_loss,
    loss_found_after_the_body_says_that_it_completed,
    try_run_gives_the_bodys_own_error_before_a_loss,
];
