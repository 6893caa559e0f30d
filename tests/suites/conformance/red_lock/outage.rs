//! A Redlock whose servers hang, are slow or cannot be reached: without a minority nothing is amiss, without a majority it
//! is unavailable, and what was granted on the way is released.

use std::time::Duration;

use distlock::{Blocker, Quorum};
use distlock_tests::faults::{Fault, Op};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, LEASE, Servers, blocker};

#[tokio::test(start_paused = true)]
async fn hung_minority_costs_neither_the_lock_nor_time() {
    let servers = Servers::new(5);
    let program = servers.program();
    program.hang([0, 3]);
    let start = Instant::now();
    let guard = program.lock().acquire().await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(10),
        "{:?}",
        start.elapsed()
    );
    let start = Instant::now();
    guard.release().await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(10),
        "{:?}",
        start.elapsed()
    );
    program.heal();
    servers.are_empty().await;
}

/// A fifth of the time that the majority took: so much more than the others may be worth, and no more.
#[tokio::test(start_paused = true)]
async fn others_are_waited_for_a_fifth_longer_than_the_majority() {
    let ms = Duration::from_millis;
    for (others, parts, most) in [(Some(ms(115)), 5, ms(116)), (None, 3, ms(121))] {
        let servers = Servers::new(5);
        let program = servers.program();
        for faults in &program.faults[..3] {
            faults.always(Op::Attempt, Fault::DelayReply(ms(100)));
        }
        for faults in &program.faults[3..] {
            let fault = others.map_or(Fault::Never, Fault::DelayReply);
            faults.always(Op::Attempt, fault);
        }
        let start = Instant::now();
        let guard = program.lock().acquire().await.unwrap();
        let took = start.elapsed();
        assert!(took <= most, "{took:?}");
        // What was left behind is released.
        sleep(ms(1_000)).await;
        assert_eq!(program.lock().holders().await.unwrap().len(), parts);
        guard.release().await.unwrap();
        program.heal();
        servers.are_empty().await;
    }
}

/// A server refuses, because somebody else has its key, and answers nothing after that. The acquisition does not wait long to learn
/// whether this server is one of those that granted.
#[tokio::test(start_paused = true)]
async fn server_that_refused_and_fell_silent_keeps_nobody_from_the_grant() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    let held = other.clients[0].lock(KEY).acquire().await.unwrap();
    program.faults[0].always(Op::Renew, Fault::Never);
    for wait in [None, Some(Duration::ZERO)] {
        let start = Instant::now();
        let mut acquire = program.lock().acquire();
        if let Some(wait) = wait {
            acquire = acquire.wait(wait);
        }
        let guard = acquire.await.unwrap();
        let took = start.elapsed();
        assert!(took <= Duration::from_millis(260), "{took:?}");
        guard.release().await.unwrap();
    }
    assert!(program.faults[0].hits(Op::Renew) > 0);
    held.release().await.unwrap();
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn slow_minority_costs_no_time_and_is_released_as_well() {
    let servers = Servers::new(5);
    let program = servers.program();
    for faults in &program.faults[..2] {
        let slow = Fault::DelayReply(Duration::from_secs(1));
        faults.always(Op::Attempt, slow);
        faults.always(Op::Release, slow);
    }
    let start = Instant::now();
    let guard = program.lock().acquire().await.unwrap();
    guard.release().await.unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(20), "{took:?}");
    servers.are_empty().await;
}

