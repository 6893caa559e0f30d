//! Rows 41 to 43, 48 and 54: servers that are killed, stopped, made replicas, or forget.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::Guard;
use distlock_tests::{RedisServer, eventually, eventually_eq, size};
use futures_util::future::join_all;
use rand::RngExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::row::{Row, rows};
use crate::support::{SOON, client, client_with, default_client, free, idle, ms};

/// The guards inside each critical section, by key.
#[derive(Default)]
struct Inside {
    guards: Mutex<HashMap<String, Vec<Arc<Guard>>>>,
    grants: AtomicU64,
}

impl Inside {
    /// Works for a while within the guard's section, where no other holder may be.
    async fn work(&self, guard: Guard) -> Guard {
        self.grants.fetch_add(1, Ordering::Relaxed);
        let guard = Arc::new(guard);
        let key = guard.key().to_owned();
        {
            let mut inside = self.guards.lock().unwrap();
            let inside = inside.entry(key.clone()).or_default();
            let other = inside.iter().find(|other| other.is_held());
            // The own hold last: the other may have had it until just now.
            assert!(other.is_none() || !guard.is_held(), "two inside");
            inside.push(Arc::clone(&guard));
        }
        let long = ms(some_time());
        sleep(long).await;
        let mut inside = self.guards.lock().unwrap();
        let inside = inside.get_mut(&key).unwrap();
        inside.retain(|other| !Arc::ptr_eq(other, &guard));
        Arc::into_inner(guard).unwrap()
    }
}

/// Milliseconds in a critical section: few, or as many as an outage takes.
fn some_time() -> u64 {
    let mut random = rand::rng();
    match random.random_range(0..4) {
        0 => random.random_range(200..1_500),
        _ => random.random_range(0..30),
    }
}

/// 50 clients share 5 keys while their server is killed again and again, each time to be down for so long. Yields the kills.
async fn killed_again_and_again(mut server: RedisServer, lease: Duration, down: Duration) -> u64 {
    let kills = size(4, 10);
    let inside = Arc::new(Inside::default());
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for n in 0..50 {
        let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
        let lock = client.lock(format!("k:{}", n % 5));
        let (inside, stop) = (Arc::clone(&inside), Arc::clone(&stop));
        clients.push(client);
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match lock.acquire().wait(SOON).await {
                    // A release may find that the hold is lost, or get no answer.
                    Ok(guard) => drop(inside.work(guard).await.release().await),
                    Err(error) => assert!(!error.is_permanent(), "{error}"),
                }
            }
        });
    }
    for _ in 0..kills {
        sleep(ms(rand::rng().random_range(50..300))).await;
        server.kill();
        sleep(down).await;
        server.restart().await;
        let grants = inside.grants.load(Ordering::Relaxed);
        eventually(SOON, "grants after the restart", || async {
            inside.grants.load(Ordering::Relaxed) > grants
        })
        .await;
        assert!(tasks.try_join_next().is_none(), "a client's task ended");
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    free(&server, &clients.iter().collect::<Vec<_>>()).await;
    kills
}

/// Without data, a server that is back at once grants what others have not noticed to be lost: row 42. So it stays down
/// for as long as a lease, and with data for as short as it can.
async fn f41_killed_servers_bring_no_two_holders_together(row: &Row) {
    let lease = ms(1_000);
    let with_data = RedisServer::builder().appendonly(true).start().await;
    let empty = RedisServer::start().await;
    let (kept, lost) = tokio::join!(
        killed_again_and_again(with_data, lease, Duration::ZERO),
        killed_again_and_again(empty, lease, lease + ms(50)),
    );
    row.injected("server killed that keeps its data", kept);
    row.injected("server killed that loses its data", lost);
}

async fn f41_hold_that_comes_back_with_the_data_is_released(row: &Row) {
    let mut server = RedisServer::builder().appendonly(true).start().await;
    let (holder, other) = (client(&server.url()).await, client(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    server.kill();
    row.injected("server killed", 1);
    drop(guard);
    server.restart().await;
    // The lease is 30 s: only the release that is still owed frees it in time.
    let guard = other.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    free(&server, &[&holder, &other]).await;
}

/// A third of this lease, after which a regular renewal would find anything, is far longer than [`SOON`].
const LONG: Duration = ms(90_000);

async fn f41_hold_that_comes_back_after_its_release_is_released_again(row: &Row) {
    let mut server = RedisServer::start().await;
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(LONG)).await;
    let other = default_client(&server.url()).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let of_readers = client.rw_lock("rw").read().acquire().await.unwrap();
    server.cli(&["SAVE"]).await;
    guard.release().await.unwrap();
    drop(of_readers);
    idle(&client).await;
    assert_eq!(server.keys().await, Vec::<String>::new());
    // What it stored last is from before the releases.
    server.kill();
    server.restart().await;
    row.injected("server killed that comes back with older data", 1);
    drop(other.lock("k").acquire().wait(SOON).await.unwrap());
    free(&server, &[&client, &other]).await;
}

async fn f42_holders_are_told_soon_when_their_server_comes_back_empty(row: &Row) {
    let mut server = RedisServer::start().await;
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(LONG)).await;
    let mut guards = Vec::new();
    for n in 0..200 {
        let (lock, fair) = (client.lock(format!("k:{n}")), format!("fair:{n}"));
        guards.push(match n % 4 {
            0 => lock.acquire().await.unwrap(),
            1 => lock.acquire().lease(LONG).await.unwrap(),
            2 => client.fair_lock(fair).acquire().await.unwrap(),
            _ => client.rw_lock("rw").read().acquire().await.unwrap(),
        });
    }
    server.kill();
    server.restart().await;
    row.injected("server killed that loses its data", 1);
    let told = join_all(guards.iter().map(Guard::lost));
    row.timeout(SOON, told).await.expect("all are told");
    drop(guards);
    free(&server, &[&client]).await;
}

