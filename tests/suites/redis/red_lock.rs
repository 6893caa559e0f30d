//! Redlock on five servers of their own, of which up to two are dead, stopped or starting at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{held_parts, sizes};
use distlock::{Client, Error, Quorum};
use distlock_tests::faults::{Faults, Op};
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::{BY_MESSAGE, Disturbed as _, RedisServer, eventually, eventually_eq};
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

/// How much has happened, and whether that was enough.
struct Run {
    least: Instant,
    most: Instant,
    granted: AtomicUsize,
    faults: AtomicUsize,
}

impl Run {
    /// For at least four leases, and until there were enough grants and faults, which takes a busy machine longer.
    fn new() -> Self {
        let now = Instant::now();
        Self {
            least: now + 4 * LEASE,
            most: now + 3 * SOON,
            granted: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
        }
    }

    fn is_over(&self) -> bool {
        let (now, read) = (Instant::now(), |number: &AtomicUsize| {
            number.load(Ordering::Relaxed)
        });
        let enough = read(&self.granted) >= 50 && read(&self.faults) >= 3;
        now >= self.most || enough && now >= self.least
    }
}

/// Acquires over and over, and notes for how long each time it was entitled to.
async fn work(clients: Vec<Client>, run: Arc<Run>, seed: u64) -> (Vec<Claim>, u32) {
    let mut random = StdRng::seed_from_u64(seed);
    let lock = Quorum::new(clients).lock(KEY);
    let (mut claims, mut refused) = (Vec::new(), 0);
    while !run.is_over() {
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
        // Before the look at the guard: it was held up to this instant, and perhaps no longer.
        let until = Instant::now();
        if !lost && guard.is_held() {
            claims.push((from, until));
            run.granted.fetch_add(1, Ordering::Relaxed);
        }
        let _released = guard.release().await;
    }
    (claims, refused)
}

