//! The lease of a Redlock: kept by the watchdog while a majority renews it, and lost with the majority or somewhat before
//! its end, by whatever clock.

use std::time::Duration;

use distlock::{Error, LockSource, Mode, MultiLock, Quorum};
use distlock_tests::faults::{Fault, Op};
use distlock_tests::lock_once;
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, LEASE, Program, Servers};

#[tokio::test(start_paused = true)]
async fn watchdog_keeps_it_with_a_minority_gone_and_it_is_lost_with_a_majority() {
    let servers = Servers::new(5);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.hang([1, 2]);
    sleep(LEASE * 3).await;
    assert!(guard.is_held());
    program.hang([3]);
    let start = Instant::now();
    timeout(LEASE, guard.lost())
        .await
        .expect("lost with the majority");
    assert!(start.elapsed() <= LEASE && !guard.is_held());
    program.heal();
    assert!(guard.release().await.unwrap_err().is_lost());
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn lost_somewhat_before_its_lease_ends_for_clocks_drift() {
    for servers in [1, 3] {
        lost_before_the_end_on(servers).await;
    }
}

async fn lost_before_the_end_on(servers: usize) {
    let servers = Servers::new(servers);
    let program = servers.program();
    let start = Instant::now();
    let guard = program.lock().acquire().lease(LEASE).await.unwrap();
    let again = guard.reenter().unwrap();
    again.lost().await;
    guard.lost().await;
    let margin = LEASE / 100 + Duration::from_millis(2);
    let expected = LEASE - margin;
    let early = expected.abs_diff(start.elapsed());
    assert!(early < Duration::from_millis(5), "{:?}", start.elapsed());
    assert!(!guard.is_held() && !again.is_held());
}

/// Without the servers that are still held, another program would have the majority together with one whose lease is over.
#[tokio::test(start_paused = true)]
async fn majority_that_was_lost_server_by_server_is_free_by_the_margin_after_the_loss() {
    let margin = LEASE / 4;
    let of_read_write = [(Mode::Read, Mode::Write), (Mode::Write, Mode::Read)];
    let modes = [(Mode::Reentrant, Mode::Reentrant)].into_iter();
    for ((mode, next), released) in modes
        .chain(of_read_write)
        .flat_map(|modes| [(modes, false), (modes, true)])
    {
        let servers = Servers::new(3);
        let (program, other) = (servers.program_with_margin(margin), servers.program());
        let lock = |program: &Program| LockSource::from(Quorum::new(program.clients.clone()));
        let guard = lock(&program).acquire(mode, [KEY]).await.unwrap();
        program.hang([0]);
        sleep(LEASE * 3).await;
        assert!(guard.is_held());
        program.hang([1]);
        guard.lost().await;
        let start = Instant::now();
        if released {
            assert!(guard.release().await.unwrap_err().is_lost());
        } else {
            drop(guard);
        }
        let next = lock(&other).acquire(next, [KEY]).await.unwrap();
        let took = start.elapsed();
        let slack = Duration::from_secs(1);
        assert!(
            took + slack / 100 >= margin && took < margin + slack,
            "{mode:?}: {took:?}"
        );
        next.release().await.unwrap();
        program.heal();
        servers.are_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn extended_by_a_majority_and_not_by_a_minority() {
    let servers = Servers::new(3);
    let program = servers.program();
    let guard = program.lock().acquire().lease(LEASE).await.unwrap();
    program.hang([1]);
    let (long, start) = (LEASE * 4, Instant::now());
    let deadline = guard.extend(long).await.unwrap();
    // Of the longer lease, more is set aside for clocks that drift.
    let margin = long / 100 + Duration::from_millis(2);
    let early = (deadline - start).abs_diff(long - margin);
    assert!(early < Duration::from_millis(5), "{:?}", deadline - start);
    sleep(LEASE * 2).await;
    assert!(guard.is_held());
    program.hang([2]);
    let left = guard.remaining();
    let error = guard.extend(long).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(guard.is_held() && guard.remaining() < left);
    program.heal();
    guard.lost().await;
    drop(guard);
    servers.are_empty().await;
}

/// Another owner has a part whose lease would last for longer than those of the parts that are left.
#[tokio::test(start_paused = true)]
async fn time_that_remains_is_that_of_the_parts_that_are_left() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    let guard = program.lock().acquire().await.unwrap();
    program.hang([2]);
    let start = Instant::now();
    sleep(LEASE / 2).await;
    let first = &other.clients[0].lock(KEY);
    first.force_release().await.unwrap();
    let theirs = first.acquire().await.unwrap();
    // By then the next renewal has found that it is gone.
    sleep(LEASE / 4).await;
    let left = guard.remaining();
    assert!(
        guard.is_held() && left <= LEASE - start.elapsed(),
        "{left:?}"
    );
    sleep(left).await;
    assert!(!guard.is_held());
    let told = timeout(Duration::from_millis(2), guard.lost());
    told.await.expect("it is told of the loss at once");
    drop(guard);
    theirs.release().await.unwrap();
    program.heal();
    servers.are_empty().await;
}

/// Two servers have granted it, and the lease is so short that it is nearly over when the third one may answer.
#[tokio::test(start_paused = true)]
async fn majority_is_no_older_for_a_server_that_it_does_not_need() {
    let servers = Servers::new(3);
    let program = servers.program();
    let slow = [
        Duration::ZERO,
        Duration::from_millis(640),
        Duration::from_millis(1_900),
    ];
    for (faults, slow) in program.faults.iter().zip(slow) {
        faults.always(Op::Attempt, Fault::DelayReply(slow));
    }
    let lock = program.lock();
    let acquire = lock.acquire().lease(Duration::from_secs(1));
    let guard = acquire.wait(Duration::ZERO).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    program.heal();
    servers.are_empty().await;
}

/// The lease of one client is short, and over when the other one has its grant.
#[tokio::test(start_paused = true)]
async fn majority_that_is_too_old_is_no_sign_of_another_owner() {
    let servers = Servers::new(3);
    let short = Duration::from_millis(2_200);
    let program = servers.program_with(&[short, LEASE, LEASE]);
    // Within the time for which a client waits for an answer.
    let slow = Duration::from_millis(1_900);
    program.faults[1].always(Op::Attempt, Fault::DelayReply(slow));
    program.hang([2]);
    let lock = program.lock();
    for wait in [Duration::ZERO, short / 2] {
        let error = lock.acquire().wait(wait).await.unwrap_err();
        assert!(
            matches!(error, Error::Unavailable { .. }),
            "{wait:?}: {error}"
        );
    }
    program.heal();
    servers.are_empty().await;
}

/// The last guard of a hold whose majority was lost keeps others out for the margin, also if it is not the one that acquired it.
#[tokio::test(start_paused = true)]
async fn margin_of_a_lost_majority_is_also_that_of_a_guard_that_ends_last() {
    let margin = LEASE / 4;
    for mode in [Mode::Reentrant, Mode::Write] {
        let servers = Servers::new(3);
        let (program, other) = (servers.program_with_margin(margin), servers.program());
        let lock = |program: &Program| LockSource::from(Quorum::new(program.clients.clone()));
        let guard = lock(&program).acquire(mode, [KEY]).await.unwrap();
        let again = guard.reenter().unwrap();
        program.hang([0]);
        sleep(LEASE * 3).await;
        program.hang([1]);
        guard.lost().await;
        let start = Instant::now();
        drop(guard);
        drop(again);
        let next = lock(&other).acquire(mode, [KEY]).await.unwrap();
        assert!(
            start.elapsed() >= margin * 9 / 10,
            "{mode:?}: {:?}",
            start.elapsed()
        );
        next.release().await.unwrap();
        program.heal();
        servers.are_empty().await;
    }
}

/// It re-enters a hold on each server, so it has no holds that change.
#[tokio::test(start_paused = true)]
async fn extended_by_a_majority_where_it_was_acquired_in_scopes_of_each_server() {
    let servers = Servers::new(3);
    let program = servers.program();
    let mut single = Vec::new();
    for client in &program.clients {
        single.push(client.lock(KEY).acquire().await.unwrap());
    }
    let lock = program.lock();
    let acquire = async { lock.acquire().lease(LEASE).await.unwrap() };
    let acquired = single[1].scope(single[2].scope(acquire));
    let guard = single[0].scope(acquired).await.unwrap().unwrap().unwrap();
    drop(single);
    program.clients[2].lock(KEY).force_release().await.unwrap();
    let (long, start) = (LEASE * 4, Instant::now());
    let deadline = guard.extend(long).await.unwrap();
    let margin = long / 100 + Duration::from_millis(2);
    let early = (deadline - start).abs_diff(long - margin);
    assert!(early < Duration::from_millis(5), "{:?}", deadline - start);
    guard.release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn forced_majority_is_a_loss_and_forced_minority_is_none() {
    let servers = Servers::new(3);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.clients[0].lock(KEY).force_release().await.unwrap();
    sleep(LEASE).await;
    assert!(guard.is_held());
    for client in &program.clients[..2] {
        client.lock(KEY).force_release().await.unwrap();
    }
    timeout(LEASE / 2, guard.lost())
        .await
        .expect("a majority is gone");
}

#[tokio::test(start_paused = true)]
async fn servers_whose_clocks_began_at_different_times() {
    let servers = Servers::new(3);
    let program = servers.program();
    lock_once(&program.clients[0], "other").await;
    sleep(LEASE * 3).await;
    let guard = program
        .lock()
        .acquire()
        .lease(LEASE)
        .wait(LEASE)
        .await
        .unwrap();
    let start = Instant::now();
    timeout(LEASE * 2, guard.lost())
        .await
        .expect("its lease is over");
    assert!(start.elapsed() > LEASE / 2, "{:?}", start.elapsed());
    let members = program
        .clients
        .iter()
        .map(|client| client.lock("all").into());
    let guard = MultiLock::of(members).acquire().lease(LEASE).await.unwrap();
    timeout(LEASE * 2, guard.lost())
        .await
        .expect("its lease is over");
}

#[tokio::test(start_paused = true)]
async fn granted_and_kept_if_the_clients_have_different_leases() {
    let short = LEASE / 50;
    for leases in [
        [LEASE, short, short, short, short],
        [short, LEASE, LEASE, short, LEASE],
    ] {
        let servers = Servers::new(5);
        let program = servers.program_with(&leases);
        let guard = program.lock().acquire().wait(LEASE).await.unwrap();
        sleep(LEASE * 2).await;
        assert!(guard.is_held(), "{leases:?}");
        guard.release().await.unwrap();
        servers.are_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_few_milliseconds_is_refused_and_the_margin_told() {
    let few = Duration::from_millis(9);
    let program = Servers::new(3).program();
    let refused = program.lock().acquire().lease(few).await.unwrap_err();
    assert!(
        matches!(refused, Error::InvalidLease { lease, .. } if lease == few),
        "{refused}"
    );
    assert_eq!(
        refused.to_string(),
        "invalid lease 9ms: expected 10ms to 3650days for a Redlock, which sets 2ms 90us aside for clock drift"
    );
    let program = Servers::new(3).program_with(&[LEASE, few, LEASE]);
    let refused = program.lock().try_acquire().await.unwrap_err();
    assert!(refused.is_permanent(), "{refused}");
    let least = Duration::from_millis(10);
    let program = Servers::new(3).program();
    let guard = program.lock().acquire().lease(least).await.unwrap();
    assert!(guard.is_held());
}

/// The second server answers when little more than a third of the lease is left, and the margin counts as well.
#[tokio::test(start_paused = true)]
async fn grant_of_which_a_quarter_is_left_is_kept() {
    let servers = Servers::new(3);
    let program = servers.program();
    let (lease, slow) = (Duration::from_millis(2_900), Duration::from_millis(1_914));
    program.hang([2]);
    program.faults[1].always(Op::Attempt, Fault::DelayReply(slow));
    let wait = Duration::from_secs(2);
    let guard = program.lock().acquire().lease(lease).wait(wait);
    let guard = guard.await.unwrap();
    assert_eq!(program.faults[1].calls(Op::Attempt), 1, "one round");
    guard.release().await.unwrap();
    program.heal();
    servers.are_empty().await;
}

/// Two servers have granted it, and the answer of the third one is awaited, when its future is left.
#[tokio::test(start_paused = true)]
async fn round_that_is_left_before_it_is_over_frees_the_servers() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    for wait in [Duration::MAX, Duration::ZERO] {
        program.faults[2].next(Op::Attempt, Fault::DelayReply(LEASE / 30));
        let mut left = program.lock().acquire().wait(wait).into_future();
        assert!(
            futures_util::future::poll_immediate(&mut left)
                .await
                .is_none()
        );
        assert!(!other.lock().holders().await.unwrap().is_empty());
        let next = other.lock().acquire().wait(Duration::from_secs(3)).await;
        next.expect("the servers are free").release().await.unwrap();
        let guard = left.await.unwrap();
        sleep(LEASE * 2).await;
        assert!(guard.is_held() && distlock::test_util::held_parts(&guard) == 3);
        guard.release().await.unwrap();
        servers.are_empty().await;
    }
}

/// One server has granted it, and the others are asked whether they are the same one, when its future is left.
#[tokio::test(start_paused = true)]
async fn round_that_is_left_while_it_compares_the_servers_frees_them() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    let majority = [1, 2].map(|server| other.clients[server].lock(KEY).acquire().lease(LEASE * 2));
    let majority = majority.map(IntoFuture::into_future);
    let majority = futures_util::future::try_join_all(majority).await.unwrap();
    program.faults[1].next(Op::Renew, Fault::DelayReply(LEASE / 30));
    let mut left = program.lock().acquire().into_future();
    assert!(
        futures_util::future::poll_immediate(&mut left)
            .await
            .is_none()
    );
    assert_eq!(program.faults[1].calls(Op::Renew), 1);
    let minority = other.clients[0].lock(KEY);
    assert!(minority.is_locked().await.unwrap());
    let next = minority.acquire().wait(Duration::from_secs(3)).await;
    next.expect("the server is free").release().await.unwrap();
    for guard in majority {
        guard.release().await.unwrap();
    }
    left.await.unwrap().release().await.unwrap();
    servers.are_empty().await;
}
