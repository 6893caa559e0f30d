//! The end of a client: closing it, and what a dropped one leaves to be done.

use std::fmt::Debug;
use std::future::{IntoFuture as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Client, Error, Quorum};
use distlock_tests::faults::{Fault, Op};
use futures_util::future::poll_immediate;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, end, refused};

const KEY: &str = "order:42";

async fn close_waits_until_what_was_dropped_is_released(stage: &Stage) {
    let client = stage.faulty_client().await;
    let mut guards = Vec::new();
    for n in 0..100 {
        guards.push(client.lock(format!("k:{n}")).acquire().await.unwrap());
    }
    stage
        .faults()
        .always(Op::Release, Fault::Delay(stage.part(50)));
    drop(guards);
    client.close(stage.lease()).await.unwrap();
    assert_eq!(sizes(&client), Sizes::default());
    stage.is_free("k:0").await;
    stage.is_free("k:99").await;
}

async fn close_goes_on_until_failing_releases_get_through(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.faults().next(Op::Release, Fault::FailBefore);
    stage.faults().next(Op::Release, Fault::Never);
    stage.faults().next(Op::Release, Fault::FailAfter);
    drop(guard);
    client.close(stage.lease()).await.unwrap();
    stage.is_free(KEY).await;
}

async fn close_tells_at_its_deadline_what_is_still_owed(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.faults().always(Op::Release, Fault::FailBefore);
    drop(guard);
    let start = Instant::now();
    let error = refused(client.close(stage.part(6)).await);
    stage.assert_took(start, stage.part(6));
    let pending = matches!(error, Error::ReleasesPending { holds: 0, releases: 1, after, .. } if after == stage.part(6));
    assert!(pending && error.is_unavailable(), "{error}");
    stage.faults().clear(Op::Release);
    // Without limit.
    client.close(Duration::MAX).await.unwrap();
    stage.is_free(KEY).await;
}

async fn close_tells_the_hold_that_was_handed_over_to_a_waiter_that_nobody_polls(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let held = lock.acquire().await.unwrap();
    let mut waiting = Box::pin(lock.acquire().into_future());
    assert!(poll_immediate(&mut waiting).await.is_none());
    held.release().await.unwrap();
    let error = refused(client.close(Duration::ZERO).await);
    let told = matches!(
        error,
        Error::ReleasesPending {
            holds: 0,
            releases: 1,
            ..
        }
    );
    assert!(told && error.is_unavailable(), "{error}");
    drop(waiting);
    client.close(Duration::MAX).await.unwrap();
    stage.is_free(KEY).await;
}

async fn close_of_an_idle_client_is_immediate_also_twice(stage: &Stage) {
    let client = stage.client().await;
    let start = Instant::now();
    client.close(Duration::ZERO).await.unwrap();
    client.close(stage.lease()).await.unwrap();
    stage.assert_took(start, Duration::ZERO);
}

async fn closed_client_acquires_nothing_and_keeps_what_it_holds(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = client.lock("held").acquire().await.unwrap();
    holds(client.close(Duration::ZERO).await, 1);
    let attempts = stage.faults().calls(Op::Attempt);
    let lock = client.lock(KEY);
    let closed = |error: Error| {
        assert!(
            matches!(&error, Error::Closed { key, .. } if key == KEY),
            "{error}"
        );
        assert!(error.is_permanent());
    };
    closed(refused(lock.acquire().await));
    closed(refused(lock.try_acquire().await));
    closed(refused(lock.acquire().run(async {}).await));
    assert_eq!(stage.faults().calls(Op::Attempt), attempts);
    sleep(3 * stage.lease()).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    client.close(Duration::ZERO).await.unwrap();
}

/// A close found this number of holds, and no release that it would have to wait for.
fn holds(closed: Result<(), Error>, number: usize) {
    let error = refused(closed);
    let told =
        matches!(error, Error::ReleasesPending { holds, releases: 0, .. } if holds == number);
    assert!(told && !error.is_unavailable(), "{error}");
}

async fn close_waits_for_guards_that_live_in_other_tasks(stage: &Stage) {
    let client = stage.client().await;
    let locks: Vec<_> = (0..3).map(|n| client.lock(format!("k:{n}"))).collect();
    let mut handlers = JoinSet::new();
    for (n, lock) in (1..).zip(&locks) {
        let guard = lock.acquire().await.unwrap();
        let (work, by_drop) = (stage.part(6) * n, n == 1);
        handlers.spawn(async move {
            sleep(work).await;
            end(guard, by_drop).await;
        });
    }
    let start = Instant::now();
    client.close(stage.lease()).await.unwrap();
    stage.assert_took(start, stage.part(6) * 3);
    for n in 0..3 {
        stage.is_free(&format!("k:{n}")).await;
    }
    handlers.join_all().await;
}