/// Up to two servers at once are killed or stopped for a while.
async fn inject(servers: Arc<Mutex<Vec<RedisServer>>>, run: Arc<Run>) {
    let mut random = StdRng::seed_from_u64(7);
    while !run.is_over() {
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
        run.faults.fetch_add(1, Ordering::Relaxed);
        sleep(LEASE / 10).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_exclude_each_other_while_a_minority_comes_and_goes() {
    let servers = servers().await;
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(program(&servers).await);
    }
    let servers = Arc::new(Mutex::new(servers));
    let run = Arc::new(Run::new());
    let injecting = tokio::spawn(inject(Arc::clone(&servers), Arc::clone(&run)));
    let mut workers = JoinSet::new();
    for n in 0..6 {
        workers.spawn(work(programs[n % 3].clone(), Arc::clone(&run), n as u64));
    }
    let (mut claims, mut refused) = (Vec::new(), 0);
    while let Some(worked) = workers.join_next().await {
        let (more, busy) = worked.unwrap();
        claims.extend(more);
        refused += busy;
    }
    injecting.await.unwrap();
    let faults = run.faults.load(Ordering::Relaxed);
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
    let is_free = || async {
        let guard = lock.acquire().wait(LEASE).await?;
        guard.release().await
    };
    eventually(SOON, "it is free", is_free).await;
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

/// The lease is longer than any stall of a busy machine, and each server is back long before it ends. One server answers only
/// after the lock was granted, as it may happen on a busy machine.
#[tokio::test]
async fn hold_is_kept_while_each_server_restarts_empty_in_turn() {
    let mut servers = Vec::new();
    for _ in 0..5 {
        servers.push(RedisServer::start().await);
    }
    let mut clients = Vec::new();
    for server in &servers {
        let builder = Client::builder().watchdog_timeout(3 * LEASE);
        clients.push(builder.connect(&server.url()).await.unwrap());
    }
    let lock = Quorum::new(clients.clone()).lock(KEY);
    servers[4].stop();
    let guard = lock.acquire().await.unwrap();
    servers[4].cont();
    // The key alone does not show that a part counts: the others are asked for the hold first.
    let parts = || async { held_parts(&guard) };
    eventually_eq(2 * SOON, "parts of the hold", 5, parts).await;
    for server in &mut servers {
        server.kill();
        server.restart().await;
        let is_back = || async { server.keys().await == [KEY] };
        eventually(2 * SOON, "the hold is back", is_back).await;
        eventually_eq(2 * SOON, "parts of the hold", 5, parts).await;
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    for server in &servers {
        let is_free = || async { server.keys().await.is_empty() };
        eventually(SOON, "free", is_free).await;
    }
}

// A waiter that hears nothing asks again 5 s after its last round. On a machine that stands still, a message may take as long.
in_real_time!(Duration::from_millis(500); release_wakes_a_waiter_of_another_program);

async fn release_wakes_a_waiter_of_another_program() {
    let (faults, mut servers) = (Faults::new(), Vec::new());
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = RedisServer::start().await;
        holders.push(Client::connect(&server.url()).await.unwrap());
        let waiter = Client::builder().faults(&faults);
        waiters.push(waiter.connect(&server.url()).await.unwrap());
        servers.push(server);
    }
    let (held, waited_for) = (
        Quorum::new(holders).lock(KEY),
        Quorum::new(waiters).lock(KEY),
    );
    for _ in 0..3 {
        let guard = held.acquire().await.unwrap();
        let rounds = || faults.calls(Op::Attempt) / servers.len();
        let before = rounds();
        let waiting = tokio::spawn(waited_for.acquire().into_future());
        // The second round follows the subscriptions.
        let asleep = || async { rounds() >= before + 2 };
        eventually(SOON, "the waiter sleeps", asleep).await;
        let last_round = Instant::now();
        guard.release().await.unwrap();
        let granted = waiting.await.unwrap().unwrap();
        let after = last_round.elapsed();
        granted.release().await.unwrap();
        assert!(
            after < BY_MESSAGE,
            "no message woke the waiter: granted after {after:?}"
        );
    }
}

#[tokio::test]
async fn two_clients_of_one_server_are_refused_with_both_addresses() {
    let servers = [RedisServer::start().await, RedisServer::start().await];
    let url = servers[0].url();
    // The same server by another name.
    let named = url.replace("127.0.0.1", "localhost");
    assert_ne!(url, named);
    let mut clients = Vec::new();
    for url in [&url, &named, &servers[1].url()] {
        clients.push(Client::connect(url).await.unwrap());
    }
    let lock = Quorum::new(clients).lock(KEY);
    // A majority that has answered before the client which is refused is a grant.
    let refused = async {
        loop {
            match lock.acquire().await {
                Ok(guard) => guard.release().await.unwrap(),
                Err(error) => break error,
            }
        }
    };
    let error = timeout(SOON, refused).await;
    let error = error.expect("it waits for itself, or is granted again and again");
    let address = |url: &str| url.rsplit(['/', '@']).next().unwrap().to_owned();
    let addresses = [address(&url), address(&named)];
    let is_named = matches!(
        &error,
        Error::InvalidConfig { value, .. } if addresses.iter().all(|one| value.contains(one))
    );
    assert!(is_named, "{error}, not {addresses:?}");
}

/// Two of the servers deny the user all scripts.
#[tokio::test]
async fn majority_that_denies_the_command_is_denied_at_once_and_not_busy() {
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for denied in [true, true, false] {
        let server = RedisServer::start().await;
        let mut rights = rights::all();
        if denied {
            rights.extend(["-evalsha", "-eval", "-script|load"]);
        }
        server.set_user("shop", &rights).await;
        let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
        let builder = Client::builder()
            .key_prefix("shop:")
            .unavailable_after(3 * SOON);
        clients.push(builder.connect(&url).await.unwrap());
        servers.push(server);
    }
    let lock = Quorum::new(clients).lock(KEY);
    let tried = lock.try_acquire().await;
    assert!(matches!(tried, Err(Error::Denied { .. })), "{tried:?}");
    let waited = timeout(SOON, lock.acquire().into_future()).await;
    let waited = waited.expect("it asks again and again");
    assert!(matches!(waited, Err(Error::Denied { .. })), "{waited:?}");
    for server in &servers {
        let is_free = || async { server.keys().await.is_empty() };
        eventually(SOON, "free", is_free).await;
    }
}
