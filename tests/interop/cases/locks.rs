//! What all exclusive locks have in common.

use std::time::Duration;

use distlock_interop::{Call, Kind, Side};
use distlock_tests::pulse::monotonic_nanos;
use distlock_tests::{RedisServer, eventually_eq};
use tokio::time::sleep;

use crate::case::{Case, cases};
use crate::stage::{LONG, SHORT, Stage, assert_by_message, assert_soon, start};
use crate::statistics::{median_and_99, note};
use crate::table::Row;

/// How many hand-overs are measured in each direction.
const HAND_OVERS: usize = 50;

/// A hand-over by a message takes a few milliseconds. Without messages it takes 5 s in Rust, and 30 s in Java.
const BY_MESSAGE: f64 = 1_000.0;

async fn held_is_refused_and_release_wakes_waiter(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    holder.take(&lock).await;
    assert!(waiter.try_take(&lock).await.is_none(), "held twice");
    let waiting = waiter.acquire(&lock, None);
    stage.until_asleep(&waiter, &lock).await;
    assert!(!waiting.is_answered());
    let released = holder.release(&lock).timed::<bool>().await;
    let granted = waiting.granted().await;
    assert!(granted.ended > released.began, "granted before the release");
    assert_by_message("the wake-up", released.began, granted.ended);
    assert!(holder.try_take(&lock).await.is_none(), "held twice");
    waiter.release(&lock).value::<bool>().await;
    holder.take(&lock).await;
    holder.release(&lock).value::<bool>().await;
}

async fn end_of_a_lease_frees_it_and_not_before(stage: Stage) {
    const LEASE: u64 = 1_500;
    let (lock, holder, waiter) = stage.parts().await;
    let acquire = Call::new("acquire", lock.0, &lock.1).wait(0).lease(LEASE);
    let held = holder.call(acquire).granted().await;
    let waiting = waiter.acquire(&lock, stage.wait_for_a_lease());
    let granted = stage.granted_at(&waiter, &lock, waiting).await;
    // The lease began while the call was under way.
    let ends = held.began + LEASE * 1_000_000;
    assert!(granted >= ends, "granted within the lease");
    assert_soon("the grant", ends, granted);
    waiter.release(&lock).value::<bool>().await;
}

async fn force_release_wakes_waiter(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    // By either side.
    for forcer in [stage.waiter("f").await, stage.holder("f").await] {
        holder.take(&lock).await;
        let waiting = waiter.acquire(&lock, None);
        stage.until_asleep(&waiter, &lock).await;
        let forced = forcer.call(Call::new("force_release", lock.0, &lock.1));
        let forced = forced.timed::<bool>().await;
        assert!(forced.value, "nothing was released");
        let granted = waiting.granted().await;
        assert_by_message("the wake-up", forced.began, granted.ended);
        // The release of the one who lost it takes nothing from the other one.
        let _refused = holder.release(&lock).answer().await;
        assert!(holder.try_take(&lock).await.is_none(), "held twice");
        waiter.release(&lock).value::<bool>().await;
    }
}

async fn killed_holder_frees_it_with_its_lease(stage: Stage) {
    let (lock, waiter, holder) = (stage.lock(), stage.waiter("w").await, stage.mortal().await);
    let mut acquire = Call::new("acquire", lock.0, &lock.1).wait(0);
    if stage.wait_for_a_lease().is_some() {
        // It would also sleep for its whole wait if the lease was renewed after it began to wait.
        acquire = acquire.lease(SHORT);
    }
    holder.actor("h").call(acquire).granted().await;
    let waiting = waiter.acquire(&lock, stage.wait_for_a_lease());
    stage.until_asleep(&waiter, &lock).await;
    holder.kill();
    let ends = monotonic_nanos() + SHORT * 1_000_000;
    let granted = stage.granted_at(&waiter, &lock, waiting).await;
    assert_soon("the grant", ends, granted);
    waiter.release(&lock).value::<bool>().await;
}

async fn waiter_that_gives_up_leaves_nothing(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    holder.take(&lock).await;
    assert!(waiter.acquire(&lock, Some(300)).grant().await.is_none());
    let dropped = waiter.acquire(&lock, Some(20_000));
    stage.until_asleep(&waiter, &lock).await;
    while !dropped.is_answered() {
        waiter.interrupt().await;
        sleep(Duration::from_millis(5)).await;
    }
    assert!(
        dropped.answer().await.is_err(),
        "an interrupted wait has no value"
    );
    if stage.waiter.is_java() && matches!(lock.0, Kind::Fair | Kind::NonReentrantFair) {
        // Redisson leaves the place of an interrupted thread in the queue until its wait would be over.
        return;
    }
    if !stage.waiter.is_java() {
        // Redisson leaves the subscription of a thread that is interrupted while it subscribes.
        stage.until_nobody_waits(&lock).await;
    }
    holder.release(&lock).value::<bool>().await;
    let third = stage.waiter("third").await;
    third.take(&lock).await;
    third.release(&lock).value::<bool>().await;
}

async fn entered_twice_is_released_twice(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    holder.take(&lock).await;
    holder.take(&lock).await;
    holder.release(&lock).value::<bool>().await;
    assert!(
        waiter.try_take(&lock).await.is_none(),
        "free after one of two releases"
    );
    stage
        .release_wakes((&holder, &lock), (&waiter, &lock))
        .await;
    waiter.release(&lock).value::<bool>().await;
}

