//! How many bytes a hold and a waiter take, each on a key of its own.
//!
//! A program apart from the other tests, because it counts with an allocator of its own. Everything runs on one thread, and
//! what that thread requests is counted. So the figures are the same each time, but for the buffers of a connection.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::{Duration, Instant};

use allocation_counter::measure;
use distlock::test_util::{sizes, stored};
use distlock::{Client, Guard, MemoryServer, Quorum};
use distlock_tests::RedisServer;
use futures_util::future::poll_immediate;
use tokio::runtime::{Builder, Runtime};
use tokio::task::unconstrained;

const KEYS: usize = 1_000;

/// Far more than all waiters need to subscribe and to ask again, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A runtime, and the bytes that its thread has requested and not freed.
struct Counted {
    runtime: Runtime,
    bytes: i64,
    /// How often it has requested bytes.
    requests: u64,
}

impl Counted {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            runtime,
            bytes: 0,
            requests: 0,
        }
    }

    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut output = None;
        // Without the budget of a task, which so many futures in one would use up.
        let run = || output = Some(self.runtime.block_on(unconstrained(future)));
        let counted = measure(run);
        self.bytes += counted.bytes_current;
        self.requests += counted.count_total;
        output.unwrap()
    }

    /// The average of what each key has taken since there were `before` bytes.
    fn each(&self, before: i64) -> i64 {
        (self.bytes - before) / KEYS as i64
    }
}

/// How many bytes one hold and one waiter may take.
struct Bounds {
    /// Of these, 24 bytes are what a snapshot shows, 8 the metrics, and 16 the release that an attempt may follow.
    hold: i64,
    waiter: i64,
}

fn key(n: usize) -> String {
    format!("order:{n}")
}

/// Starts the tasks of both clients and opens their connections, so that these are not counted.
async fn warm_up(holder: &Client, waiting: &Client) {
    let held = holder.lock("other").acquire().await.unwrap();
    let wait = waiting.lock("other").acquire();
    let waited = wait.wait(Duration::from_secs(2)).await;
    assert!(waited.unwrap_err().is_busy());
    held.release().await.unwrap();
}

async fn hold_all(holder: &Client) -> Vec<Guard> {
    let mut holds = Vec::with_capacity(KEYS);
    for n in 0..KEYS {
        holds.push(holder.lock(key(n)).acquire().await.unwrap());
    }
    holds
}

/// One client acquires many keys, and another one waits for each of them. `all_listen` tells whether all waiters have
/// subscribed, and have asked again since.
fn check(
    counted: &mut Counted,
    [holder, waiting]: [Client; 2],
    all_listen: impl AsyncFn() -> bool,
    bounds: &Bounds,
) {
    counted.run(warm_up(&holder, &waiting));
    let before = counted.bytes;
    let holds = counted.run(hold_all(&holder));
    println!(
        "{} requests for each hold",
        counted.requests as f64 / KEYS as f64
    );
    let since = Instant::now();
    let mut hold = counted.each(before);
    // A renewal that is under way takes memory for a moment.
    while hold > bounds.hold && since.elapsed() < SOON {
        counted.run(async { tokio::time::sleep(Duration::from_millis(5)).await });
        hold = counted.each(before);
    }
    println!("{hold} bytes for each hold");
    assert!(hold <= bounds.hold, "at most {}", bounds.hold);

    let (before, since) = (counted.bytes, Instant::now());
    let acquire = |n| waiting.lock(key(n)).acquire().into_future();
    let mut waits: Vec<_> = counted.run(async { (0..KEYS).map(acquire).collect() });
    counted.requests = 0;
    loop {
        let all_listen = counted.run(async {
            for wait in &mut waits {
                assert!(poll_immediate(wait).await.is_none());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            all_listen().await
        });
        let waiter = counted.each(before);
        // Commands and answers that are under way take memory for a moment.
        if all_listen && waiter <= bounds.waiter {
            println!("{waiter} bytes for each waiter");
            println!(
                "{} requests for each waiter",
                counted.requests as f64 / KEYS as f64
            );
            break;
        }
        let most = bounds.waiter;
        assert!(
            since.elapsed() < SOON,
            "{waiter} bytes for each waiter, at most {most}; all listen: {all_listen}"
        );
    }
    drop((waits, holds));
}

#[test]
fn bytes_of_a_hold_and_of_a_waiter_in_memory() {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let bounds = Bounds {
        hold: 910,
        waiter: 2_750,
    };
    let all_listen = async || stored(&server).1 >= KEYS;
    check(
        &mut Counted::new(),
        [client(), client()],
        all_listen,
        &bounds,
    );
}

#[test]
fn bytes_of_a_hold_and_of_a_waiter_with_a_server() {
    let mut counted = Counted::new();
    let server = counted.run(RedisServer::start());
    // Not tracked: on a busy machine some holds are older than a second before they are counted.
    let untracked = || Client::builder().track_holds(false);
    let mut client = || counted.run(untracked().connect(&server.url())).unwrap();
    let clients = [client(), client()];
    let bounds = Bounds {
        hold: 640,
        waiter: 2_630,
    };
    // Each holder asks once, and each waiter before and after it subscribes.
    let all_listen = async || {
        // Several attempts may come in one command.
        let asked = server.command_calls("exists").await;
        server.pubsub_channels().await.len() >= KEYS && asked >= 3 * KEYS as u64
    };
    check(&mut counted, clients, all_listen, &bounds);
}

/// After a second the server tracks a hold, and its client plans when to read the key again.
#[test]
fn bytes_of_a_hold_that_the_server_tracks() {
    const MOST: i64 = 810;
    let mut counted = Counted::new();
    let server = counted.run(RedisServer::start());
    let client = counted.run(Client::connect(&server.url())).unwrap();
    counted.run(warm_up(&client, &client));
    let before = counted.bytes;
    let holds = counted.run(hold_all(&client));
    let since = Instant::now();
    loop {
        let tracked: usize = counted.run(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.info("stats").await["tracking_total_keys"]
                .parse()
                .unwrap()
        });
        let hold = counted.each(before);
        // Reads and renewals that are under way take memory for a moment.
        if tracked >= KEYS && hold <= MOST {
            println!("{hold} bytes for each hold");
            break;
        }
        assert!(
            since.elapsed() < SOON,
            "{hold} bytes for each hold, at most {MOST}; {tracked} are tracked"
        );
    }
    drop(holds);
}

