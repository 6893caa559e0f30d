//! A Redlock whose servers refuse the attempt for good: without a majority that can grant, the error tells why, at once.

use std::time::Duration;

use distlock::Error;
use distlock_tests::faults::{Fault, Op};
use tokio::time::Instant;

use super::{KEY, LEASE, Program, Servers};

/// The key has a value of another type on these servers.
async fn other_type_on(program: &Program, servers: &[usize]) {
    for server in servers {
        let semaphore = program.clients[*server].semaphore(KEY);
        assert!(semaphore.try_set_permits(1).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn majority_that_refuses_for_good_is_told_at_once_and_is_not_busy() {
    for refusing in [&[0, 1][..], &[1, 2], &[0, 1, 2]] {
        let servers = Servers::new(3);
        let program = servers.program();
        other_type_on(&program, refusing).await;
        let start = Instant::now();
        let tried = program.lock().try_acquire().await;
        let is_told = |error: &Error| matches!(error, Error::WrongType { key, .. } if key == KEY);
        assert!(tried.as_ref().is_err_and(is_told), "{tried:?}");
        for wait in [Duration::from_secs(1), Duration::MAX] {
            let error = program.lock().acquire().wait(wait).await.unwrap_err();
            assert!(is_told(&error) && error.is_permanent(), "{error}");
        }
        let took = start.elapsed();
        assert!(took < Duration::from_millis(10), "{took:?}");
        for server in refusing {
            let semaphore = program.clients[*server].semaphore(KEY);
            assert!(semaphore.delete().await.unwrap());
        }
        // Nothing of the refused acquisitions is left, and no later one stands behind them.
        servers.are_empty().await;
        let guard = program.lock().try_acquire().await.unwrap().unwrap();
        guard.release().await.unwrap();
        servers.are_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn minority_that_refuses_for_good_costs_neither_the_lock_nor_time() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    other_type_on(&program, &[0]).await;
    let start = Instant::now();
    let guard = program.lock().acquire().await.unwrap();
    assert!(other.lock().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(10), "{took:?}");
    program.clients[0].semaphore(KEY).delete().await.unwrap();
    servers.are_empty().await;
}

/// The server that is away may grant it when it is back, with the third one.
#[tokio::test(start_paused = true)]
async fn one_server_that_refuses_for_good_and_one_that_is_away_are_unavailable() {
    let servers = Servers::new(3);
    let program = servers.program();
    other_type_on(&program, &[0]).await;
    program.faults[1].always(Op::Attempt, Fault::FailBefore);
    let error = program.lock().try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let waiting = tokio::spawn(program.lock().acquire().wait(LEASE).into_future());
    tokio::time::sleep(Duration::from_secs(2)).await;
    program.heal();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    program.clients[0].semaphore(KEY).delete().await.unwrap();
    servers.are_empty().await;
}