async fn watchdog_holds_it_over_three_leases(stage: Stage) {
    let (lock, holder, waiter) = (
        stage.lock(),
        stage.short_holder("h").await,
        stage.waiter("w").await,
    );
    holder.take(&lock).await;
    let waiting = waiter.acquire(&lock, None);
    // The time itself is the subject: for so long nobody else may be granted it.
    sleep(Duration::from_millis(3 * SHORT + SHORT / 2)).await;
    assert!(
        !waiting.is_answered(),
        "granted while the watchdog renews the hold"
    );
    holder.release(&lock).value::<bool>().await;
    waiting.granted().await;
    waiter.release(&lock).value::<bool>().await;
}

async fn other_side_sees_the_hold(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    let hold = holder.take(&lock).await;
    assert!(waiter.ask::<bool>("is_locked", &lock).await);
    let left: i64 = waiter.ask("remaining_lease", &lock).await;
    assert!((10_000..=30_000).contains(&left), "{left} ms are left");
    let count: u64 = waiter.ask("hold_count", &lock).await;
    // Redisson counts the holds of the thread that asks, and distlock those of all.
    assert_eq!(count, u64::from(!stage.waiter.is_java()));
    if !stage.waiter.is_java() {
        let holders: Vec<String> = waiter.ask("holders", &lock).await;
        assert!(
            holders.iter().any(|owner| owner.starts_with(&hold.owner)),
            "{holders:?}"
        );
    }
    holder.release(&lock).value::<bool>().await;
    assert!(!waiter.ask::<bool>("is_locked", &lock).await);
    assert_eq!(waiter.ask::<i64>("remaining_lease", &lock).await, -2);
}

/// A waiter sleeps: the server counts the scripts of both sides, the holder's renewals included.
async fn waiting_costs_next_to_no_commands(stage: Stage) {
    const MOST: u64 = 4;
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let (holder, waiter) = tokio::join!(
        start(stage.holder, &urls, LONG),
        start(stage.waiter, &urls, LONG)
    );
    let (lock, holder, waiter) = (stage.lock(), holder.actor("h"), waiter.actor("w"));
    holder.take(&lock).await;
    let waiting = waiter.acquire(&lock, None);
    let listens = async || !server.pubsub_channels().await.is_empty();
    eventually_eq(Duration::from_secs(20), "a subscription", true, listens).await;
    let scripts =
        async || server.command_calls("eval").await + server.command_calls("evalsha").await;
    let before = scripts().await;
    // The time itself is the subject.
    sleep(Duration::from_secs(4)).await;
    let sent = scripts().await - before;
    let side = if stage.waiter.is_java() {
        stage.waiter
    } else {
        Side::Rust("")
    };
    note(format!(
        "scripts in 4 s of waiting, {} by {side:?}: {sent}",
        lock.0.name()
    ));
    assert!(sent <= MOST, "{sent} scripts");
    holder.release(&lock).value::<bool>().await;
    waiting.granted().await;
}

/// The two sides hand it over to each other again and again: by messages, and without asking meanwhile.
pub(super) async fn hundred_hand_overs(stage: Stage) {
    let lock = stage.lock();
    if lock.0 == Kind::Semaphore {
        let first = stage.holder("set").await;
        assert!(first.count::<bool>("set_permits", &lock, 1).await);
    }
    let sides = [stage.holder("a").await, stage.waiter("b").await];
    sides[0].take(&lock).await;
    let mut times = [Vec::new(), Vec::new()];
    for hand_over in 0..2 * HAND_OVERS {
        let (from, to) = (&sides[hand_over % 2], &sides[(hand_over + 1) % 2]);
        let waiting = to.acquire(&lock, None);
        stage.until_asleep(to, &lock).await;
        let released = from.release(&lock).timed::<bool>().await;
        let granted = waiting.granted().await;
        times[hand_over % 2].push(granted.ended.saturating_sub(released.began));
        stage.until_nobody_waits(&lock).await;
    }
    sides[0].release(&lock).value::<bool>().await;
    for (times, side) in times.into_iter().zip([stage.waiter, stage.holder]) {
        let (median, most) = median_and_99(times);
        let to = match side {
            Side::Rust(_) => "Rust",
            Side::Java(_) => "Java",
        };
        let java = [stage.holder, stage.waiter]
            .into_iter()
            .find(|side| side.is_java());
        note(format!(
            "hand-over to {to} beside {java:?}, {}: median {median:.2} ms, 99 % {most:.2} ms",
            lock.0.name()
        ));
        assert!(median < BY_MESSAGE, "a hand-over to {to} took {median} ms");
    }
}

fn row(kind: Kind) -> Row {
    match kind {
        Kind::Fair => Row::Fair,
        Kind::Write => Row::ReadWrite,
        Kind::Spin => Row::Spin,
        Kind::Fenced => Row::Fenced,
        Kind::NonReentrant | Kind::NonReentrantFair => Row::NonReentrant,
        _ => Row::Reentrant,
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for kind in Kind::EXCLUSIVE {
        cases.extend(cases![row(kind), kind;
            held_is_refused_and_release_wakes_waiter,
            end_of_a_lease_frees_it_and_not_before,
            killed_holder_frees_it_with_its_lease,
            watchdog_holds_it_over_three_leases,
            other_side_sees_the_hold,
            force_release_wakes_waiter,
            waiter_that_gives_up_leaves_nothing,
        ]);
        if !matches!(kind, Kind::NonReentrant | Kind::NonReentrantFair) {
            cases.extend(cases![row(kind), kind; entered_twice_is_released_twice]);
        }
    }
    for kind in [Kind::Reentrant, Kind::Fair, Kind::Write] {
        cases.extend(cases![row(kind), kind; waiting_costs_next_to_no_commands]);
        let case = Case::new(row(kind), kind, "hundred_hand_overs", hundred_hand_overs);
        cases.push(case.symmetrical());
    }
    cases
}
