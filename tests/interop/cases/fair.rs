//! The order of fair locks.

use distlock_interop::{Actor, Call, Kind, Pending};
use distlock_tests::pulse::monotonic_nanos;

use crate::case::{Case, cases};
use crate::stage::{Stage, assert_soon};
use crate::table::Row;

/// So many waiters of the lock, of one side and the other in turn.
async fn queue_of_both_sides(stage: &Stage, waiters: u64) -> Vec<(Actor, Pending)> {
    let lock = stage.lock();
    let mut waiting = Vec::new();
    for place in 0..waiters {
        let thread = format!("waiter {place}");
        let actor = match place % 2 {
            0 => stage.waiter(&thread).await,
            _ => stage.holder(&thread).await,
        };
        let pending = actor.acquire(&lock, None);
        stage.until_queue_has(place + 1).await;
        waiting.push((actor, pending));
    }
    waiting
}

async fn ten_waiters_of_both_sides_are_served_in_order(stage: Stage) {
    let lock = stage.lock();
    let first = stage.holder("first").await;
    first.take(&lock).await;
    let waiting = queue_of_both_sides(&stage, 10).await;
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
    // A JVM that has just started needs some seconds for its first call, and both have to wait before the lease is over.
    const LEASE: u64 = 8_000;
    // The place of a waiter of Redisson is kept for the wait itself, and that of distlock's for 5 s unless it is heard of.
    const WAIT: u64 = 8_000;
    let lock = stage.lock();
    let mortal = stage.mortal().await;
    let first = stage.waiter("first").await;
    first
        .call(Call::new("acquire", lock.0, &lock.1).wait(0).lease(LEASE))
        .granted()
        .await;
    let _never = mortal.actor("dead").acquire(&lock, Some(WAIT));
    stage.until_queue_has(1).await;
    let behind = stage.waiter("behind").await;
    let waiting = behind.acquire(&lock, stage.wait_for_a_lease());
    stage.until_queue_has(2).await;
    mortal.kill();
    let killed = monotonic_nanos();
    let granted = stage.granted_at(&behind, &lock, waiting).await;
    let timeouts = (LEASE + WAIT) * 1_000_000;
    assert_soon("the grant", killed + timeouts, granted);
    behind.release(&lock).value::<bool>().await;
    // The queue is as if nobody had died.
    let next = stage.waiter("next").await;
    next.take(&lock).await;
    next.release(&lock).value::<bool>().await;
}

/// Redisson adds the time of a waiter to that of the one before it, and the time of ours contains that of Redisson's before it. The
/// killed one costs its own wait all the same.
async fn killed_thread_behind_waiters_of_both_sides_costs_its_wait(stage: Stage) {
    // Before it is over, the waiter is killed.
    const WAIT: u64 = 8_000;
    let lock = stage.lock();
    let mortal = stage.mortal_waiter().await;
    let first = stage.holder("first").await;
    first.take(&lock).await;
    let mut waiting = queue_of_both_sides(&stage, 3).await;
    let last = stage.holder("last").await;
    let of_last = last.acquire(&lock, None);
    stage.until_queue_has(4).await;
    let _never = mortal.actor("dead").acquire(&lock, Some(WAIT));
    stage.until_queue_has(5).await;
    let behind = stage.holder("behind").await;
    let of_behind = behind.acquire(&lock, None);
    stage.until_queue_has(6).await;
    mortal.kill();
    waiting.push((last, of_last));
    first.release(&lock).value::<bool>().await;
    for (actor, pending) in waiting {
        pending.granted().await;
        actor.release(&lock).value::<bool>().await;
    }
    let freed = monotonic_nanos();
    let granted = of_behind.granted().await.ended;
    assert_soon("the grant", freed + WAIT * 1_000_000, granted);
    behind.release(&lock).value::<bool>().await;
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = cases![Row::Fair, Kind::Fair;
        ten_waiters_of_both_sides_are_served_in_order,
        killed_waiter_costs_its_timeout_once,
    ];
    let both = cases![Row::Fair, Kind::Fair;
        killed_thread_behind_waiters_of_both_sides_costs_its_wait,
    ];
    cases.extend(both.into_iter().map(Case::symmetrical));
    cases
}
