//! How long a hold still lasts: asked for, extended, and counted as over somewhat before the server counts it so.

use std::pin::pin;
use std::time::Duration;

use distlock::{Builder, Client, Error, Guard, LockSource, Loss, Mode};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use futures_util::future::poll_immediate;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";
const KINDS: [Mode; 7] = [
    Mode::Reentrant,
    Mode::NonReentrant,
    Mode::Fair,
    Mode::Spin,
    Mode::Fenced,
    Mode::Read,
    Mode::Write,
];

#[track_caller]
fn assert_lost(error: &Error, expected: Loss) {
    let lost = matches!(error, Error::Lost { reason, .. } if *reason == expected);
    assert!(lost, "{error}");
}

/// A hold on the key with a fixed lease.
async fn leased(stage: &Stage, client: &Client) -> Guard {
    let acquire = client.lock(KEY).acquire().lease(stage.lease());
    acquire.await.unwrap()
}

/// A client whose holds count as ended a third of a lease before the server ends them.
async fn client_with_margin(stage: &Stage) -> (Client, Duration) {
    let margin = stage.part(3);
    let set = |builder: Builder| builder.faults(stage.faults()).lease_margin(margin);
    (stage.client_with(set).await, margin)
}

/// Asserts that the server still keeps others out for a guard that has just ended. Without a margin the next owner would be in.
async fn is_kept_for(stage: &Stage, guard: &Guard) {
    let holders = stage.client().await.lock(KEY).holders().await.unwrap();
    let owners: Vec<_> = holders.into_iter().map(|holder| holder.owner).collect();
    assert_eq!(owners, [guard.owner().to_string()]);
}

async fn time_left_shrinks_to_zero_without_a_call(stage: &Stage) {
    let lock = stage.faulty_client().await.lock(KEY);
    let (lease, start) = (stage.part(2), Instant::now());
    let guard = lock.acquire().lease(lease).await.unwrap();
    let calls = stage.faults().all_calls();
    let inside = guard.scope(async { distlock::current(KEY).unwrap() });
    let inside = inside.await.unwrap();
    sleep(lease / 2).await;
    let left = guard.remaining();
    assert!(
        left <= lease - lease / 2 && left > Duration::ZERO,
        "{left:?}"
    );
    assert!(start.elapsed() + left <= lease + stage.slack());
    assert!(inside.remaining() <= left);
    guard.lost().await;
    assert_eq!((guard.remaining(), inside.remaining()), Default::default());
    assert_eq!(stage.faults().all_calls(), calls, "a round trip");
}

async fn time_left_of_a_kept_hold_begins_anew_with_each_renewal_and_ends_with_a_loss(
    stage: &Stage,
) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let renewed = async || stage.faults().calls(Op::Renew) >= 2;
    stage.eventually("renewed", stage.lease(), renewed).await;
    let longer = async || guard.remaining() > stage.lease() / 2;
    stage.eventually("longer", stage.part(10), longer).await;
    other.lock(KEY).force_release().await.unwrap();
    guard.lost().await;
    // Most of its lease has not passed, and still nothing is left.
    assert_eq!(guard.remaining(), Duration::ZERO);
}

/// Waits until the lease that the guard was acquired with is over, and sees that others are kept out.
async fn outlasts_its_lease(stage: &Stage, guard: &Guard, lease: Duration, start: Instant) {
    let body = sleep((lease + lease / 4).saturating_sub(start.elapsed()));
    guard.scope(body).await.unwrap();
    assert!(guard.is_held());
    stage.is_taken(guard.key()).await;
}

async fn extended_guard_of_each_kind_outlasts_its_lease_and_ends_at_its_new_deadline(
    stage: &Stage,
) {
    let locks = LockSource::from(stage.client().await);
    for (n, mode) in KINDS.into_iter().enumerate() {
        let lease = stage.part(3);
        let key = format!("order:{n}");
        let start = Instant::now();
        let guard = locks
            .acquire(mode, [key.as_str()])
            .lease(lease)
            .await
            .unwrap();
        let asked = Instant::now();
        let deadline = guard.extend(stage.lease()).await.unwrap();
        assert!(
            deadline + stage.slack() >= asked + stage.lease(),
            "{mode:?}"
        );
        outlasts_its_lease(stage, &guard, lease, start).await;
        if n > 0 && !stage.is_paused() {
            guard.release().await.unwrap();
            continue;
        }
        let lost = timeout(2 * stage.lease(), guard.lost()).await;
        lost.expect("the new lease ends");
        stage.assert_took(asked, stage.lease());
        assert!(deadline <= Instant::now());
        assert_lost(&refused(guard.extend(stage.lease()).await), Loss::Expired);
        stage.is_free(&key).await;
    }
}

