//! Rows 71 to 74 and 81: runtimes that go, processes that are killed, clients that are dropped, and what stays of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Client, Guard};
use distlock_tests::{Leaks, Process, RedisServer, eventually_eq, size};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::row::{Row, rows};
use crate::support::{
    SOON, client_with, default_client, free, idle, listened, ms, nothing_is_left,
};

const GUARDS: usize = 1_000;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Plays on a thread that knows of no runtime.
async fn on_a_plain_thread<T: Send + 'static>(play: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, played) = oneshot::channel();
    thread::spawn(move || done.send(play()));
    played.await.expect("it panicked there")
}

async fn guards_of(client: &Client, guards: usize) -> Vec<Guard> {
    let acquiring = (0..guards).map(|n| client.lock(format!("k:{n}")).acquire().into_future());
    let acquired = join_all(acquiring).await;
    acquired.into_iter().map(Result::unwrap).collect()
}

async fn f71_guards_dropped_after_their_runtime_are_released_by_the_next(row: &Row) {
    let server = RedisServer::start().await;
    for make in [one_thread, threads] {
        let url = server.url();
        let (client, owed) = on_a_plain_thread(move || {
            let first = make();
            let (client, guards) = first.block_on(async {
                let client = default_client(&url).await;
                let guards = guards_of(&client, GUARDS).await;
                (client, guards)
            });
            drop(first);
            drop(guards);
            let owed = sizes(&client).pending_releases;
            (client, owed)
        })
        .await;
        assert_eq!(owed, GUARDS);
        row.injected("guard dropped when its runtime had gone", owed as u64);
        on_a_plain_thread(move || {
            make().block_on(async {
                // Any call starts again what has to run; the leases are 30 s.
                drop(client.lock("any").try_acquire().await.unwrap());
                idle(&client).await;
            });
        })
        .await;
        assert_eq!(server.keys().await, [""; 0]);
    }
}

/// Dropped after a guard, in the same task: counts unless that panicked.
struct Quiet(Arc<AtomicUsize>);

