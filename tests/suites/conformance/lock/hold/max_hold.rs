//! `max_hold`: a hold that lasts too long is lost, and its key is free.

use std::time::Duration;

use distlock::{Builder, Error, Loss};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, is_done_within};

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

async fn clients_bound_counts_for_a_hold_that_it_attaches_from_then_on(stage: &Stage) {
    let most = stage.part(3);
    let web = stage.client().await;
    let worker = stage.client_with(|builder| builder.max_hold(most)).await;
    let guard = web.lock(KEY).acquire().await.unwrap();
    let detached = guard.detach().unwrap();
    sleep(stage.part(4)).await;
    let start = Instant::now();
    let guard = worker.attach(&detached).await.unwrap();
    let told = is_done_within(stage.lease() + stage.slack(), guard.lost()).await;
    assert!(told, "held for longer than the bound");
    stage.assert_took(start, most);
    assert_eq!(
        reason(&guard.release().await.unwrap_err()),
        Loss::HeldTooLong
    );
    stage.is_free_within(stage.slack(), KEY).await;
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

async fn bound_ends_a_longer_lease_and_frees_the_key_at_once(stage: &Stage) {
    let with_margin = |builder: Builder| builder.lease_margin(stage.part(3));
    let client = stage.client_with(with_margin).await;
    let lock = client.lock(KEY);
    let acquire = || lock.acquire().lease(stage.lease() * 3);
    let most = stage.part(3);
    let start = Instant::now();
    let stuck = acquire().max_hold(most).run(std::future::pending::<()>());
    assert_eq!(reason(&stuck.await.unwrap_err()), Loss::HeldTooLong);
    stage.is_free_within(stage.slack(), KEY).await;
    stage.assert_took(start, most);
    // The same for a guard inside of a scope, whose hold goes on.
    let outer = lock.acquire().await.unwrap();
    let inner = acquire().max_hold(most).run(std::future::pending::<()>());
    let inner = outer.scope(inner).await.unwrap();
    assert_eq!(reason(&inner.unwrap_err()), Loss::HeldTooLong);
    assert!(outer.is_held());
    outer.release().await.unwrap();
}

async fn bound_of_an_acquisition_does_not_end_an_extension_of_its_lease(stage: &Stage) {
    let client = stage.client().await;
    let most = stage.part(3);
    let acquire = client.lock(KEY).acquire().lease(stage.lease());
    let guard = acquire.max_hold(most).await.unwrap();
    let start = Instant::now();
    guard.extend(most * 2).await.unwrap();
    guard.lost().await;
    stage.assert_took(start, most * 2);
    assert_eq!(reason(&guard.release().await.unwrap_err()), Loss::Expired);
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

on_every_backend! {
    hold_that_lasts_too_long_is_lost_and_the_key_free,
    guard_that_nobody_ends_is_released_when_its_time_is_over,
    clients_bound_counts_where_the_acquisition_has_none,
    clients_bound_counts_for_a_hold_that_it_attaches_from_then_on,
    bound_does_not_end_what_ends_before_it,
    bound_ends_a_longer_lease_and_frees_the_key_at_once,
    bound_of_an_acquisition_does_not_end_an_extension_of_its_lease,
    reentry_has_a_bound_of_its_own,
    bound_is_not_lengthened_by_nested_guards_that_have_gone,
    bound_of_a_nested_guard_counts_once_it_is_alone,
    end_by_the_lease_is_not_told_as_one_by_the_bound,
    bound_counts_anew_after_a_hand_over,
    bound_of_the_guard_before_ends_no_hold_that_was_handed_over,
}