async fn multi_lock_is_extended_on_all_its_keys_or_not_at_all(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let keys = ["order:1", "order:2"];
    let (lease, start) = (stage.part(3), Instant::now());
    let guard = client
        .multi_lock(keys)
        .acquire()
        .lease(lease)
        .await
        .unwrap();
    guard.extend(2 * stage.lease()).await.unwrap();
    outlasts_its_lease(stage, &guard, lease, start).await;
    other.lock("order:2").force_release().await.unwrap();
    let later = refused(guard.extend(3 * stage.lease()).await);
    assert_lost(&later, Loss::Gone);
}

async fn scope_that_asks_for_more_time_is_cut_at_the_new_end_only(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (lease, start) = (stage.part(4), Instant::now());
    let guard = lock.acquire().lease(lease).await.unwrap();
    let mut steps = 0;
    let body = async {
        for _ in 0..4 {
            guard.extend(lease).await.unwrap();
            sleep(lease / 2).await;
            steps += 1;
        }
        std::future::pending::<()>().await;
    };
    assert_lost(&refused(guard.scope(body).await), Loss::Expired);
    assert_eq!(steps, 4);
    // The last one began after three steps of half a lease.
    stage.assert_took(start, lease * 3 / 2 + lease);
}

async fn shorter_extension_changes_and_sends_nothing(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let start = Instant::now();
    let guard = leased(stage, &client).await;
    let before = Instant::now() + guard.remaining();
    let deadline = guard.extend(stage.part(10)).await.unwrap();
    assert!(deadline + Duration::from_millis(1) >= before);
    assert_eq!(stage.faults().calls(Op::Renew), 0);
    let left = other.lock(KEY).remaining_lease().await.unwrap().unwrap();
    assert!(left + stage.slack() >= stage.lease() - start.elapsed());
    guard.release().await.unwrap();
}

async fn extension_whose_call_is_disturbed_counts_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    for fault in stage.survivable_faults() {
        let guard = leased(stage, &client).await;
        let asked = Instant::now();
        stage.faults().next(Op::Renew, fault);
        let deadline = guard.extend(2 * stage.lease()).await.unwrap();
        assert!(
            deadline + Duration::from_millis(5) >= asked + 2 * stage.lease(),
            "{fault:?}"
        );
        assert!(deadline <= Instant::now() + 2 * stage.lease(), "{fault:?}");
        guard.release().await.unwrap();
        stage.is_free(KEY).await;
    }
}

async fn extension_of_a_hold_that_the_server_gave_to_another_owner_is_refused(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = leased(stage, &client).await;
    other.lock(KEY).force_release().await.unwrap();
    let next = leased(stage, &other).await;
    assert_lost(&refused(guard.extend(3 * stage.lease()).await), Loss::Gone);
    assert!(!guard.is_held());
    let left = other.lock(KEY).remaining_lease().await.unwrap().unwrap();
    assert!(
        left <= stage.lease(),
        "the lease of the next owner: {left:?}"
    );
    next.release().await.unwrap();
}

async fn extension_without_an_answer_is_unavailable_and_the_guard_keeps_its_lease(stage: &Stage) {
    let client = stage.faulty_client().await;
    let (lease, start) = (2 * stage.lease(), Instant::now());
    let guard = client.lock(KEY).acquire().lease(lease).await.unwrap();
    stage.faults().always(Op::Renew, Fault::FailBefore);
    let error = refused(guard.extend(3 * stage.lease()).await);
    assert!(error.is_unavailable(), "{error}");
    stage.assert_took(start, stage.unavailable_after());
    assert!(guard.is_held());
    assert!(guard.remaining() <= lease - stage.unavailable_after());
    // The server is back: what was asked for is there without another call.
    stage.faults().clear_all();
    let longer = async || guard.remaining() > lease;
    stage.eventually("longer", stage.lease(), longer).await;
    guard.release().await.unwrap();
}

