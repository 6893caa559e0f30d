//! Subscriptions that stand late, or fall and stand again, and what a waiter makes of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::test_util::held_until;
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::Stage;

const KEY: &str = "order:42";

async fn release_before_the_subscription_is_found_by_the_next_attempt(stage: &Stage) {
    let (holder, waiting) = (stage.client().await, stage.faulty_client().await);
    let late = stage.part(10);
    stage.faults().subscribe_after(late);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let waiter = tokio::spawn(waiting.lock(KEY).acquire().into_future());
    let asked = async || stage.faults().hits(Op::Subscribe) == 1;
    stage.eventually("subscribes", stage.lease(), asked).await;
    let start = Instant::now();
    held.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    stage.assert_took(start, late);
    stage.faults().subscribe_after(Duration::ZERO);
    guard.release().await.unwrap();
}

async fn release_without_a_subscription_is_found_after_resubscribing(stage: &Stage) {
    let (holder, waiting) = (stage.client().await, stage.faulty_client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let waiter = tokio::spawn(waiting.lock(KEY).acquire().into_future());
    let asked = |times| async move || stage.faults().calls(Op::Attempt) == times;
    stage
        .eventually("asks twice", stage.lease(), asked(2))
        .await;
    assert_eq!(stage.faults().mute(), 1);
    stage
        .eventually("asks for it fell", stage.lease(), asked(3))
        .await;
    held.release().await.unwrap();
    sleep(stage.part(10)).await;
    let found_out = waiter.is_finished();
    let start = Instant::now();
    stage.faults().unmute();
    let guard = waiter.await.unwrap().unwrap();
    assert!(!found_out, "it heard of the release");
    stage.assert_took(start, Duration::ZERO);
    guard.release().await.unwrap();
}

async fn every_hit_of_a_fault_is_told_once(stage: &Stage) {
    let client = stage.faulty_client().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let history = Arc::clone(&told);
    stage
        .faults()
        .on_hit(move |op, fault| history.lock().unwrap().push((op, fault)));
    stage.faults().next(Op::Attempt, Fault::FailAfter);
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.faults().pass(Op::Release);
    guard.release().await.unwrap();
    let told = told.lock().unwrap().clone();
    assert_eq!(told, [(Op::Attempt, Fault::FailAfter)]);
    assert_eq!(stage.faults().hits(Op::Attempt), 1);
}

async fn deadline_of_a_guard_is_its_lease_from_the_start_and_stays_when_it_has_passed(
    stage: &Stage,
) {
    let client = stage.client().await;
    let lease = stage.part(10);
    let (kept, fixed) = (client.lock("kept"), client.lock("fixed"));
    let kept = kept.acquire().await.unwrap();
    let fixed = fixed.acquire().lease(lease).await.unwrap();
    let left = |guard| {
        let (now, until) = held_until(guard);
        until.saturating_sub(now)
    };
    assert!(left(&kept) <= stage.lease() && left(&kept) > stage.part(2));
    assert!(left(&fixed) <= lease);
    fixed.lost().await;
    let (now, until) = held_until(&fixed);
    assert!(until <= now && until + lease + stage.slack() > now);
    kept.release().await.unwrap();
    drop(fixed);
}

on_every_backend! {
    release_before_the_subscription_is_found_by_the_next_attempt,
    release_without_a_subscription_is_found_after_resubscribing,
    every_hit_of_a_fault_is_told_once,
    deadline_of_a_guard_is_its_lease_from_the_start_and_stays_when_it_has_passed,
}
