//! What an acquisition may bound: how long it is held, how long its key stays taken, and how many wait.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Error, Loss, MultiLock};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, is_done_within, refused};

const KEY: &str = "job";

fn reason(error: &Error) -> Loss {
    match error {
        Error::Lost { reason, .. } => *reason,
        other => panic!("{other}"),
    }
}

async fn hold_that_lasts_too_long_is_lost_and_the_key_free(stage: &Stage) {
    let client = stage.client().await;
    let most = stage.lease() * 2;
    let start = Instant::now();
    let stuck = client.lock(KEY).acquire().max_hold(most);
    let error = stuck.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(reason(&error), Loss::HeldTooLong);
    stage.assert_took(start, most);
    stage.is_free(KEY).await;
}

async fn guard_that_nobody_ends_is_released_when_its_time_is_over(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let most = stage.part(2);
    let start = Instant::now();
    let forgotten = client.lock(KEY).acquire().max_hold(most).await.unwrap();
    let next = other.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, most);
    assert!(!forgotten.is_held());
    let error = forgotten.release().await.unwrap_err();
    assert_eq!(reason(&error), Loss::HeldTooLong);
    assert!(next.is_held());
    next.release().await.unwrap();
}

async fn clients_bound_counts_where_the_acquisition_has_none(stage: &Stage) {
    let most = stage.part(3);
    let client = stage.client_with(|builder| builder.max_hold(most)).await;
    let lock = client.lock(KEY);
    let bounded = lock.acquire().await.unwrap();
    bounded.lost().await;
    drop(bounded);
    let longer = lock.acquire().max_hold(most * 4).await.unwrap();
    assert!(!is_done_within(most * 2, longer.lost()).await);
    longer.release().await.unwrap();
}

async fn bound_does_not_end_what_ends_before_it(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let short = lock.acquire().max_hold(stage.lease());
    short.run(sleep(stage.part(10))).await.unwrap();
    let fixed = lock.acquire().max_hold(stage.lease() * 3);
    let start = Instant::now();
    let fixed = fixed.lease(stage.part(3)).await.unwrap();
    fixed.lost().await;
    stage.assert_took(start, stage.part(3));
}

async fn reentry_has_a_bound_of_its_own(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().max_hold(stage.part(3));
    let inner = outer.scope(inner.run(std::future::pending::<()>())).await;
    let error = inner.unwrap().unwrap_err();
    assert_eq!(reason(&error), Loss::HeldTooLong);
    assert!(outer.is_held());
    outer.release().await.unwrap();
}

async fn bound_is_not_lengthened_by_nested_guards_that_have_gone(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let most = stage.lease();
    let start = Instant::now();
    let hung = lock.acquire().max_hold(most).await.unwrap();
    let nested = hung.scope(async {
        lock.acquire()
            .max_hold(most * 5)
            .run(async {})
            .await
            .unwrap();
        lock.acquire().lease(most * 5).run(async {}).await.unwrap();
    });
    nested.await.unwrap();
    // Nobody asks the guard: it is the watchdog that frees the key.
    stage.is_free_within(most + stage.slack(), KEY).await;
    stage.assert_took(start, most);
    assert_eq!(
        reason(&hung.release().await.unwrap_err()),
        Loss::HeldTooLong
    );
}

async fn bound_of_a_nested_guard_counts_once_it_is_alone(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let outer = lock.acquire().await.unwrap();
    let start = Instant::now();
    let inner = lock.acquire().max_hold(stage.part(3));
    let inner = outer.scope(inner.into_future()).await.unwrap().unwrap();
    outer.release().await.unwrap();
    stage
        .is_free_within(stage.part(3) + stage.slack(), KEY)
        .await;
    stage.assert_took(start, stage.part(3));
    assert_eq!(
        reason(&inner.release().await.unwrap_err()),
        Loss::HeldTooLong
    );
}

