//! Redlock on five servers of their own, of which up to two are dead, stopped or starting at any time.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

use std::sync::Arc;
use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Quorum};
use distlock_tests::{RedisServer, eventually};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(2);

/// Longer than anything takes on a noisy machine.
const SOON: Duration = Duration::from_secs(20);

/// From when to when somebody was entitled to believe in the lock.
type Claim = (Instant, Instant);

async fn servers() -> Vec<RedisServer> {
    let mut servers = Vec::new();
    for _ in 0..5 {
        // A majority must not forget: one that restarts has what it had.
        let server = RedisServer::builder().appendonly(true).start();
        servers.push(server.await);
    }
    servers
}

/// The clients of one program.
async fn program(servers: &[RedisServer]) -> Vec<Client> {
    let mut clients = Vec::new();
    for server in servers {
        let builder = Client::builder()
            .watchdog_timeout(LEASE)
            .unavailable_after(LEASE);
        clients.push(builder.connect(&server.url()).await.unwrap());
    }
    clients
}

/// Acquires over and over, and notes for how long each time it was entitled to.
async fn work(clients: Vec<Client>, end: Instant, seed: u64) -> (Vec<Claim>, u32) {
    let mut random = StdRng::seed_from_u64(seed);
    let lock = Quorum::new(clients).lock(KEY);
    let (mut claims, mut refused) = (Vec::new(), 0);
    while Instant::now() < end {
        let Ok(guard) = lock.acquire().wait(LEASE).await else {
            refused += 1;
            continue;
        };
        let from = Instant::now();
        let work = Duration::from_millis(random.random_range(0..30));
        let lost = tokio::select! {
            () = guard.lost() => true,
            () = sleep(work) => false,
        };
        let still = !lost && guard.is_held();
        if still {
            claims.push((from, Instant::now()));
        }
        let _released = guard.release().await;
    }
    (claims, refused)
}

/// Up to two servers at once are killed or stopped for a while.
async fn befall(servers: Arc<Mutex<Vec<RedisServer>>>, end: Instant) -> u32 {
    let (mut random, mut faults) = (StdRng::seed_from_u64(7), 0);
    while Instant::now() + LEASE < end {
        let (one, two) = (random.random_range(0..5), random.random_range(0..5));
        let pause = Duration::from_millis(random.random_range(100..900));
        let kills = random.random_bool(0.5);
        let mut servers = servers.lock().await;
        servers[one].stop();
        if kills && two != one {
            servers[two].kill();
        }
        sleep(pause).await;
        servers[one].cont();
        if kills && two != one {
            servers[two].restart().await;
        }
        drop(servers);
        faults += 1;
        sleep(LEASE / 10).await;
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_exclude_each_other_while_a_minority_comes_and_goes() {
    let servers = servers().await;
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(program(&servers).await);
    }
    let servers = Arc::new(Mutex::new(servers));
    let end = Instant::now() + LEASE * 4;
    let befalling = tokio::spawn(befall(Arc::clone(&servers), end));
    let mut workers = JoinSet::new();
    for n in 0..6 {
        workers.spawn(work(programs[n % 3].clone(), end, n as u64));
    }
    let (mut claims, mut refused) = (Vec::new(), 0);
    while let Some(worked) = workers.join_next().await {
        let (more, busy) = worked.unwrap();
        claims.extend(more);
        refused += busy;
    }
    let faults = befalling.await.unwrap();
    claims.sort_unstable();
    for pair in claims.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two had the lock at once: {pair:?}");
    }
    println!(
        "{} claims, {refused} refused, {faults} faults",
        claims.len()
    );
    assert!(
        faults >= 3 && claims.len() >= 50,
        "{faults} faults, {} claims",
        claims.len()
    );
    // All servers are back: it is free, and nothing is owed.
    let lock = Quorum::new(programs[0].clone()).lock(KEY);
    let free = timeout(SOON, lock.acquire().into_future()).await.unwrap();
    free.unwrap().release().await.unwrap();
    eventually(SOON, "nothing is owed", || async {
        let clients = programs.iter().flatten();
        clients
            .map(|client| sizes(client).pending_releases)
            .sum::<usize>()
            == 0
    })
    .await;
    for server in servers.lock().await.iter() {
        assert!(server.keys().await.is_empty());
    }
}