async fn extension_is_confirmed_although_another_guard_of_the_hold_asks_for_more_meanwhile(
    stage: &Stage,
) {
    let client = stage.faulty_client().await;
    let guard = leased(stage, &client).await;
    let other = guard.reenter().unwrap();
    let renewals = async |number| stage.faults().calls(Op::Renew) >= number;
    let stated = async || renewals(1).await;
    stage.eventually("stated", stage.lease(), stated).await;
    let answered = Fault::DelayReply(stage.most_delay());
    stage.faults().next(Op::Renew, answered);
    stage.faults().always(Op::Renew, Fault::Never);
    let asked = Instant::now();
    let more = async {
        let sent = async || renewals(2).await;
        stage.eventually("sent", stage.lease(), sent).await;
        poll_immediate(pin!(other.extend(4 * stage.lease()))).await
    };
    let (extended, more) = tokio::join!(guard.extend(2 * stage.lease()), more);
    assert!(more.is_none(), "{more:?}");
    let deadline = extended.unwrap();
    assert!(deadline + stage.slack() >= asked + 2 * stage.lease());
    // The server answers again: what the other guard has asked for is there as well.
    stage.faults().clear_all();
    let longer = async || other.remaining() > 3 * stage.lease();
    stage.eventually("longer", stage.lease(), longer).await;
    other.release().await.unwrap();
    guard.release().await.unwrap();
}

async fn guard_that_the_watchdog_renews_is_not_extended_and_neither_is_a_lease_out_of_bounds(
    stage: &Stage,
) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let error = refused(guard.extend(stage.lease()).await);
    assert!(error.to_string().contains("the watchdog renews"), "{error}");
    guard.release().await.unwrap();
    let guard = lock.acquire().lease(stage.lease()).await.unwrap();
    for lease in [Duration::ZERO, Duration::MAX] {
        let error = refused(guard.extend(lease).await);
        assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
    }
    guard.release().await.unwrap();
}

async fn hold_counts_as_ended_by_the_margin_before_the_next_owner_gets_in(stage: &Stage) {
    let (client, margin) = client_with_margin(stage).await;
    let other = stage.client().await;
    let start = Instant::now();
    let mut guard = Some(leased(stage, &client).await);
    let next = other.lock(KEY).acquire().wait(2 * stage.lease());
    let ended = async {
        guard.as_ref().unwrap().lost().await;
        is_kept_for(stage, guard.as_ref().unwrap()).await;
        stage.assert_took(start, stage.lease() - margin);
        let guard = guard.take().unwrap();
        assert_eq!(guard.remaining(), Duration::ZERO);
        // Neither its release nor anything else frees the key now.
        assert_lost(&refused(guard.release().await), Loss::Expired);
        assert!(start.elapsed() < stage.lease() || !stage.is_paused());
    };
    let (next, ()) = tokio::join!(next.into_future(), ended);
    assert!(
        start.elapsed() + Duration::from_millis(2) >= stage.lease(),
        "{:?}",
        start.elapsed()
    );
    next.unwrap().release().await.unwrap();
}

async fn release_in_time_frees_the_key_at_once_whatever_the_margin_is(stage: &Stage) {
    let (client, _) = client_with_margin(stage).await;
    let other = stage.client().await.lock(KEY);
    for lease in [None, Some(stage.lease())] {
        let acquire = client.lock(KEY).acquire();
        let guard = match lease {
            Some(lease) => acquire.lease(lease).await,
            None => acquire.await,
        };
        guard.unwrap().release().await.unwrap();
        let guard = other.try_acquire().await.unwrap().expect("free");
        guard.release().await.unwrap();
    }
}

async fn kept_hold_that_is_not_renewed_ends_by_the_margin_before_its_lease(stage: &Stage) {
    let (client, margin) = client_with_margin(stage).await;
    let other = stage.client().await;
    stage.faults().always(Op::Renew, Fault::FailBefore);
    let start = Instant::now();
    let guard = client.lock(KEY).acquire().await.unwrap();
    let next = other.lock(KEY).acquire().wait(2 * stage.lease());
    let ended = async {
        guard.lost().await;
        is_kept_for(stage, &guard).await;
        stage.assert_took(start, stage.lease() - margin);
    };
    let (next, ()) = tokio::join!(next.into_future(), ended);
    assert!(
        start.elapsed() + Duration::from_millis(2) >= stage.lease(),
        "{:?}",
        start.elapsed()
    );
    assert_lost(&refused(guard.release().await), Loss::Expired);
    next.unwrap().release().await.unwrap();
}

