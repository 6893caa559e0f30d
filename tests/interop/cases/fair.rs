//! The order of fair locks.

use std::time::Duration;

use distlock_interop::{Call, Kind};
use distlock_tests::{eventually_eq, pulse::monotonic_nanos};

use crate::case::{Case, cases};
use crate::stage::{SHORT, Stage, assert_soon};
use crate::table::Row;

const DEADLINE: Duration = Duration::from_secs(20);

async fn until_queue_has(stage: &Stage, waiters: u64) {
    let queue = format!("redisson_lock_queue:{{{}}}", stage.name);
    let length = async || {
        stage
            .server
            .try_cli::<u64>(&["LLEN", &queue])
            .await
            .unwrap()
    };
    eventually_eq(DEADLINE, "the length of the queue", waiters, length).await;
}

async fn ten_waiters_of_both_sides_are_served_in_order(stage: Stage) {
    let lock = stage.lock();
    let first = stage.holder("first").await;
    first.take(&lock).await;
    let mut waiting = Vec::new();
    for place in 0..10_u64 {
        let thread = format!("waiter {place}");
        let actor = match place % 2 {
            0 => stage.waiter(&thread).await,
            _ => stage.holder(&thread).await,
        };
        let pending = actor.acquire(&lock, None);
        until_queue_has(&stage, place + 1).await;
        waiting.push((actor, pending));
    }
    let mut released = first.release(&lock).timed::<bool>().await;
    let mut waiting = waiting.into_iter();
    while let Some((actor, pending)) = waiting.next() {
        let granted = pending.granted().await;
        assert_soon("a grant", released.began, granted.ended);
        let early = waiting
            .as_slice()
            .iter()
            .find(|(_, later)| later.is_answered());
        assert!(
            early.is_none(),
            "{} was granted too early",
            early.unwrap().0
        );
        released = actor.release(&lock).timed::<bool>().await;
    }
}

/// The place of a dead waiter costs the others its timeout, and no more than that.
async fn killed_waiter_costs_its_timeout_once(stage: Stage) {
    // Of Redisson the wait itself. distlock keeps a place for 5 s unless the waiter is heard of.
    const WAIT: u64 = 4_000;
    const PLACE: u64 = 5_000;
    let lock = stage.lock();
    let mortal = stage.mortal().await;
    let first = stage.waiter("first").await;
    first
        .call(Call::new("acquire", lock.0, &lock.1).wait(0).lease(SHORT))
        .granted()
        .await;
    let _never = mortal.actor("dead").acquire(&lock, Some(WAIT));
    until_queue_has(&stage, 1).await;
    let behind = stage.waiter("behind").await;
    let waiting = behind.acquire(&lock, stage.wait_for_a_lease());
    until_queue_has(&stage, 2).await;
    mortal.kill();
    let killed = monotonic_nanos();
    let granted = stage.granted_at(&behind, &lock, waiting).await;
    let timeouts = (SHORT + PLACE) * 1_000_000;
    assert_soon("the grant", killed + timeouts, granted);
    behind.release(&lock).value::<bool>().await;
    // The queue is as if nobody had died.
    let next = stage.waiter("next").await;
    next.take(&lock).await;
    next.release(&lock).value::<bool>().await;
}

pub(super) fn cases() -> Vec<Case> {
    cases![Row::Fair, Kind::Fair;
        ten_waiters_of_both_sides_are_served_in_order,
        killed_waiter_costs_its_timeout_once,
    ]
}