async fn end_by_the_lease_is_not_told_as_one_by_the_bound(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = client
        .lock(KEY)
        .acquire()
        .max_hold(stage.lease() * 100)
        .await;
    let guard = guard.unwrap();
    stage.faults().always(Op::Renew, Fault::FailBefore);
    let lost = guard.scope(std::future::pending::<()>()).await.unwrap_err();
    stage.faults().clear(Op::Renew);
    assert_eq!(reason(&lost), Loss::Expired);
}

async fn bound_counts_anew_after_a_hand_over(stage: &Stage) {
    let most = stage.lease();
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let run = Instant::now();
    let first = lock.acquire().max_hold(most).await.unwrap();
    let bounded = tokio::spawn(lock.acquire().max_hold(most).into_future());
    stage.waiting(&client, 1).await;
    sleep(Duration::from_millis(10)).await; // less than the turn of one client
    let (owner, handed_over) = (first.owner(), Instant::now());
    first.release().await.unwrap();
    let bounded = bounded.await.unwrap().unwrap();
    assert!(bounded.owner() == owner || !stage.is_within_a_run(run));
    bounded.lost().await;
    stage.assert_took(handed_over, most);
}

async fn bound_of_the_guard_before_ends_no_hold_that_was_handed_over(stage: &Stage) {
    let most = stage.lease();
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let run = Instant::now();
    let first = lock.acquire().max_hold(most).await.unwrap();
    let owner = first.owner();
    let boundless = tokio::spawn(lock.acquire().into_future());
    stage.waiting(&client, 1).await;
    first.release().await.unwrap();
    let boundless = boundless.await.unwrap().unwrap();
    assert!(boundless.owner() == owner || !stage.is_within_a_run(run));
    assert!(!is_done_within(most * 2, boundless.lost()).await);
    boundless.release().await.unwrap();
}

async fn key_stays_taken_for_the_rest_of_its_time(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let time = stage.part(2);
    for fenced in [false, true] {
        let start = Instant::now();
        if fenced {
            let job = client.fenced_lock(KEY).acquire().hold_at_least(time);
            job.run(async {}).await.unwrap();
        } else {
            let job = client.lock(KEY).acquire().hold_at_least(time);
            job.run(async {}).await.unwrap();
        }
        stage.is_taken(KEY).await;
        let left = other.lock(KEY).remaining_lease().await.unwrap();
        assert!(left.is_some_and(|left| left <= time), "{left:?}");
        let next = other.lock(KEY).acquire().await.unwrap();
        stage.assert_took(start, time);
        next.release().await.unwrap();
    }
}

async fn waiter_that_trusted_a_long_lease_is_granted_when_the_rest_is_over(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (lock, time) = (client.lock(KEY), stage.part(2));
    let start = Instant::now();
    let job = lock.acquire().hold_at_least(time).await.unwrap();
    let (near, far) = (lock.acquire(), other.lock(KEY).acquire());
    let near = tokio::spawn(near.run(async {}));
    let far = tokio::spawn(far.run(async {}));
    stage.waiting(&client, 1).await;
    stage.waiting(&other, 1).await;
    job.release().await.unwrap();
    assert!(start.elapsed() < time, "too slow to tell");
    let both = async { (near.await.unwrap().unwrap(), far.await.unwrap().unwrap()) };
    // Half a lease later they would have found out by themselves.
    let in_time = timeout(time + stage.part(4) + stage.slack(), both).await;
    assert!(in_time.is_ok() && start.elapsed() >= time - stage.part(50));
}

async fn time_that_has_passed_leaves_nothing(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.part(10);
    let job = client.lock(KEY).acquire().hold_at_least(time);
    job.run(sleep(time * 2)).await.unwrap();
    stage.is_free(KEY).await;
}

async fn time_beyond_the_lease_is_kept_as_well(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.lease() * 2;
    let start = Instant::now();
    drop(
        client
            .lock(KEY)
            .acquire()
            .hold_at_least(time)
            .await
            .unwrap(),
    );
    let other = stage.client().await;
    let next = other.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, time);
    next.release().await.unwrap();
}

