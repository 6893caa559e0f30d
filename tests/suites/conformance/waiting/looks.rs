//! What waiters cost that get no message for a long time. On paused time, where the number of commands is exact.

use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Faults, Op};
use futures_util::future::{BoxFuture, join_all};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// It is renewed while the waiters wait.
const LEASE: Duration = Duration::from_secs(30);

fn client(server: &MemoryServer, faults: &Faults) -> Client {
    let builder = Client::builder().watchdog_timeout(LEASE).faults(faults);
    builder.in_memory(server).unwrap()
}

#[ignore = "played by `.ci/run engines`: ten thousand waiters take time"]
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_on_as_many_keys_cost_some_twenty_commands_a_second() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let (holder, waiting) = (client(&server, &Faults::new()), client(&server, &faults));
    let keys = || (0..10_000).map(|n| format!("order:{n}"));
    let held = join_all(keys().map(|key| holder.lock(key).acquire().into_future())).await;
    let mut waiters = JoinSet::new();
    for key in keys() {
        waiters.spawn(waiting.lock(key).acquire().into_future());
    }
    sleep(Duration::from_secs(10)).await;
    let counted = || (faults.calls(Op::Look), faults.calls(Op::Attempt));
    let before = counted();
    sleep(Duration::from_secs(60)).await;
    let (looks, attempts) = (counted().0 - before.0, counted().1 - before.1);
    assert!((60..60 * 25).contains(&looks), "{looks} looks in a minute");
    assert_eq!(attempts, 0, "no key has changed");
    drop(held);
    timeout(LEASE / 2, waiters.join_all())
        .await
        .expect("granted");
}

#[tokio::test(start_paused = true)]
async fn waiter_whose_look_is_not_answered_repeats_its_attempt() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let (holder, waiting) = (client(&server, &Faults::new()), client(&server, &faults));
    let held = holder.lock("order:42").acquire().await.unwrap();
    faults.always(Op::Look, Fault::Never);
    let lock = waiting.lock("order:42");
    let waiter = tokio::spawn(lock.acquire().into_future());
    sleep(Duration::from_secs(4)).await;
    let (start, before) = (Instant::now(), faults.calls(Op::Attempt));
    while faults.calls(Op::Attempt) == before {
        // Long before the end of the holder's lease, at which it attempts in any case.
        assert!(start.elapsed() < Duration::from_secs(5), "no attempt");
        sleep(Duration::from_millis(10)).await;
    }
    faults.clear_all();
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// The end of a lease is known, and does not wait for the answer of a look.
#[tokio::test(start_paused = true)]
async fn lease_that_ends_during_a_look_is_over_for_each_kind_of_waiter() {
    // A look begins before this lease ends, and its answer would come later.
    let long = Duration::from_secs(6);
    // A candidate asks at once how many there are.
    let short = Duration::from_secs(1);
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let (holder, waiting) = (client(&server, &Faults::new()), client(&server, &faults));
    let lock = waiting.fenced_lock("order:42");
    let [leader, other] = [(); 2].map(|()| waiting.leader("order:42"));
    let acquires = async { drop(lock.acquire().await.unwrap()) };
    let is_free = async { lock.until_free().await.unwrap() };
    let leads = async { assert!(leader.run(|_| async {}).await.unwrap().is_some()) };
    let other_leads = async { assert!(other.run(|_| async {}).await.unwrap().is_some()) };
    let waits: [(&str, Op, Duration, BoxFuture<'_, ()>); 4] = [
        ("acquires", Op::Look, long, Box::pin(acquires)),
        ("until free", Op::Look, long, Box::pin(is_free)),
        ("candidate", Op::Look, long, Box::pin(leads)),
        ("candidate", Op::Inspect, short, Box::pin(other_leads)),
    ];
    for (name, silent, lease, wait) in waits {
        let start = Instant::now();
        let theirs = holder.fenced_lock("order:42").acquire().lease(lease);
        let _held = theirs.await.unwrap();
        let asked = faults.calls(silent);
        faults.always(silent, Fault::Never);
        wait.await;
        let late = start.elapsed().checked_sub(lease);
        let late = late.unwrap_or_else(|| panic!("{name}: before the end of the lease"));
        assert!(
            late < Duration::from_millis(50),
            "{name}, {silent:?}: {late:?} late"
        );
        assert!(faults.calls(silent) > asked, "{name}: no {silent:?}");
        faults.clear_all();
    }
}

#[ignore = "played by `.ci/run engines`: ten thousand waiters take time"]
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_on_as_many_latches_cost_some_twenty_commands_a_second() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let (owner, waiting) = (client(&server, &Faults::new()), client(&server, &faults));
    let keys = || (0..10_000).map(|n| format!("batch:{n}"));
    let mut waiters = JoinSet::new();
    for key in keys() {
        let latch = owner.count_down_latch(&key);
        assert!(latch.try_set_count(2).await.unwrap());
        waiters.spawn(waiting.count_down_latch(key).wait().into_future());
    }
    sleep(Duration::from_secs(10)).await;
    let counted = || (faults.calls(Op::Look), faults.calls(Op::Adjust));
    let before = counted();
    sleep(Duration::from_secs(60)).await;
    let (looks, reads) = (counted().0 - before.0, counted().1 - before.1);
    assert!((60..60 * 25).contains(&looks), "{looks} looks in a minute");
    assert_eq!(reads, 0, "no latch has changed");
    for key in keys() {
        let latch = owner.count_down_latch(key);
        latch.count_down().await.unwrap();
        latch.count_down().await.unwrap();
    }
    for waited in waiters.join_all().await {
        waited.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn latch_wait_that_times_out_after_a_look_tells_the_count_that_the_look_saw() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let (owner, waiting) = (client(&server, &Faults::new()), client(&server, &faults));
    let latch = owner.count_down_latch("batch");
    assert!(latch.try_set_count(3).await.unwrap());
    let wait = waiting.count_down_latch("batch").wait();
    let waiter = tokio::spawn(wait.timeout(Duration::from_secs(12)).into_future());
    sleep(Duration::from_secs(1)).await;
    // A count above 0 sends no message.
    latch.count_down().await.unwrap();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("count was still 2"), "{error}");
    assert!(faults.calls(Op::Look) >= 1);
}