/// How often each of many waiters requests memory that stand in line behind a guard of their own client, from the call of
/// `acquire` to the guard.
fn requests_of_a_waiter_in_line(counted: &mut Counted, client: &Client) -> f64 {
    let lock = client.lock("hot");
    let mut turn = || {
        let before = counted.requests;
        counted.run(async {
            let held = lock.acquire().await.unwrap();
            let mut waits: Vec<_> = (0..KEYS).map(|_| lock.acquire().into_future()).collect();
            for wait in &mut waits {
                assert!(poll_immediate(wait).await.is_none());
            }
            held.release().await.unwrap();
            for wait in waits {
                wait.await.unwrap().release().await.unwrap();
            }
        });
        (counted.requests - before) as f64 / KEYS as f64
    };
    // The first turn also makes room in the tables of the client.
    turn();
    turn()
}

/// The future, what wakes it, and the guard. The rest is for the releases in between, after so many hand-overs. Two more in
/// memory are for what tests see of a waiter.
#[test]
fn waiter_behind_a_guard_of_its_own_client_requests_memory_three_times() {
    let mut counted = Counted::new();
    let in_memory = requests_of_a_waiter_in_line(&mut counted, &Client::in_memory());
    let server = counted.run(RedisServer::start());
    let client = counted.run(Client::connect(&server.url())).unwrap();
    let with_a_server = requests_of_a_waiter_in_line(&mut counted, &client);
    println!("{in_memory} requests for each waiter in line, {with_a_server} with a server");
    assert!(in_memory <= 5.6 && with_a_server <= 3.5);
}

#[test]
fn question_whether_a_redlock_is_held_requests_no_memory() {
    let mut counted = Counted::new();
    let quorum = Quorum::new([(); 3].map(|()| Client::in_memory()));
    let acquire = quorum.lock("k").acquire().into_future();
    let guard = counted.run(acquire).unwrap();
    let asked = measure(|| assert!(guard.is_held()));
    assert_eq!(asked.count_total, 0);
}

/// The tables of so many keys take another 118 bytes for each key. What stays is that a client remembers its last 10,000 answered
/// releases. With a server, because one in memory has tables of its own.
#[test]
fn client_gives_the_memory_of_a_rush_of_keys_back() {
    const RUSH: usize = 5 * KEYS;
    const REMEMBERED: i64 = 340;
    let mut counted = Counted::new();
    let server = counted.run(RedisServer::start());
    // Not tracked: on a slow machine some holds would be, and others not.
    let untracked = Client::builder().track_holds(false);
    let client = counted.run(untracked.connect(&server.url())).unwrap();
    counted.run(warm_up(&client, &client));
    let before = counted.bytes;
    counted.run(async {
        let mut holds = Vec::with_capacity(RUSH);
        for n in 0..RUSH {
            holds.push(client.lock(key(n)).acquire().await.unwrap());
        }
        for held in holds {
            held.release().await.unwrap();
        }
    });
    let since = Instant::now();
    // What the watchdog has planned goes when its time comes.
    while (counted.bytes - before) / RUSH as i64 > REMEMBERED {
        let kept = (counted.bytes - before) / RUSH as i64;
        assert!(since.elapsed() < SOON, "{kept} bytes are kept for each key");
        counted.run(async { tokio::time::sleep(Duration::from_millis(50)).await });
    }
    let sizes = sizes(&client);
    assert_eq!((sizes.keys, sizes.holds), (0, 0), "{sizes:?}");
}

/// The hold keeps the list, now empty, of those that wait for its end.
#[test]
fn waiters_that_gave_up_behind_holds_of_their_own_client_leave_nothing() {
    let mut counted = Counted::new();
    let client = Client::in_memory();
    counted.run(warm_up(&client, &client));
    let holds: Vec<Guard> = counted
        .run(async {
            let acquire = |n| client.lock(key(n)).acquire().into_future();
            futures_util::future::try_join_all((0..KEYS).map(acquire)).await
        })
        .unwrap();
    let before = counted.bytes;
    counted.run(async {
        for n in 0..KEYS {
            let wait = client.lock(key(n)).acquire().wait(Duration::from_millis(1));
            assert!(wait.await.unwrap_err().is_busy());
        }
    });
    let since = Instant::now();
    // A renewal that is under way takes memory for a moment.
    while counted.each(before) > 64 {
        let kept = counted.each(before);
        assert!(since.elapsed() < SOON, "{kept} bytes are kept for each key");
        counted.run(async { tokio::time::sleep(Duration::from_millis(50)).await });
    }
    drop(holds);
}
