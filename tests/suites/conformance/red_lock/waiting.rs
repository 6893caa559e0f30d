//! Waiters for a Redlock: when they ask again, how its wait ends, and that no server stays taken by an attempt
//! that was in vain.

use std::sync::Arc;
use std::time::Duration;

use distlock::Blocker;
use distlock::test_util::sizes;
use distlock_tests::faults::{Fault, Op};
use futures_util::future::poll_immediate;
use tokio::time::{Instant, sleep};

use super::{KEY, LEASE, Servers, blocker};

#[tokio::test(start_paused = true)]
async fn waiter_gets_in_after_the_release() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    let releasing = async {
        sleep(Duration::from_secs(3)).await;
        guard.release().await.unwrap();
        Instant::now()
    };
    let waiting = async {
        let guard = two.lock().acquire().await.unwrap();
        let at = Instant::now();
        guard.release().await.unwrap();
        at
    };
    let (released, granted) = tokio::join!(releasing, waiting);
    assert!(granted.duration_since(released) < Duration::from_millis(100));
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn limit_of_waiters_counts_those_of_the_first_servers_client() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    // The limit in time only ends a wait that should have been refused.
    let refused = async |most| {
        let wait = two.lock().acquire().wait(LEASE).max_waiters(most);
        let error = wait.await.unwrap_err();
        assert!(error.is_overloaded(), "{error}");
    };
    refused(0).await;
    let waiters = async |client: usize| {
        while sizes(&two.clients[client]).waiters != 1 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    // At another server, so it does not count.
    let beside = tokio::spawn(two.clients[1].lock(KEY).acquire().into_future());
    waiters(1).await;
    let first = tokio::spawn(two.lock().acquire().max_waiters(1).into_future());
    waiters(0).await;
    refused(1).await;
    guard.release().await.unwrap();
    beside.await.unwrap().unwrap().release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_do_not_keep_each_other_busy_with_a_minority_that_is_free() {
    let servers = Servers::new(3);
    let (one, two, holder) = (servers.program(), servers.program(), servers.program());
    let mut held = Vec::new();
    for client in &holder.clients[1..] {
        held.push(client.lock(KEY).acquire().await.unwrap());
    }
    let wait = Duration::from_secs(60);
    let (first, second) = (one.lock(), two.lock());
    let (first, second) = tokio::join!(
        first.acquire().wait(wait).into_future(),
        second.acquire().wait(wait).into_future()
    );
    assert!(first.unwrap_err().is_busy() && second.unwrap_err().is_busy());
    let rounds = [&one, &two].map(|program| program.faults[0].calls(Op::Attempt));
    // Where nothing says when to ask again it is after five seconds.
    assert!(
        rounds.iter().all(|rounds| *rounds < 30),
        "{rounds:?} rounds in a minute"
    );
    drop(held);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_that_ends_while_it_asks_once_more_was_a_wait_for_others() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    let wait = Duration::from_secs(1);
    // The first has been refused when it asks again, the second was behind it.
    let first = tokio::spawn(two.lock().acquire().wait(wait).into_future());
    sleep(wait / 100).await;
    let second = tokio::spawn(two.lock().acquire().wait(wait * 101 / 100).into_future());
    sleep(wait * 9 / 10).await;
    two.hang(0..3);
    guard.release().await.unwrap();
    for waiting in [first, second] {
        let error = waiting.await.unwrap().unwrap_err();
        assert!(error.is_busy(), "{error}");
    }
    two.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn servers_that_were_taken_in_vain_do_not_stay_taken() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let mut others = Vec::new();
    for client in &two.clients[1..] {
        others.push(client.lock(KEY).acquire().await.unwrap());
    }
    let time = LEASE * 10;
    let job = one.lock().acquire().hold_at_least(time);
    let busy = job.clone().wait(Duration::ZERO).await.unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    let start = Instant::now();
    let job = tokio::spawn(job.into_future());
    sleep(Duration::from_secs(1)).await;
    for other in others {
        other.release().await.unwrap();
    }
    let job = job.await.unwrap().unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "its own rest was in its way"
    );
    job.release().await.unwrap();
    assert!(two.lock().try_acquire().await.unwrap().is_none());
    sleep(time).await;
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_in_line_counts_also_when_the_one_before_it_has_gone_unseen() {
    let servers = Servers::new(3);
    let program = Arc::new(servers.program());
    let held = program.lock().acquire().await.unwrap();
    // It ends its hold in the same poll as it is granted, and from then on no server answers: the one behind it finds a
    // hold that is only being released.
    let before = Arc::clone(&program);
    let before = tokio::spawn(async move {
        let guard = before.lock().acquire().await.unwrap();
        before.hang(0..3);
        drop(guard);
    });
    sleep(Duration::from_millis(1)).await;
    let wait = Duration::from_millis(200);
    let behind = tokio::spawn(program.lock().acquire().wait(wait).into_future());
    sleep(Duration::from_millis(1)).await;
    held.release().await.unwrap();
    before.await.unwrap();
    let error = behind.await.unwrap().unwrap_err();
    assert!(error.is_busy(), "{error}");
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_behind_its_own_program_was_a_wait_in_line() {
    let servers = Servers::new(3);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    let first = tokio::spawn(program.lock().acquire().into_future());
    sleep(Duration::from_secs(1)).await;
    let wait = Duration::from_millis(20);
    let error = program.lock().acquire().wait(wait).await.unwrap_err();
    assert!(matches!(blocker(&error), Blocker::Queue(_)), "{error}");
    guard.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
    servers.are_empty().await;
}

/// Another program has the key on two of the servers, and the third one fails at once.
#[tokio::test(start_paused = true)]
async fn servers_that_refused_are_not_asked_again_and_again_for_one_that_is_away() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    one.hang([2]);
    let guard = one.lock().acquire().await.unwrap();
    two.faults[2].always(Op::Attempt, Fault::FailBefore);
    let wait = Duration::from_secs(60);
    let error = two.lock().acquire().wait(wait).await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    let rounds = two.faults[0].calls(Op::Attempt);
    assert!(rounds < 30, "{rounds} rounds in a minute");
    guard.release().await.unwrap();
    one.heal();
    two.heal();
    servers.are_empty().await;
}

/// Two of the three servers become free, which is enough. Another owner still holds the third.
#[tokio::test(start_paused = true)]
async fn waiter_gets_in_as_soon_as_a_majority_is_free() {
    let servers = Servers::new(3);
    let (program, others) = (servers.program(), servers.program());
    let mut held = Vec::new();
    for client in &others.clients {
        held.push(client.lock(KEY).acquire().await.unwrap());
    }
    let waiting = tokio::spawn(program.lock().acquire().into_future());
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    for guard in held.drain(1..) {
        guard.release().await.unwrap();
    }
    let guard = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_millis(100));
    guard.release().await.unwrap();
    drop(held);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn message_of_one_server_is_not_enough_where_two_are_wanting() {
    let servers = Servers::new(3);
    let (program, others) = (servers.program(), servers.program());
    let mut held = Vec::new();
    for client in &others.clients {
        held.push(client.lock(KEY).acquire().await.unwrap());
    }
    let wait = Duration::from_secs(4);
    let waiting = tokio::spawn(program.lock().acquire().wait(wait).into_future());
    for _ in 0..30 {
        sleep(Duration::from_millis(100)).await;
        held.remove(0).release().await.unwrap();
        let again = others.clients[0].lock(KEY).try_acquire().await.unwrap();
        held.insert(0, again.unwrap());
    }
    assert!(waiting.await.unwrap().unwrap_err().is_busy());
    let rounds = program.faults[1].calls(Op::Attempt);
    assert!(rounds < 6, "{rounds} rounds");
    drop(held);
    servers.are_empty().await;
}

/// One refuses and two fail, so what another one grants is of no use, whatever the last one answers.
#[tokio::test(start_paused = true)]
async fn grant_without_a_chance_of_a_majority_is_given_back_at_once() {
    let servers = Servers::new(5);
    let (program, other) = (servers.program(), servers.program());
    let held = other.clients[0].lock(KEY).acquire().await.unwrap();
    for faults in &program.faults[1..3] {
        faults.always(Op::Attempt, Fault::FailBefore);
    }
    let slow = Fault::DelayReply(Duration::from_secs(1));
    program.faults[4].always(Op::Attempt, slow);
    let asking = tokio::spawn(async move {
        let refused = program.lock().try_acquire().await;
        (program, refused)
    });
    sleep(Duration::from_millis(100)).await;
    let free = other.clients[3].lock(KEY).try_acquire().await.unwrap();
    assert!(free.is_some() && !asking.is_finished());
    let (program, _refused) = asking.await.unwrap();
    program.heal();
    drop((held, free));
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn time_in_which_an_acquisition_was_not_polled_is_no_outage_for_the_one_behind_it() {
    let servers = Servers::new(3);
    let program = servers.program();
    for faults in &program.faults {
        faults.always(Op::Attempt, Fault::Delay(Duration::from_millis(20)));
    }
    let lock = program.lock();
    let left = lock.acquire().wait(Duration::from_secs(1)).into_future();
    let mut left = Box::pin(left);
    assert!(poll_immediate(&mut left).await.is_none());
    // For longer than servers may be silent, and not for so long that the one behind it goes first.
    sleep(Duration::from_millis(4500)).await;
    let behind = lock.acquire().wait(Duration::from_secs(10)).into_future();
    let behind = tokio::spawn(behind);
    sleep(Duration::from_secs(1)).await;
    assert!(left.await.unwrap_err().is_busy());
    let guard = behind.await.unwrap().unwrap();
    guard.release().await.unwrap();
    servers.are_empty().await;
}
