//! A hold comes back to the servers that it missed or lost, and does not come back if it was lost as a whole.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use distlock::{Guard, Quorum};
use distlock_tests::faults::Op;
use futures_util::future::try_join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, LEASE, Program, Servers};

/// One server after the other forgets the lock, as if it restarted empty, and is given time to hear of the hold again.
pub(super) async fn each_forgets_in_turn(program: &Program) {
    for client in &program.clients {
        assert!(client.lock(KEY).force_release().await.unwrap());
        sleep(LEASE).await;
    }
}

pub(super) async fn parts(program: &Program) -> usize {
    program.lock().holders().await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn kept_while_each_server_forgets_it_in_turn() {
    let servers = Servers::new(5);
    let (program, other) = (servers.program(), servers.program());
    let guard = program.lock().acquire().await.unwrap();
    let again = guard.reenter().unwrap();
    each_forgets_in_turn(&program).await;
    assert!(guard.is_held() && again.is_held());
    assert_eq!(parts(&program).await, 5);
    assert_eq!(
        program.losses(),
        [],
        "each server has lost a part, and the lock is held"
    );
    assert!(other.lock().try_acquire().await.unwrap().is_none());
    again.release().await.unwrap();
    guard.release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn server_that_was_away_at_the_grant_has_it_later() {
    let servers = Servers::new(5);
    let program = servers.program();
    program.hang([0, 1]);
    let guard = program.lock().acquire().await.unwrap();
    program.heal();
    sleep(LEASE).await;
    assert_eq!(parts(&program).await, 5);
    for client in &program.clients[3..] {
        client.lock(KEY).force_release().await.unwrap();
    }
    sleep(LEASE / 2).await;
    assert!(guard.is_held());
    drop(guard);
    servers.are_empty().await;
}

/// Two servers were away at the grant. One of them is back and answers at once, and the other one never answers. The first one's part
/// counts before the attempt on the second one has timed out.
#[tokio::test(start_paused = true)]
async fn server_that_never_answers_does_not_delay_the_return_to_another() {
    let servers = Servers::new(5);
    let program = servers.program_with_response_timeout(LEASE / 6);
    program.hang([0, 1]);
    let guard = program.lock().acquire().await.unwrap();
    program.heal();
    program.hang([0]);
    // The attempt on the silent server goes on for some seconds more.
    sleep(LEASE / 3 + Duration::from_secs(1)).await;
    assert!(program.faults[0].hits(Op::Attempt) > 1, "not asked again");
    // The next renewal finds that this part is gone.
    let gone = program.clients[2].lock(KEY).force_release().await;
    assert!(gone.unwrap());
    sleep(LEASE / 3 + Duration::from_secs(1)).await;
    assert!(guard.is_held(), "the part came back too late");
    guard.release().await.unwrap();
    program.heal();
    servers.are_empty().await;
}

/// A waker that uses the guard at once, as an executor does that polls a task where it is woken.
struct EntersAgain {
    guard: Guard,
    entered: AtomicU32,
}

impl Wake for EntersAgain {
    fn wake(self: Arc<Self>) {
        let again = self.guard.reenter().unwrap();
        self.entered.fetch_add(1, Ordering::Relaxed);
        drop(again);
    }
}

#[tokio::test(start_paused = true)]
async fn part_comes_back_while_the_waker_that_hears_of_it_enters_the_lock_again() {
    let servers = Servers::new(3);
    let program = servers.program();
    program.hang([0]);
    let watched = Arc::new(EntersAgain {
        guard: program.lock().acquire().await.unwrap(),
        entered: AtomicU32::new(0),
    });
    program.heal();
    let waker = Waker::from(Arc::clone(&watched));
    {
        let mut lost = pin!(watched.guard.lost());
        let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        sleep(LEASE).await;
    }
    assert_eq!(parts(&program).await, 3);
    let entered = watched.entered.load(Ordering::Relaxed);
    assert!(entered > 0, "the new part was told to nobody");
    drop((waker, watched));
    servers.are_empty().await;
}

/// The leases differ, so the clients hear of the loss one after the other.
#[tokio::test(start_paused = true)]
async fn lost_if_all_servers_forget_it_at_once() {
    let servers = Servers::new(3);
    let program = servers.program_with(&[LEASE, LEASE / 3, LEASE / 5]);
    let guard = program.lock().acquire().await.unwrap();
    program.lock().force_release().await.unwrap();
    let meanwhile = servers.program().lock().acquire().await.unwrap();
    meanwhile.release().await.unwrap();
    timeout(LEASE / 2, guard.lost()).await.expect("told");
    sleep(LEASE).await;
    assert!(!guard.is_held(), "a hold that was lost came back");
    assert!(guard.release().await.unwrap_err().is_lost());
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn part_that_another_owner_has_comes_back_after_its_release() {
    let servers = Servers::new(3);
    let (program, other) = (servers.program(), servers.program());
    let guard = program.lock().acquire().await.unwrap();
    program.clients[0].lock(KEY).force_release().await.unwrap();
    let theirs = other.clients[0].lock(KEY).acquire().await.unwrap();
    sleep(LEASE * 2).await;
    assert!(guard.is_held() && theirs.is_held());
    theirs.release().await.unwrap();
    sleep(LEASE).await;
    let refused = other.clients[0].lock(KEY).try_acquire().await.unwrap();
    assert!(refused.is_none());
    guard.release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn hold_that_came_back_ends_with_its_max_hold() {
    let servers = Servers::new(3);
    let program = servers.program();
    let (start, most) = (Instant::now(), LEASE * 4);
    let guard = program.lock().acquire().max_hold(most).await.unwrap();
    each_forgets_in_turn(&program).await;
    assert!(guard.is_held());
    timeout(LEASE * 2, guard.lost())
        .await
        .expect("at its limit");
    let early = most.abs_diff(start.elapsed());
    assert!(early < Duration::from_secs(2), "{:?}", start.elapsed());
    drop(guard);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn branches_of_a_scope_stay_apart_while_each_server_forgets_in_turn() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let (inside, forgotten) = (Cell::new(false), Notify::new());
    let one = async {
        let guard = lock.acquire().await.unwrap();
        inside.set(true);
        each_forgets_in_turn(&program).await;
        forgotten.notify_one();
        sleep(LEASE).await;
        assert!(guard.is_held());
        inside.set(false);
        guard.release().await.unwrap();
    };
    let other = async {
        forgotten.notified().await;
        let guard = lock.acquire().await.unwrap();
        assert!(!inside.get(), "two branches at once");
        guard.release().await.unwrap();
    };
    let guard = lock.acquire().await.unwrap();
    let both = async { tokio::join!(one, other) };
    guard.scope(both).await.unwrap();
    guard.release().await.unwrap();
    servers.are_empty().await;
}

/// The call that moves the client to another runtime.
#[derive(Clone, Copy, Debug)]
enum Moves {
    /// A call from that runtime before the first one has ended.
    CallBefore,
    CallAfter,
    ReentryAfter,
    /// It gives the releaser work.
    DropAfter,
    /// It gives no task work.
    NumberAfter,
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

/// A call of each client.
async fn other_key(program: &Program) {
    let other = Quorum::new(program.clients.clone()).lock("other");
    other.acquire().await.unwrap().release().await.unwrap();
}

#[test]
fn kept_while_each_server_forgets_it_after_the_runtime_that_acquired_it_has_ended() {
    for moves in [
        Moves::CallBefore,
        Moves::CallAfter,
        Moves::ReentryAfter,
        Moves::DropAfter,
        Moves::NumberAfter,
    ] {
        let servers = Servers::new(3);
        let program = servers.program();
        let [first, second] = [paused(), paused()];
        let guard = first.block_on(program.lock().acquire().into_future());
        let guard = guard.unwrap();
        let mut dropped = Vec::new();
        if let Moves::DropAfter = moves {
            let locks = program.clients.iter().map(|client| client.lock("dropped"));
            let acquiring = locks.map(|lock| lock.acquire().into_future());
            dropped = first.block_on(try_join_all(acquiring)).unwrap();
        }
        if let Moves::CallBefore = moves {
            second.block_on(other_key(&program));
        }
        drop(first);
        second.block_on(async {
            match moves {
                Moves::CallBefore => {}
                Moves::CallAfter => other_key(&program).await,
                Moves::ReentryAfter => drop(guard.reenter().unwrap()),
                Moves::DropAfter => drop(dropped),
                Moves::NumberAfter => {
                    for client in &program.clients {
                        client.semaphore("number").add_permits(1).await.unwrap();
                        client.semaphore("number").delete().await.unwrap();
                    }
                }
            }
            each_forgets_in_turn(&program).await;
            assert!(guard.is_held(), "{moves:?}");
            assert_eq!(parts(&program).await, 3, "{moves:?}");
            guard.release().await.unwrap();
            servers.are_empty().await;
        });
    }
}

/// The task of the hold ends with the runtime of that call as well.
#[test]
fn kept_while_each_server_forgets_it_also_if_the_newest_runtime_has_ended_too() {
    let servers = Servers::new(3);
    let program = servers.program();
    let [first, second, third] = [paused(), paused(), paused()];
    let guard = first.block_on(program.lock().acquire().into_future());
    let guard = guard.unwrap();
    for later in [&third, &second] {
        later.block_on(other_key(&program));
    }
    drop(second);
    drop(first);
    third.block_on(async {
        each_forgets_in_turn(&program).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
        servers.are_empty().await;
    });
}