async fn close_waits_for_the_answer_to_a_release_that_a_guard_sends(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage
        .faults()
        .next(Op::Release, Fault::DelayReply(stage.part(30)));
    let start = Instant::now();
    let closed = async {
        client.close(stage.lease()).await.unwrap();
        stage.assert_took(start, stage.part(30));
    };
    let (released, ()) = tokio::join!(guard.release(), closed);
    released.unwrap();
    stage.is_free(KEY).await;
}

async fn close_tells_how_many_holds_are_alive_and_they_go_on(stage: &Stage) {
    let client = stage.client().await;
    let plain = client.lock("plain").acquire().await.unwrap();
    let multi = client.multi_lock(["one", "two"]).acquire().await.unwrap();
    let semaphore = client.semaphore("permits");
    semaphore.try_set_permits(2).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let start = Instant::now();
    holds(client.close(stage.part(6)).await, 4);
    stage.assert_took(start, stage.part(6));
    assert!(plain.is_held() && multi.is_held());
    plain.release().await.unwrap();
    holds(client.close(Duration::ZERO).await, 3);
    multi.release().await.unwrap();
    permit.release().await.unwrap();
    client.close(Duration::ZERO).await.unwrap();
    assert!(semaphore.delete().await.unwrap());
}

async fn guard_whose_hold_is_lost_is_not_waited_for_by_a_close(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = client
        .lock(KEY)
        .acquire()
        .lease(stage.part(6))
        .await
        .unwrap();
    guard.lost().await;
    client.close(stage.lease()).await.unwrap();
    assert!(!guard.is_held());
    drop(other.lock(KEY).acquire().await.unwrap());
}

async fn close_ends_the_wait_of_all_that_stand_in_line(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let own = client.lock("own").acquire().await.unwrap();
    let held = other.lock("held").acquire().await.unwrap();
    let fair = other.fair_lock("fair").acquire().await.unwrap();
    let write = other.rw_lock("rw").write().acquire().await.unwrap();
    let waits = [
        client.lock("own").acquire(),
        client.lock("own").acquire(),
        client.lock("held").acquire(),
        client.lock("held").acquire(),
        client.spin_lock("held").acquire(),
        client.fair_lock("fair").acquire(),
        client.rw_lock("rw").read().acquire(),
        client.rw_lock("rw").write().acquire(),
        client.multi_lock(["free", "held"]).acquire(),
        Quorum::new([client.clone()]).lock("held").acquire(),
    ];
    let mut waiting = JoinSet::new();
    for wait in waits {
        waiting.spawn(wait.into_future());
    }
    sleep(stage.part(20)).await;
    assert!(waiting.try_join_next().is_none());
    holds(client.close(Duration::ZERO).await, 1);
    // What is freed from here on is for others.
    own.release().await.unwrap();
    for freed in [held, fair, write] {
        freed.release().await.unwrap();
    }
    while let Some(done) = waiting.join_next().await {
        let closed = refused(done.unwrap());
        assert!(matches!(&closed, Error::Closed { .. }), "{closed}");
    }
    for key in ["own", "held", "fair", "rw", "free"] {
        stage.is_free(key).await;
    }
}

/// The answer has arrived, and the task of the waiter runs only after its wait has ended. Nothing is wrong with the server.
async fn grant_that_is_taken_up_after_the_wait_is_given_back(stage: &Stage) {
    let client = stage.lasting_client().await;
    stage
        .faults()
        .next(Op::Attempt, Fault::DelayReply(stage.part(50)));
    let wait = client.lock(KEY).acquire().wait(stage.part(30));
    let mut waiting = Box::pin(wait.into_future());
    let polled = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending()));
    assert!(polled.await);
    sleep(stage.part(20)).await;
    let error = refused(waiting.await);
    assert!(error.is_busy(), "{error}");
    stage.is_free_within(stage.part(10), KEY).await;
}

/// Closes a client whose acquisition has its answer and is polled only after the close. Nothing is wrong with the server.
async fn closed_before_the_grant_is_taken_up<T: Debug>(
    stage: &Stage,
    acquire: impl AsyncFnOnce(Client) -> Result<T, Error>,
) {
    let client = stage.lasting_client().await;
    let answered = Fault::DelayReply(stage.part(50));
    stage.faults().next(Op::Attempt, answered);
    let mut acquiring = Box::pin(acquire(client.clone()));
    let polled = poll_fn(|cx| Poll::Ready(acquiring.as_mut().poll(cx).is_pending()));
    assert!(polled.await);
    sleep(stage.part(20)).await;
    client.close(stage.lease()).await.unwrap();
    let closed = refused(acquiring.await);
    assert!(matches!(&closed, Error::Closed { .. }), "{closed}");
    stage.is_free_within(stage.part(10), KEY).await;
}