async fn kept_hold_with_the_longest_margin_is_kept_and_renewed_as_often_as_without(stage: &Stage) {
    let (client, _) = client_with_margin(stage).await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let leases = stage.size(2, 10);
    sleep(leases * stage.lease()).await;
    assert!(guard.is_held());
    let renewals = stage.faults().calls(Op::Renew);
    let expected = 3 * leases as usize;
    assert!(renewals.abs_diff(expected) <= 1, "{renewals} of {expected}");
    // The next one gets it with the release.
    let next = tokio::spawn(lock.acquire().into_future());
    stage.waiting(&client, 1).await;
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}

async fn guard_whose_own_lease_is_over_leaves_the_key_for_the_margin_although_the_hold_is_longer(
    stage: &Stage,
) {
    let (client, margin) = client_with_margin(stage).await;
    let (lock, other) = (client.lock(KEY), stage.client().await);
    let (short, start) = (stage.part(2), Instant::now());
    let guard = lock.acquire().lease(short).await.unwrap();
    let nested = guard.scope(async { lock.acquire().lease(3 * stage.lease()).await.unwrap() });
    let told = async || {
        let left = other.lock(KEY).remaining_lease().await.unwrap();
        left.is_some_and(|left| left > stage.lease())
    };
    drop(nested.await.unwrap());
    stage.eventually("lengthened", stage.part(4), told).await;
    guard.lost().await;
    assert!(start.elapsed() < short, "{:?}", start.elapsed());
    stage.assert_took(start, short - margin);
    assert_lost(&refused(guard.release().await), Loss::Expired);
    let next = other.lock(KEY).acquire().wait(stage.lease()).await.unwrap();
    assert!(
        start.elapsed() + Duration::from_millis(2) >= short,
        "{:?}",
        start.elapsed()
    );
    next.release().await.unwrap();
}

async fn longest_hold_ends_at_its_time_and_frees_the_key_whatever_the_margin_is(stage: &Stage) {
    let (client, _) = client_with_margin(stage).await;
    let (most, start) = (stage.part(2), Instant::now());
    let body = sleep(2 * stage.lease());
    let cut = client.lock(KEY).acquire().max_hold(most).run(body).await;
    assert_lost(&refused(cut), Loss::HeldTooLong);
    stage.assert_took(start, most);
    stage.is_free_within(stage.part(4), KEY).await;
}

async fn lease_that_is_no_longer_than_the_margin_is_refused_with_both(stage: &Stage) {
    let (client, margin) = client_with_margin(stage).await;
    let error = refused(client.lock(KEY).acquire().lease(margin).await);
    assert!(
        matches!(
            error,
            Error::InvalidConfig {
                setting: "lease",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("lease_margin"), "{error}");
    stage.is_free(KEY).await;
}

on_every_backend![
    time_left_shrinks_to_zero_without_a_call,
    time_left_of_a_kept_hold_begins_anew_with_each_renewal_and_ends_with_a_loss,
    extended_guard_of_each_kind_outlasts_its_lease_and_ends_at_its_new_deadline,
    multi_lock_is_extended_on_all_its_keys_or_not_at_all,
    scope_that_asks_for_more_time_is_cut_at_the_new_end_only,
    shorter_extension_changes_and_sends_nothing,
    extension_whose_call_is_disturbed_counts_once,
    extension_of_a_hold_that_the_server_gave_to_another_owner_is_refused,
    extension_without_an_answer_is_unavailable_and_the_guard_keeps_its_lease,
    extension_is_confirmed_although_another_guard_of_the_hold_asks_for_more_meanwhile,
    guard_that_the_watchdog_renews_is_not_extended_and_neither_is_a_lease_out_of_bounds,
    hold_counts_as_ended_by_the_margin_before_the_next_owner_gets_in,
    release_in_time_frees_the_key_at_once_whatever_the_margin_is,
    kept_hold_that_is_not_renewed_ends_by_the_margin_before_its_lease,
    kept_hold_with_the_longest_margin_is_kept_and_renewed_as_often_as_without,
    guard_whose_own_lease_is_over_leaves_the_key_for_the_margin_although_the_hold_is_longer,
    longest_hold_ends_at_its_time_and_frees_the_key_whatever_the_margin_is,
    lease_that_is_no_longer_than_the_margin_is_refused_with_both,
];