/// Stops a server for some tenths of a lease, right after it has granted.
async fn stopped_for(tenths: u32, lease: Duration) {
    let mut server = RedisServer::start().await;
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let guard = client.lock("k").acquire().await.unwrap();
    server.stop();
    let resumed = Instant::now() + lease * tenths / 10;
    tokio::time::sleep_until(resumed).await;
    // The deadline has passed: told before anybody else can be let in.
    if tenths > 10 {
        assert!(!guard.is_held(), "held after {tenths} tenths");
        let told = timeout(Duration::ZERO, guard.lost()).await;
        told.unwrap_or_else(|_| panic!("not told after {tenths} tenths"));
    }
    server.cont();
    match tenths {
        ..=6 => {
            sleep(lease).await;
            // Of the lease some was left to renew it. Where it has passed because the machine stood still, the row is played again.
            assert!(guard.is_held(), "lost after {tenths} tenths");
            let released = guard.release().await;
            assert!(released.is_ok(), "{tenths} tenths: {released:?}");
        }
        7..=10 => drop(guard),
        _ => assert!(guard.release().await.unwrap_err().is_lost()),
    }
    idle(&client).await;
    eventually_eq(SOON, "keys", 0, || async { server.keys().await.len() }).await;
}

async fn f43_stopped_server_costs_a_hold_only_beyond_its_deadline(row: &Row) {
    let steps = (1..=20).map(|tenths| stopped_for(tenths, ms(2_000)));
    row.injected("server stopped", join_all(steps).await.len() as u64);
}

async fn f48_scripts_that_the_server_forgets_all_the_time_are_sent_again(row: &Row) {
    const TASKS: usize = 50;
    let server = RedisServer::start().await;
    let client = client(&server.url()).await;
    let mut forgets = server.connection().await;
    let flushing = tokio::spawn(async move {
        let mut pace = interval(ms(5));
        loop {
            pace.tick().await;
            let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
            flush.exec_async(&mut forgets).await.unwrap();
        }
    });
    let work = async |n: usize| {
        let lock = client.lock(format!("k:{n}"));
        for _ in 0..size(2_000, 10_000) / TASKS {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    };
    join_all((0..TASKS).map(work)).await;
    assert!(!flushing.is_finished());
    flushing.abort();
    row.injected("script flush", server.command_calls("script|flush").await);
    row.injected("script sent again", server.command_calls("eval").await);
    assert!(
        server.command_calls("eval").await > size(10, 50),
        "never forgotten"
    );
    assert_eq!(server.command_calls("script|load").await, 0);
    free(&server, &[&client]).await;
}

async fn f54_server_that_is_made_a_replica_grants_again_when_it_is_promoted(row: &Row) {
    let server = RedisServer::start().await;
    let primary = RedisServer::builder().arg("--repl-diskless-sync-delay", "0");
    let primary = primary.start().await;
    let settings = |builder: distlock::Builder| {
        let builder = builder.unavailable_after(SOON * 6);
        builder.watchdog_timeout(LONG)
    };
    let client = client_with(&server.url(), settings).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let port = primary.port().to_string();
    server.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    row.injected("server made a replica", 1);
    // It has taken the data of its primary, where the hold is unknown.
    let synced = || async { server.info("replication").await["master_link_status"].clone() };
    eventually_eq(SOON, "the link", "up".to_owned(), synced).await;
    let waits = tokio::spawn(client.lock("other").acquire().wait(SOON * 3).into_future());
    // So the client has found out before the server is promoted.
    let told = || async { client.health().to_string().contains("is a replica") };
    eventually_eq(SOON, "told", true, told).await;
    assert!(!waits.is_finished());
    server.cli(&["REPLICAOF", "NO", "ONE"]).await;
    waits.await.unwrap().unwrap().release().await.unwrap();
    row.timeout(SOON, guard.lost())
        .await
        .expect("the holder is told");
    drop(guard);
    free(&server, &[&client]).await;
}

rows! {
    Real: f54_server_that_is_made_a_replica_grants_again_when_it_is_promoted,
         f41_killed_servers_bring_no_two_holders_together,
        f41_hold_that_comes_back_with_the_data_is_released,
        f41_hold_that_comes_back_after_its_release_is_released_again,
        f42_holders_are_told_soon_when_their_server_comes_back_empty,
        f43_stopped_server_costs_a_hold_only_beyond_its_deadline,
        f48_scripts_that_the_server_forgets_all_the_time_are_sent_again;
}
