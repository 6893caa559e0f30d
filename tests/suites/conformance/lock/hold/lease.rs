//! How long a hold lasts: renewed by the watchdog, fixed, and both in one hold.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Builder, Error, Loss};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use distlock_tests::size;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

#[track_caller]
fn assert_lost(error: &Error, expected: Loss) {
    let lost = matches!(error, Error::Lost { reason, .. } if *reason == expected);
    assert!(lost, "{error}");
}

async fn watchdog_keeps_a_hold_for_many_leases(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let patience = stage.size(3, 10) * stage.lease();
    let start = Instant::now();
    let error = refused(other.lock(KEY).acquire().wait(patience).await);
    assert!(error.is_busy(), "{error}");
    stage.assert_took(start, patience);
    assert!(guard.is_held());
    let renewals = stage.faults().calls(Op::Renew);
    assert!(
        (29..=31).contains(&renewals) || !stage.is_paused(),
        "{renewals}"
    );
    guard.release().await.unwrap();
    sleep(2 * stage.lease()).await;
    assert_eq!(
        stage.faults().calls(Op::Renew),
        renewals,
        "renewed after its release"
    );
}

async fn fixed_lease_is_not_renewed_and_the_next_owner_gets_in(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let (lease, start) = (stage.part(3), Instant::now());
    let guard = client.lock(KEY).acquire().lease(lease).await.unwrap();
    let next = other.lock(KEY).acquire().wait(stage.lease()).await.unwrap();
    stage.assert_took(start, lease);
    assert!(!guard.is_held());
    guard.lost().await;
    stage.assert_took(start, lease);
    assert_lost(&refused(guard.release().await), Loss::Expired);
    assert!(next.is_held());
    stage.is_taken(KEY).await;
    assert_eq!(stage.faults().calls(Op::Renew), 0);
    next.release().await.unwrap();
}

async fn scope_is_cut_at_the_fixed_lease(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (lease, start) = (stage.part(3), Instant::now());
    let guard = lock.acquire().lease(lease).await.unwrap();
    let mut got = 0;
    let body = async {
        for _ in 0..20 {
            sleep(lease / 10).await;
            got += 1;
        }
    };
    assert_lost(&refused(guard.scope(body).await), Loss::Expired);
    stage.assert_took(start, lease);
    // In real time each of the short sleeps may last longer.
    assert!(got <= 10 && (got >= 9 || !stage.is_paused()), "{got}");
    stage.is_free(KEY).await;
    assert_lost(&refused(guard.release().await), Loss::Expired);
    let run = lock.acquire().lease(lease).run(sleep(2 * lease)).await;
    assert_lost(&refused(run), Loss::Expired);
    stage.assert_took(start, 2 * lease);
}