async fn several_keys_stay_taken_together(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.part(3);
    let both = client.multi_lock(["a", "b"]);
    both.acquire()
        .hold_at_least(time)
        .run(async {})
        .await
        .unwrap();
    stage.is_taken("a").await;
    stage.is_taken("b").await;
}

async fn keys_of_a_failed_acquisition_do_not_stay_taken(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let time = stage.lease() * 10;
    let blocker = other.lock("z").acquire().await.unwrap();
    // Two commands, of which the first is granted.
    let apart = MultiLock::of([client.fenced_lock("a").into(), client.lock("z").into()]);
    let busy = apart
        .acquire()
        .wait(Duration::ZERO)
        .hold_at_least(time)
        .await;
    assert!(refused(busy).is_busy());
    let soon = stage.part(10) + stage.slack();
    stage.is_free_within(soon, "a").await;
    // And one of which the scope around has the first key.
    let outer = client.lock("b").acquire().await.unwrap();
    let both = client.multi_lock(["b", "z"]).acquire();
    let both = both.wait(Duration::ZERO).hold_at_least(time);
    let busy = outer.scope(both.into_future()).await.unwrap();
    assert!(refused(busy).is_busy());
    outer.release().await.unwrap();
    stage.is_free_within(soon, "b").await;
    blocker.release().await.unwrap();
}

async fn rest_is_not_lengthened_by_a_renewal_that_comes_late(stage: &Stage) {
    let client = stage.faulty_client().await;
    let (time, late) = (stage.part(2), stage.part(10));
    let start = Instant::now();
    let job = client
        .lock(KEY)
        .acquire()
        .hold_at_least(time)
        .await
        .unwrap();
    stage.faults().next(Op::Renew, Fault::Late(late));
    sleep(stage.part(3) + stage.part(20)).await;
    assert!(
        stage.faults().calls(Op::Renew) > 0,
        "no renewal was under way"
    );
    job.release().await.unwrap();
    assert!(start.elapsed() < stage.part(3) + late, "too slow to tell");
    let other = stage.client().await;
    let next = other.lock(KEY).acquire().await.unwrap();
    stage.assert_took(start, time);
    next.release().await.unwrap();
}

