//! The guards of one hold, which may end in any order, all have what comes back to a server.

use std::future::pending;
use std::time::Duration;

use distlock::{Error, Guard, LockSource, Loss, Mode, Quorum};
use tokio::time::{Instant, sleep};

use super::regain::{each_forgets_in_turn, parts};
use super::{KEY, LEASE, Program, Servers};

/// Both guards have what came back, so the one that acquired the lock may end first.
#[tokio::test(start_paused = true)]
async fn guard_that_entered_again_keeps_what_came_back() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    program.hang([2]);
    let guard = program.lock().acquire().await.unwrap();
    let again = guard.reenter().unwrap();
    program.heal();
    sleep(LEASE).await;
    each_forgets_in_turn(&program).await;
    guard.release().await.unwrap();
    assert!(again.is_held());
    assert_eq!(parts(&program).await, 3);
    each_forgets_in_turn(&program).await;
    assert!(again.is_held());
    assert!(other.lock().try_acquire().await.unwrap().is_none());
    let third = again.reenter().unwrap();
    again.release().await.unwrap();
    assert!(third.is_held());
    third.release().await.unwrap();
    servers.are_empty().await;
}

/// It was acquired in a scope of the first guard, and it has a lease of its own. It stays held after that guard has ended, until its
/// lease ends.
#[tokio::test(start_paused = true)]
async fn guard_with_a_lease_of_its_own_keeps_what_came_back() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let start = Instant::now();
    let guard = lock.acquire().await.unwrap();
    let own = lock.acquire().lease(LEASE * 10);
    let inner = guard.scope(own.into_future()).await.unwrap().unwrap();
    each_forgets_in_turn(&program).await;
    guard.release().await.unwrap();
    assert!(inner.is_held());
    assert!(inner.remaining() > LEASE * 6, "{:?}", inner.remaining());
    assert_eq!(parts(&program).await, 3);
    inner.lost().await;
    assert!(start.elapsed() > LEASE * 9, "{:?}", start.elapsed());
    assert!(inner.release().await.unwrap_err().is_lost());
    servers.are_empty().await;
}

/// The watchdog keeps the inner guard, and nothing keeps the outer one, whose hold does not come back by itself.
#[tokio::test(start_paused = true)]
async fn renewed_guard_inside_a_fixed_lease_comes_back() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let guard = lock.acquire().lease(LEASE).await.unwrap();
    let inner = guard.scope(lock.acquire().into_future()).await;
    let inner = inner.unwrap().unwrap();
    guard.release().await.unwrap();
    each_forgets_in_turn(&program).await;
    assert!(inner.is_held());
    inner.release().await.unwrap();
    servers.are_empty().await;
}

/// It is over long before the renewals of the other one begin.
#[tokio::test(start_paused = true)]
async fn renewed_guard_inside_a_lease_of_another_length_comes_back_as_any_other() {
    for lease in [Duration::from_millis(50), LEASE * 100] {
        let servers = Servers::new(3);
        let program = servers.program();
        let lock = program.lock();
        program.hang([2]);
        let guard = lock.acquire().lease(lease).await.unwrap();
        let inner = guard.scope(lock.acquire().into_future()).await;
        let inner = inner.unwrap().unwrap();
        drop(guard);
        program.heal();
        sleep(LEASE).await;
        assert_eq!(parts(&program).await, 3, "{lease:?}");
        let third = program.clients[2].lock(KEY);
        assert!(third.remaining_lease().await.unwrap().unwrap() <= LEASE);
        each_forgets_in_turn(&program).await;
        assert!(inner.is_held(), "{lease:?}");
        inner.release().await.unwrap();
        servers.are_empty().await;
    }
}

async fn forget(program: &Program, mode: Mode, server: usize) {
    let client = &program.clients[server];
    let freed = match mode {
        Mode::Read => client.rw_lock(KEY).read().force_release().await,
        Mode::Write => client.rw_lock(KEY).write().force_release().await,
        _ => client.lock(KEY).force_release().await,
    };
    assert!(freed.unwrap(), "{mode} on {server}");
}

#[tokio::test(start_paused = true)]
async fn hold_of_each_mode_comes_back() {
    for mode in [
        Mode::Reentrant,
        Mode::NonReentrant,
        Mode::Spin,
        Mode::Read,
        Mode::Write,
    ] {
        let servers = Servers::new(3);
        let program = servers.program();
        let locks = LockSource::from(Quorum::new(program.clients.clone()));
        let guard = locks.acquire(mode, [KEY]).await.unwrap();
        for server in 0..3 {
            forget(&program, mode, server).await;
            sleep(LEASE).await;
        }
        assert!(guard.is_held(), "{mode}");
        let again = guard.reenter();
        if mode == Mode::NonReentrant {
            let error = again.unwrap_err();
            assert!(matches!(error, Error::Deadlock { .. }), "{error}");
        } else {
            again.unwrap().release().await.unwrap();
        }
        guard.release().await.unwrap();
        servers.are_empty().await;
    }
}

/// Each part sets the drift of its own lease aside.
#[tokio::test(start_paused = true)]
async fn part_that_comes_back_counts_by_the_lease_of_its_own_client() {
    let servers = Servers::new(3);
    let program = servers.program_with(&[LEASE * 10, LEASE / 10, LEASE / 10]);
    let guard: Guard = program.lock().acquire().await.unwrap();
    for server in [1, 2] {
        forget(&program, Mode::Reentrant, server).await;
        sleep(LEASE).await;
        assert!(guard.is_held(), "{server}");
    }
    guard.release().await.unwrap();
    servers.are_empty().await;
}

/// The part that was lost before was not extended with the others.
#[tokio::test(start_paused = true)]
async fn part_that_comes_back_after_an_extension_lasts_as_long_as_the_others() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let guard = lock.acquire().await.unwrap();
    program.hang([0]);
    let own = lock.acquire().lease(LEASE * 2);
    let inner = guard.scope(own.into_future()).await.unwrap().unwrap();
    sleep(LEASE + Duration::from_secs(5)).await;
    inner.extend(LEASE * 10).await.unwrap();
    sleep(LEASE).await;
    program.heal();
    sleep(LEASE).await;
    assert_eq!(parts(&program).await, 3);
    forget(&program, Mode::Reentrant, 1).await;
    sleep(LEASE / 10).await;
    assert!(inner.is_held());
    guard.release().await.unwrap();
    assert!(inner.is_held());
    inner.release().await.unwrap();
    servers.are_empty().await;
}

/// A scope ends before the leases do, by the margin for drift. Without one, the watchdogs find the loss.
#[tokio::test(start_paused = true)]
async fn loss_of_a_majority_is_listed_once_whoever_finds_it() {
    for in_scope in [true, false] {
        let servers = Servers::new(5);
        let program = servers.program();
        let guard = program.lock().acquire().await.unwrap();
        program.hang([0, 1, 2]);
        if in_scope {
            let ended = guard.scope(pending::<()>()).await;
            assert!(ended.unwrap_err().is_lost());
        } else {
            sleep(LEASE * 2).await;
            assert_eq!(program.losses(), [Loss::Expired]);
        }
        drop(guard);
        sleep(LEASE * 2).await;
        assert_eq!(program.losses(), [Loss::Expired], "{in_scope}");
        program.heal();
        servers.are_empty().await;
    }
}