async fn grant_that_is_taken_up_after_the_close_is_given_back(stage: &Stage) {
    let lock = |client: Client| client.lock(KEY);
    let several = |client: Client| client.multi_lock([KEY, "more"]);
    closed_before_the_grant_is_taken_up(stage, async |client| lock(client).acquire().await).await;
    closed_before_the_grant_is_taken_up(stage, async |client| several(client).acquire().await)
        .await;
    closed_before_the_grant_is_taken_up(stage, async |client| lock(client).try_acquire().await)
        .await;
    closed_before_the_grant_is_taken_up(stage, async |client| several(client).try_acquire().await)
        .await;
    let red = |client: Client| Quorum::new([client]).lock(KEY);
    closed_before_the_grant_is_taken_up(stage, async |client| red(client).acquire().await).await;
    closed_before_the_grant_is_taken_up(stage, async |client| red(client).try_acquire().await)
        .await;
}

async fn candidate_that_is_granted_the_lead_and_closed_before_it_takes_it_up_does_not_lead(
    stage: &Stage,
) {
    closed_before_the_grant_is_taken_up(stage, async |client| {
        client.leader(KEY).run(|_| async {}).await
    })
    .await;
}

async fn guard_outlives_its_client(stage: &Stage) {
    for by_drop in [false, true] {
        // The stage would keep the client alive, so this one is made beside it.
        let client = stage.unlisted_client().await;
        let guard = client.lock(KEY).acquire().await.unwrap();
        drop(client);
        sleep(stage.size(stage.lease() * 4 / 3, 3 * stage.lease())).await;
        assert!(guard.is_held());
        stage.is_taken(KEY).await;
        end(guard, by_drop).await;
        stage.is_quiet_within(stage.part(10)).await;
    }
}

async fn dropped_client_still_sends_its_pending_releases(stage: &Stage) {
    let client = stage.unlisted_client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.faults().next(Op::Release, Fault::FailBefore);
    stage.faults().next(Op::Release, Fault::Never);
    drop(guard);
    drop(client);
    stage.is_quiet_within(stage.part(2)).await;
    assert_eq!(stage.faults().calls(Op::Release), 3);
}

async fn tasks_of_a_dropped_client_end(stage: &Stage) {
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = alive();
    for _ in 0..3 {
        let client = stage.unlisted_client().await;
        drop(client.lock(KEY).acquire().await.unwrap());
        let waiting = client.lock(KEY).acquire().await.unwrap();
        assert!(alive() > before);
        drop((waiting, client));
    }
    stage
        .eventually("no task left", stage.part(10), async || alive() <= before)
        .await;
    stage.is_free(KEY).await;
}

on_every_backend![
    close_waits_until_what_was_dropped_is_released,
    close_goes_on_until_failing_releases_get_through,
    close_tells_at_its_deadline_what_is_still_owed,
    close_tells_the_hold_that_was_handed_over_to_a_waiter_that_nobody_polls,
    close_of_an_idle_client_is_immediate_also_twice,
    closed_client_acquires_nothing_and_keeps_what_it_holds,
    close_waits_for_guards_that_live_in_other_tasks,
    close_waits_for_the_answer_to_a_release_that_a_guard_sends,
    close_tells_how_many_holds_are_alive_and_they_go_on,
    guard_whose_hold_is_lost_is_not_waited_for_by_a_close,
    close_ends_the_wait_of_all_that_stand_in_line,
    guard_outlives_its_client,
    dropped_client_still_sends_its_pending_releases,
    tasks_of_a_dropped_client_end,
];

/// What depends on the instant at which a waiter's task runs.
mod on_paused_time {
    use super::{
        candidate_that_is_granted_the_lead_and_closed_before_it_takes_it_up_does_not_lead,
        grant_that_is_taken_up_after_the_close_is_given_back,
        grant_that_is_taken_up_after_the_wait_is_given_back,
    };

    on_memory![
        grant_that_is_taken_up_after_the_wait_is_given_back,
        grant_that_is_taken_up_after_the_close_is_given_back,
        candidate_that_is_granted_the_lead_and_closed_before_it_takes_it_up_does_not_lead,
    ];
}