impl Drop for Quiet {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn f71_runtime_shut_down_under_its_guards_panics_nowhere_and_leases_free_them(row: &Row) {
    let server = RedisServer::start().await;
    // Hundreds of attempts at once are answered within a sixth of it, also on a busy machine.
    let lease = ms(6_000);
    for make in [one_thread, threads] {
        let (url, quiet) = (server.url(), Arc::new(AtomicUsize::new(0)));
        let dropped = Arc::clone(&quiet);
        let clients = on_a_plain_thread(move || {
            let runtime = make();
            let client = runtime.block_on(async {
                let client = client_with(&url, |builder| builder.watchdog_timeout(lease)).await;
                for guard in guards_of(&client, GUARDS).await {
                    let quiet = Quiet(Arc::clone(&dropped));
                    tokio::spawn(async move {
                        let _quiet = quiet;
                        guard.scope(std::future::pending::<()>()).await
                    });
                }
                client
            });
            drop(runtime);
            client
        })
        .await;
        let quiet = quiet.load(Ordering::SeqCst);
        assert_eq!(quiet, GUARDS, "a drop panicked");
        row.injected("guard dropped with its runtime", quiet as u64);
        // Nobody calls the client any more.
        eventually_eq(2 * lease, "keys", vec![], || server.keys()).await;
        drop(clients);
    }
}

async fn f71_guard_dropped_on_a_plain_thread_is_released_by_the_runtime_that_lives(row: &Row) {
    let server = RedisServer::start().await;
    let client = default_client(&server.url()).await;
    let guards = guards_of(&client, GUARDS).await;
    let dropped = on_a_plain_thread(move || {
        let none = tokio::runtime::Handle::try_current().is_err();
        let dropped = guards.len();
        drop(guards);
        dropped * usize::from(none)
    });
    row.injected("guard dropped on a plain thread", dropped.await as u64);
    // The leases are 30 s, and nobody calls the client.
    free(&server, &[&client]).await;
}

fn holder(server: &RedisServer, watchdog: Duration) -> Process {
    let watchdog = watchdog.as_millis().to_string();
    Process::start(env!("CARGO_BIN_EXE_holder"), [server.url(), watchdog])
}

/// Kills a process that holds a key and one that waits for it. How long after that have others the key?
async fn killed(server: &RedisServer, client: &Client, key: &str, lease: Duration) -> Duration {
    let (mut holds, mut waits) = (holder(server, lease), holder(server, lease));
    let granted = holds.ask(format!("acquire {key}"), "granted", SOON).await;
    waits.send(format!("acquire {key}"));
    listened(server, key, 1).await;
    let next = tokio::spawn(client.lock(key).acquire().into_future());
    listened(server, key, 2).await;
    waits.kill();
    holds.kill();
    let start = Instant::now();
    let left = server.hgetall(key).await;
    assert!(
        left.keys().all(|owner| granted.ends_with(owner)) && left.len() == 1,
        "killed with a hold: {left:?}"
    );
    let guard = timeout(lease + SOON, next).await.unwrap().unwrap().unwrap();
    let took = start.elapsed();
    guard.release().await.unwrap();
    took
}

async fn f72_lock_of_killed_holders_and_waiters_comes_free_with_its_lease(row: &Row) {
    const PAIRS: usize = 10;
    let server = RedisServer::start().await;
    let (client, lease) = (default_client(&server.url()).await, ms(2_000));
    let keys: Vec<String> = (0..PAIRS).map(|n| format!("k:{n}")).collect();
    let kills = keys.iter().map(|key| killed(&server, &client, key, lease));
    let took = join_all(kills).await;
    row.injected("process killed that held or waited", 2 * took.len() as u64);
    let longest = took.iter().max().unwrap();
    println!("free after kill -9 within {longest:?}, the lease is {lease:?}");
    assert!(*longest <= lease + row.stretch(10 * ms(100)), "{took:?}");
    free(&server, &[&client]).await;
}

/// Connections that are not the harness's.
async fn connections(server: &RedisServer) -> u64 {
    let list = server.client_list().await;
    list.iter().filter(|line| !line.is_harness()).count() as u64
}

async fn f73_guards_keep_a_dropped_client_going_and_the_last_one_ends_it(row: &Row) {
    let server = RedisServer::start().await;
    let lease = ms(2_400);
    for by_drop in [false, true] {
        let leaks = Leaks::baseline(&server).await;
        let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
        let mut guards = guards_of(&client, 10).await;
        drop(client);
        sleep(lease * 4 / 3).await;
        assert!(guards.iter().all(Guard::is_held), "nobody renews");
        let last = guards.pop().unwrap();
        drop(guards);
        sleep(lease * 4 / 3).await;
        assert!(last.is_held(), "nobody renews the last one");
        let lives = connections(&server).await;
        assert!(lives > 0);
        row.injected("connection of a client that was dropped", lives);
        if by_drop {
            drop(last);
        } else {
            last.release().await.unwrap();
        }
        nothing_is_left(leaks, &server, vec![]).await;
    }
}

async fn f74_many_keys_in_memory_leave_nothing_in_the_process(row: &Row) {
    let keys: u64 = size(20_000, 400_000);
    let mut process = Process::start(env!("CARGO_BIN_EXE_many_keys"), [keys.to_string()]);
    let line = process.expect("grown", ms(110_000)).await;
    let words: Vec<&str> = line.split(' ').collect();
    let (grown, kept): (u64, u64) = (words[1].parse().unwrap(), words[3].parse().unwrap());
    row.injected("key used once", keys);
    // One entry that stayed for each would be some hundred bytes.
    assert!(grown < 2_000_000, "grown by {grown} bytes");
    assert_eq!(kept, 0);
}

async fn f74_many_keys_leave_nothing_in_the_client_and_the_server(row: &Row) {
    const ROUNDS: usize = 10;
    let server = RedisServer::start().await;
    let client = default_client(&server.url()).await;
    for round in 0..ROUNDS {
        let lock = |n| client.lock(format!("{round}:{n}"));
        let acquiring = (0..GUARDS).map(|n| lock(n).acquire().into_future());
        let guards = join_all(acquiring).await;
        assert_eq!(sizes(&client).keys, GUARDS);
        assert!(guards.iter().all(Result::is_ok));
        drop(guards);
        idle(&client).await;
    }
    let seen = server.command_calls("hset").await;
    assert!(seen >= (ROUNDS * GUARDS) as u64);
    row.injected("key used once", seen);
    free(&server, &[&client]).await;
    assert_eq!(sizes(&client), Sizes::default());
}

async fn f81_clients_and_processes_have_ids_of_their_own(row: &Row) {
    let clients = size(20_000, 100_000);
    let mut ids: HashSet<Uuid> = (0..clients).map(|_| Client::in_memory().id()).collect();
    assert!(ids.iter().all(|id| id.get_version_num() == 8));
    let server = RedisServer::start().await;
    // One after another, too: nothing of an id is kept anywhere.
    for _ in 0..2 {
        let mut processes = [(); 2].map(|()| holder(&server, SOON));
        for process in &mut processes {
            let id = process.ask("id", "id ", SOON).await;
            ids.insert(id[3..].parse().unwrap());
        }
    }
    assert_eq!(ids.len(), clients + 4);
    row.injected("client id", ids.len() as u64);
}

rows! {
    Real:
        f71_guards_dropped_after_their_runtime_are_released_by_the_next,
        f71_runtime_shut_down_under_its_guards_panics_nowhere_and_leases_free_them,
        f71_guard_dropped_on_a_plain_thread_is_released_by_the_runtime_that_lives,
        f72_lock_of_killed_holders_and_waiters_comes_free_with_its_lease,
        f73_guards_keep_a_dropped_client_going_and_the_last_one_ends_it,
        f74_many_keys_in_memory_leave_nothing_in_the_process,
        f74_many_keys_leave_nothing_in_the_client_and_the_server,
        f81_clients_and_processes_have_ids_of_their_own;
}