/// A majority granted it, and nearly all of the lease has gone by then.
#[tokio::test(start_paused = true)]
async fn majority_that_answers_when_the_lease_is_nearly_over_is_no_grant() {
    let servers = Servers::new(5);
    let program = servers.program();
    let (lease, wait) = (Duration::from_millis(200), Duration::from_secs(1));
    for faults in &program.faults[..3] {
        let late = Fault::DelayReply(Duration::from_millis(160));
        faults.always(Op::Attempt, late);
    }
    let guard = program.lock().acquire().lease(lease).wait(wait).await;
    let error = guard.unwrap_err();
    assert!(error.is_busy() || error.is_unavailable(), "{error}");
    assert!(program.faults[0].hits(Op::Attempt) > 0);
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn hung_majority_is_unavailable_and_leaves_nothing() {
    let servers = Servers::new(5);
    let program = servers.program();
    program.hang([0, 1, 2]);
    let start = Instant::now();
    let error = program.lock().acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
    let wait = Duration::from_secs(1);
    let error = program.lock().acquire().wait(wait).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    program.heal();
    servers.are_empty().await;
}

/// One server hangs and one fails, so no majority answers. Nobody is known to hold the lock.
#[tokio::test(start_paused = true)]
async fn short_wait_in_line_behind_a_mixed_failure_is_not_held_by_another() {
    let servers = Servers::new(3);
    let program = servers.program();
    program.hang([0]);
    program.faults[1].always(Op::Attempt, Fault::FailBefore);
    let lock = program.lock();
    let first = tokio::spawn(lock.acquire().into_future());
    sleep(Duration::from_millis(1)).await;
    let wait = Duration::from_millis(200);
    let error = lock.acquire().wait(wait).await.unwrap_err();
    assert!(!error.is_held_by_another(), "{error}");
    first.abort();
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn grant_that_nobody_heard_of_is_released_too() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    one.faults[2].next(Op::Attempt, Fault::FailAfter);
    let guard = one.lock().acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(one.faults[2].hits(Op::Attempt), 1);
    servers.are_empty().await;
    two.lock()
        .try_acquire()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn held_by_another_is_busy_also_with_a_minority_gone() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    two.faults[0].always(Op::Attempt, Fault::FailBefore);
    assert!(two.lock().try_acquire().await.unwrap().is_none());
    let releasing = async {
        sleep(LEASE).await;
        guard.release().await.unwrap();
    };
    let waiting = async { two.lock().acquire().await.unwrap() };
    let ((), guard) = tokio::join!(releasing, waiting);
    guard.release().await.unwrap();
    two.faults[0].clear(Op::Attempt);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn waiter_asks_again_soon_after_an_outage_of_a_majority() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    for faults in &two.faults[1..] {
        faults.always(Op::Attempt, Fault::FailBefore);
    }
    let waiting = tokio::spawn(two.lock().acquire().into_future());
    sleep(Duration::from_millis(100)).await;
    two.heal();
    guard.release().await.unwrap();
    let got_in = timeout(Duration::from_secs(1), waiting).await;
    let guard = got_in.expect("no news of who was away").unwrap();
    guard.unwrap().release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn outage_of_a_majority_is_no_crowd() {
    let servers = Servers::new(3);
    let program = servers.program();
    program.hang([0, 1]);
    let error = program.lock().acquire().max_waiters(0).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    program.heal();
}

#[tokio::test(start_paused = true)]
async fn all_in_line_are_told_that_a_majority_is_away_when_the_first_one_is() {
    let servers = Servers::new(5);
    let program = servers.program();
    for hung in [[0, 1, 2], [1, 3, 4]] {
        program.hang(hung);
        let start = Instant::now();
        let waits = (0..20).map(|_| program.lock().acquire().into_future());
        for waited in join_all(waits).await {
            let error = waited.unwrap_err();
            assert!(error.is_unavailable(), "{error}");
        }
        let took = start.elapsed();
        // The limit, and the rest of the round in which it passes.
        assert!(took < Duration::from_millis(7_100), "{took:?}");
        let wait = Duration::from_secs(1);
        let waits = (0..6).map(|_| program.lock().acquire().wait(wait).into_future());
        for waited in join_all(waits).await {
            let error = waited.unwrap_err();
            assert!(error.is_unavailable(), "{error}");
        }
        program.heal();
        servers.are_empty().await;
        drop(program.lock().acquire().await.unwrap());
        servers.are_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn wait_of_a_few_milliseconds_beside_live_servers_is_a_timeout() {
    let servers = Servers::new(3);
    let program = servers.program();
    for faults in &program.faults {
        faults.always(Op::Attempt, Fault::DelayReply(Duration::from_millis(20)));
    }
    for _ in 0..50 {
        let wait = Duration::from_millis(3);
        let error = program.lock().acquire().wait(wait).await.unwrap_err();
        let blocker = blocker(&error);
        assert!(error.is_busy() && blocker == Blocker::Unanswered, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
    program.heal();
    servers.are_empty().await;
}

/// The first server's client also has the queue of the program's acquisitions.
#[tokio::test(start_paused = true)]
async fn part_that_a_hung_server_does_not_release_delays_one_acquisition_at_most() {
    let servers = Servers::new(5);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.hang([0]);
    guard.release().await.unwrap();
    let (mut slow, start) = (0, Instant::now());
    for _ in 0..100 {
        let start = Instant::now();
        let guard = program.lock().acquire().await.unwrap();
        // Once it is known that the server is silent, no round gives it any time.
        slow += u32::from(!start.elapsed().is_zero());
        guard.release().await.unwrap();
    }
    assert!(slow <= 1, "{slow} of 100, {:?} in all", start.elapsed());
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_behind_another_program_before_an_outage_is_no_part_of_it() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    let waiting = tokio::spawn(two.lock().acquire().into_future());
    sleep(LEASE).await;
    two.hang([0, 1]);
    let start = Instant::now();
    guard.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(5), "{took:?}");
    two.heal();
    servers.are_empty().await;
}

/// The one before it finds that nobody answers, and its own wait ends before that is certain.
#[tokio::test(start_paused = true)]
async fn outage_counts_from_its_start_for_the_next_in_line_too() {
    let servers = Servers::new(3);
    let program = servers.program();
    program.hang([0, 1]);
    let start = Instant::now();
    let wait = Duration::from_secs(3);
    let first = tokio::spawn(program.lock().acquire().wait(wait).into_future());
    let second = tokio::spawn(program.lock().acquire().into_future());
    for waiting in [first, second] {
        let error = waiting.await.unwrap().unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
    let took = start.elapsed();
    assert!(took < Duration::from_millis(7_100), "{took:?}");
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_in_line_beside_a_silent_minority_was_a_wait_for_others() {
    let servers = Servers::new(5);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.hang([3, 4]);
    let first = tokio::spawn(program.lock().acquire().into_future());
    // It has asked, and two of the servers are known not to answer.
    sleep(Duration::from_secs(4)).await;
    let wait = Duration::from_millis(200);
    let error = program.lock().acquire().wait(wait).await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    program.heal();
    guard.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_in_line_for_a_key_that_is_held_is_a_timeout_after_an_outage() {
    let servers = Servers::new(3);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    let first = tokio::spawn(program.lock().acquire().into_future());
    // It is refused, and sleeps until the lease ends.
    sleep(Duration::from_secs(1)).await;
    for faults in &program.faults {
        faults.next(Op::Attempt, Fault::FailAfter);
    }
    let other = Quorum::new(program.clients.clone()).lock("other");
    assert!(other.try_acquire().await.unwrap_err().is_unavailable());
    let wait = Duration::from_millis(200);
    let error = program.lock().acquire().wait(wait).await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    guard.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    servers.are_empty().await;
}

/// The holder keeps the key on the one server that answers. One server is not a quorum.
#[tokio::test(start_paused = true)]
async fn wait_in_line_behind_a_holder_without_a_majority_is_unavailable() {
    let servers = Servers::new(3);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.hang([1, 2]);
    // The leases on those two are over.
    sleep(LEASE * 2).await;
    let first = tokio::spawn(program.lock().acquire().into_future());
    sleep(Duration::from_secs(2)).await;
    let wait = Duration::from_millis(200);
    let error = program.lock().acquire().wait(wait).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    first.abort();
    drop(guard);
    program.heal();
    servers.are_empty().await;
}