async fn kinds_that_cannot_stay_taken_are_refused(stage: &Stage) {
    let client = stage.client().await;
    let time = stage.part(2);
    let fair = client.fair_lock(KEY).acquire().hold_at_least(time).await;
    assert!(matches!(refused(fair), Error::Unsupported { .. }));
    let members = [client.lock("a").into(), client.rw_lock("b").write().into()];
    let mixed = MultiLock::of(members).acquire().hold_at_least(time).await;
    assert!(matches!(refused(mixed), Error::Unsupported { .. }));
    let lease = client.lock(KEY).acquire().lease(time / 2);
    let shorter = refused(lease.hold_at_least(time).await);
    assert!(matches!(shorter, Error::InvalidConfig { .. }), "{shorter}");
    for endless in [
        client
            .lock(KEY)
            .acquire()
            .hold_at_least(time)
            .max_hold(time / 2),
        client.lock(KEY).acquire().hold_at_least(Duration::MAX),
        client.lock(KEY).acquire().max_hold(Duration::ZERO),
    ] {
        let error = refused(endless.await);
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
}

async fn one_waiter_too_many_is_refused_at_once(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let held = lock.acquire().max_waiters(0).await.unwrap();
    let error = refused(lock.acquire().max_waiters(0).await);
    assert!(error.is_overloaded(), "{error}");
    let first = tokio::spawn(lock.acquire().max_waiters(2).into_future());
    let second = tokio::spawn(lock.acquire().max_waiters(2).into_future());
    stage.waiting(&client, 2).await;
    assert_eq!(sizes(&client).waiter_slots, 2);
    let third = refused(lock.acquire().max_waiters(2).await);
    assert!(third.is_overloaded() && third.to_string().contains("2 already waiting"));
    let elsewhere = client.lock("other").acquire().max_waiters(2);
    elsewhere.run(async {}).await.unwrap();
    first.abort();
    stage.waiting(&client, 1).await;
    let fourth = tokio::spawn(lock.acquire().max_waiters(2).into_future());
    stage.waiting(&client, 2).await;
    assert!(refused(lock.acquire().max_waiters(2).await).is_overloaded());
    held.release().await.unwrap();
    for waiter in [second, fourth] {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn waiter_for_several_keys_counts_at_the_key_that_it_waits_for(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let a = other.lock("a").acquire().await.unwrap();
    let b = other.lock("b").acquire().await.unwrap();
    let both = client.multi_lock(["a", "b"]).acquire().max_waiters(1);
    let both = tokio::spawn(both.into_future());
    stage.waiting(&client, 1).await;
    let of_b = tokio::spawn(client.lock("b").acquire().max_waiters(1).into_future());
    stage.waiting(&client, 2).await;
    a.release().await.unwrap();
    // It goes to the queue of the other key, and is not one too many there: it has waited.
    let gone = async || client.lock("a").acquire().max_waiters(0).await.is_ok();
    stage
        .eventually("nobody waits for a", stage.lease(), gone)
        .await;
    let one_more = refused(client.lock("b").acquire().max_waiters(2).await);
    assert!(one_more.is_overloaded(), "{one_more}");
    b.release().await.unwrap();
    // It came before the other waiter.
    both.await.unwrap().unwrap().release().await.unwrap();
    of_b.await.unwrap().unwrap().release().await.unwrap();
}

async fn waiters_of_all_keys_are_bounded_together(stage: &Stage) {
    let set = |builder: distlock::Builder| builder.max_waiters(5).max_total_waiters(2);
    let client = stage.client_with(set).await;
    let keys = ["a", "b", "c"];
    let held = client.multi_lock(keys).acquire().await.unwrap();
    let first = tokio::spawn(client.lock("a").acquire().into_future());
    // In the server's own queue, and in none of this client.
    let second = tokio::spawn(client.fair_lock("b").acquire().into_future());
    stage.waiting(&client, 1).await;
    stage.has_places("b", 1).await;
    let third = refused(client.multi_lock(["c", "d"]).acquire().await);
    assert!(third.is_overloaded(), "{third}");
    held.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

on_every_backend! {
    hold_that_lasts_too_long_is_lost_and_the_key_free,
    guard_that_nobody_ends_is_released_when_its_time_is_over,
    clients_bound_counts_where_the_acquisition_has_none,
    bound_does_not_end_what_ends_before_it,
    reentry_has_a_bound_of_its_own,
    bound_is_not_lengthened_by_nested_guards_that_have_gone,
    bound_of_a_nested_guard_counts_once_it_is_alone,
    end_by_the_lease_is_not_told_as_one_by_the_bound,
    bound_counts_anew_after_a_hand_over,
    bound_of_the_guard_before_ends_no_hold_that_was_handed_over,
    key_stays_taken_for_the_rest_of_its_time,
    waiter_that_trusted_a_long_lease_is_granted_when_the_rest_is_over,
    time_that_has_passed_leaves_nothing,
    time_beyond_the_lease_is_kept_as_well,
    several_keys_stay_taken_together,
    keys_of_a_failed_acquisition_do_not_stay_taken,
    kinds_that_cannot_stay_taken_are_refused,
    one_waiter_too_many_is_refused_at_once,
    waiters_of_all_keys_are_bounded_together,
}

/// Exact on paused time alone. That no late command finds a hold on Redis, its state there shows.
#[test]
fn rest_is_not_lengthened_by_a_late_renewal() {
    crate::conformance::stage::memory(|stage| {
        Box::pin(rest_is_not_lengthened_by_a_renewal_that_comes_late(stage))
    });
}

in_one_slot! {
    waiter_for_several_keys_counts_at_the_key_that_it_waits_for,
}