async fn lost_completes_when_the_guard_ends(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    for release in [true, false] {
        let guard = lock.acquire().await.unwrap();
        let lost = tokio::spawn(guard.lost());
        sleep(stage.part(10)).await;
        assert!(!lost.is_finished());
        let start = Instant::now();
        if release {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        lost.await.unwrap();
        stage.assert_took(start, Duration::ZERO);
    }
}

async fn nested_fixed_lease_ends_only_its_own_scope(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let lease = stage.part(10);
    let body = async {
        let start = Instant::now();
        let nested = lock.acquire().lease(lease).run(sleep(stage.lease())).await;
        assert_lost(&refused(nested), Loss::Expired);
        stage.assert_took(start, lease);
        let nested = lock.acquire().lease(lease).await.unwrap();
        nested.lost().await;
        stage.assert_took(start, 2 * lease);
        assert!(!nested.is_held());
        assert_lost(&refused(nested.reenter()), Loss::Expired);
        assert_lost(&refused(nested.release().await), Loss::Expired);
        sleep(2 * stage.lease()).await;
        stage.is_taken(KEY).await;
    };
    let guard = lock.acquire().await.unwrap();
    guard.scope(body).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn nested_shorter_lease_never_shortens_a_fixed_hold(stage: &Stage) {
    let (client, observer) = (stage.client().await, stage.client().await);
    let lock = client.lock(KEY);
    let start = Instant::now();
    let guard = lock.acquire().lease(stage.lease()).await.unwrap();
    let body = async {
        drop(lock.acquire().lease(stage.part(10)).await.unwrap());
        let nested = lock.acquire().lease(stage.part(10)).await.unwrap();
        nested.lost().await;
        let left = observer.lock(KEY).remaining_lease().await.unwrap().unwrap();
        assert!(
            left + stage.slack() >= stage.lease() - start.elapsed(),
            "{left:?}"
        );
    };
    guard.scope(body).await.unwrap();
    guard.lost().await;
    stage.assert_took(start, stage.lease());
}

async fn nested_longer_lease_lengthens_a_fixed_hold(stage: &Stage) {
    let (client, observer) = (stage.client().await, stage.client().await);
    let (lock, seen) = (client.lock(KEY), observer.lock(KEY));
    let (short, long) = (stage.part(10), stage.part(2));
    let guard = lock.acquire().lease(short).await.unwrap();
    let nested = guard.scope(async { lock.acquire().lease(long).await.unwrap() });
    let (nested, start) = (nested.await.unwrap(), Instant::now());
    let told = async || {
        let left = seen.remaining_lease().await.unwrap();
        left.is_some_and(|left| left > short)
    };
    stage.eventually("lengthened", stage.part(20), told).await;
    guard.lost().await;
    stage.assert_took(start, short);
    assert!(nested.is_held());
    drop(guard);
    stage.is_taken(KEY).await;
    nested.lost().await;
    stage.assert_took(start, long);
    stage.is_free(KEY).await;
}

async fn nested_guard_without_a_lease_has_a_fixed_hold_renewed(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().lease(stage.part(3)).await.unwrap();
    let nested = guard.scope(async { lock.acquire().await.unwrap() });
    let nested = nested.await.unwrap();
    drop(guard);
    sleep(3 * stage.lease()).await;
    assert!(nested.is_held());
    stage.is_taken(KEY).await;
    nested.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn kept_hold_whose_last_guard_has_a_fixed_lease_is_renewed_no_more(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let nested = guard.scope(async { lock.acquire().lease(stage.part(3)).await.unwrap() });
    let (nested, start) = (nested.await.unwrap(), Instant::now());
    guard.release().await.unwrap();
    nested.lost().await;
    stage.assert_took(start, stage.part(3));
    // The guard was never dropped, and still the lock comes free.
    let free = async || !lock.is_locked().await.unwrap();
    stage.eventually("freed", stage.lease(), free).await;
    assert_lost(&refused(nested.release().await), Loss::Expired);
}

/// Nothing of this task runs for a while.
async fn stall(stage: &Stage, time: Duration) {
    if stage.is_paused() {
        tokio::time::advance(time).await;
    } else {
        std::thread::sleep(time);
    }
}

async fn code_after_a_stall_past_the_lease_never_runs(stage: &Stage) {
    let lock = stage.faulty_client().await.lock(KEY);
    // The watchdog stands still with the rest.
    stage.faults().always(Op::Renew, Fault::FailBefore);
    let guard = lock.acquire().await.unwrap();
    let mut ran = false;
    let body = async {
        stall(stage, stage.lease() * 3 / 2).await;
        tokio::task::yield_now().await;
        ran = true;
    };
    assert_lost(&refused(guard.scope(body).await), Loss::Expired);
    assert!(!ran && !guard.is_held());
    assert_lost(&refused(guard.release().await), Loss::Expired);
    let fixed = lock.acquire().lease(stage.part(3)).run(async {
        stall(stage, stage.part(2)).await;
        tokio::task::yield_now().await;
        unreachable!("the lease is over");
    });
    assert_lost(&refused(fixed.await), Loss::Expired);
}

async fn clock_is_compared_before_a_scope_goes_on_after_a_stall_of_its_task(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    for lease in [stage.part(3), stage.part(2)] {
        let (inside, notify) = (Notify::new(), Notify::new());
        let mut ran = false;
        let run = lock.acquire().lease(lease).run(async {
            inside.notify_one();
            notify.notified().await;
            ran = true;
        });
        let staller = async {
            inside.notified().await;
            stall(stage, lease).await;
            notify.notify_one();
        };
        let (ended, ()) = tokio::join!(run, staller);
        assert_lost(&refused(ended), Loss::Expired);
        assert!(!ran, "went on though its lease was over");
    }
}

async fn thousands_of_holds_are_renewed_without_loss(stage: &Stage) {
    // In real time long enough for a machine with other work.
    let lease = if stage.is_paused() { 1 } else { 4 } * stage.lease();
    let set = |builder: Builder| builder.faults(stage.faults()).watchdog_timeout(lease);
    let client = stage.client_with(set).await;
    let mut guards = Vec::new();
    let holds = size(2_000, 10_000);
    for n in 0..holds {
        guards.push(client.lock(format!("k:{n}")).acquire().await.unwrap());
    }
    let before = stage.faults().calls(Op::Renew);
    sleep(stage.size(lease * 3 / 2, lease * 3)).await;
    assert!(guards.iter().all(distlock::Guard::is_held));
    let batches = stage.faults().calls(Op::Renew) - before;
    assert!(
        (holds * 8 / 100..=holds * 9 / 100).contains(&batches) || !stage.is_paused(),
        "{batches}"
    );
    assert_eq!(sizes(&client).holds, holds);
    drop(guards);
    stage.is_quiet_within(stage.lease()).await;
}

async fn batch_of_renewals_that_is_not_answered_is_sent_again_as_one_batch(stage: &Stage) {
    let client = stage.faulty_client().await;
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(client.lock(format!("k:{n}")).acquire().await.unwrap());
    }
    // In real time some are due a little later than the others.
    let batches = if stage.is_paused() { 1 } else { 20 };
    stage.faults().next(Op::Renew, Fault::FailBefore);
    let sent = async || stage.faults().calls(Op::Renew) > 1;
    stage.eventually("sent again", stage.lease(), sent).await;
    assert!(stage.faults().calls(Op::Renew) <= 1 + batches);
    for guard in guards {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

on_every_backend![
    batch_of_renewals_that_is_not_answered_is_sent_again_as_one_batch,
    watchdog_keeps_a_hold_for_many_leases,
    fixed_lease_is_not_renewed_and_the_next_owner_gets_in,
    scope_is_cut_at_the_fixed_lease,
    lost_completes_when_the_guard_ends,
    nested_fixed_lease_ends_only_its_own_scope,
    nested_shorter_lease_never_shortens_a_fixed_hold,
    nested_longer_lease_lengthens_a_fixed_hold,
    nested_guard_without_a_lease_has_a_fixed_hold_renewed,
    kept_hold_whose_last_guard_has_a_fixed_lease_is_renewed_no_more,
    code_after_a_stall_past_the_lease_never_runs,
    clock_is_compared_before_a_scope_goes_on_after_a_stall_of_its_task,
    thousands_of_holds_are_renewed_without_loss,
];
