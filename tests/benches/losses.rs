//! How long it takes until a lost hold is told, on one server, on a cluster and with Sentinels, and what it costs to have holds
//! tracked.
//!
//! `cargo bench -p distlock-bench --bench losses` prints the median and the 99th percentile from the command that takes the key away
//! to the end of `lost()`, and then the cost of many holds with and without tracking. `-- --quick` takes fewer of both.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run must fail at once"
)]
#![allow(missing_docs, reason = "a bench has no public API")]

use std::time::{Duration, Instant};

use distlock::{Client, Guard};
use distlock_tests::{RedisCluster, RedisServer, SentinelSet, eventually_eq};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// No renewal comes while a loss is measured.
const LONG: Duration = Duration::from_secs(300);

/// How many holds get old together.
const TOGETHER: usize = 100;

const SOON: Duration = Duration::from_secs(30);

/// How a key is taken away.
#[derive(Clone, Copy, Debug)]
enum How {
    Del,
    Force,
    FlushAll,
    Evict,
}

impl How {
    const ALL: [Self; 4] = [Self::Del, Self::Force, Self::FlushAll, Self::Evict];

    /// Whether one command takes all keys.
    fn takes_all(self) -> bool {
        matches!(self, Self::FlushAll | Self::Evict)
    }
}

/// Where the locks are.
#[derive(Clone, Copy, Debug)]
enum Ground {
    One,
    Cluster,
    Sentinel,
}

/// The servers of a measurement.
enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
    Sentinel(SentinelSet),
}

impl Servers {
    async fn start(ground: Ground) -> Self {
        match ground {
            Ground::One => Self::One(RedisServer::start().await),
            Ground::Cluster => Self::Cluster(RedisCluster::start().await),
            Ground::Sentinel => Self::Sentinel(SentinelSet::start().await),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(set) => set.url(),
        }
    }

    /// The server of the keys, and what their names begin with.
    async fn of_keys(&self) -> (&RedisServer, String) {
        match self {
            Self::One(server) => (server, "lost:".to_owned()),
            Self::Cluster(cluster) => {
                let tag = cluster.key_at(0, "lost").await;
                (cluster.node(0), format!("{{{tag}}}:"))
            }
            Self::Sentinel(set) => (set.server(set.master().await), "lost:".to_owned()),
        }
    }
}

fn main() {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let quick = std::env::args().any(|arg| arg == "--quick");
    runtime.block_on(async {
        let samples = if quick { 100 } else { 500 };
        for (ground, samples) in [
            (Ground::One, samples),
            (Ground::Cluster, samples / 5),
            (Ground::Sentinel, samples / 5),
        ] {
            for how in How::ALL {
                losses(ground, how, samples.max(100)).await;
            }
        }
        let (rounds, time) = if quick {
            (1, Duration::from_secs(4))
        } else {
            (3, Duration::from_secs(10))
        };
        costs(rounds, time).await;
    });
}

async fn connect(url: &str, watchdog: Duration, track: bool) -> Client {
    let builder = Client::builder().watchdog_timeout(watchdog);
    let builder = builder.track_holds(track);
    builder.connect(url).await.unwrap()
}

async fn acquire(client: &Client, names: impl IntoIterator<Item = String>) -> Vec<Guard> {
    let mut acquiring = JoinSet::new();
    for name in names {
        let acquire = client.lock(name).acquire();
        acquiring.spawn(async move { acquire.await.unwrap() });
    }
    acquiring.join_all().await
}

/// Completes when the server tracks so many keys.
async fn tracked(server: &RedisServer, keys: usize) {
    let tracked = || async {
        let stats = server.info("stats").await;
        stats["tracking_total_keys"].parse::<usize>().unwrap()
    };
    eventually_eq(SOON, "tracked keys", keys, tracked).await;
}

/// Measures so many losses, each from before the command is sent.
async fn losses(ground: Ground, how: How, samples: usize) {
    let at_once = if how.takes_all() { 25 } else { TOGETHER };
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples / at_once {
        let servers = Servers::start(ground).await;
        let client = connect(&servers.url(), LONG, true).await;
        let other = connect(&servers.url(), LONG, true).await;
        let (server, prefix) = servers.of_keys().await;
        let mut admin = server.connection().await;
        let names = (0..at_once).map(|n| format!("{prefix}{n}"));
        let guards = acquire(&client, names).await;
        tracked(server, at_once).await;
        let told = |guards: &[Guard]| {
            let waits = guards.iter().map(Guard::lost);
            let mut told = JoinSet::new();
            for lost in waits {
                told.spawn(async move {
                    lost.await;
                    Instant::now()
                });
            }
            told
        };
        if how.takes_all() {
            let told = told(&guards);
            tokio::task::yield_now().await;
            let began = Instant::now();
            take(how, "", &other, &mut admin).await;
            times.extend(told.join_all().await.into_iter().map(|at| at - began));
        } else {
            for guard in &guards {
                let told = told(std::slice::from_ref(guard));
                tokio::task::yield_now().await;
                let began = Instant::now();
                take(how, guard.key(), &other, &mut admin).await;
                times.extend(told.join_all().await.into_iter().map(|at| at - began));
            }
        }
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "{ground:?}, {how:?}: {} losses, median {:.2} ms, 99 % within {:.2} ms, longest {:.2} ms",
        times.len(),
        at(50),
        at(99),
        at(100)
    );
}

async fn take(how: How, key: &str, other: &Client, admin: &mut redis::aio::MultiplexedConnection) {
    let words: &[&str] = match how {
        How::Del => &["DEL", key],
        How::FlushAll => &["FLUSHALL"],
        How::Evict => &[
            "CONFIG",
            "SET",
            "maxmemory-policy",
            "allkeys-random",
            "maxmemory",
            "1",
        ],
        How::Force => {
            assert!(other.lock(key).force_release().await.unwrap());
            return;
        }
    };
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async::<()>(admin).await.unwrap();
    if matches!(how, How::Evict) {
        // The next command finds the limit exceeded.
        let _evicted: redis::RedisResult<()> = redis::cmd("PING").query_async(admin).await;
    }
}

/// What many holds cost that are renewed every 2 s: with tracking and without it, in turn.
async fn costs(rounds: usize, time: Duration) {
    const HOLDS: usize = 10_000;
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (side, track) in [(0, false), (1, true)] {
            let server = RedisServer::start().await;
            let client = connect(&server.url(), Duration::from_secs(6), track).await;
            let names: Vec<String> = (0..HOLDS).map(|n| format!("held:{n}")).collect();
            let mut guards = Vec::with_capacity(HOLDS);
            for some in names.chunks(TOGETHER) {
                guards.extend(acquire(&client, some.iter().cloned()).await);
            }
            // By then all are old, and were renewed.
            sleep(Duration::from_secs(4)).await;
            let before = (
                own_time(),
                server_time(&server).await,
                commands(&server).await,
            );
            sleep(time).await;
            let seconds = time.as_secs_f64();
            figures[side].push([
                (own_time() - before.0) * 1e3 / seconds,
                (server_time(&server).await - before.1) * 1e3 / seconds,
                (commands(&server).await - before.2) as f64 / seconds,
            ]);
            assert!(guards.iter().all(Guard::is_held));
            drop(client);
            // The server goes with them.
            drop(guards);
        }
    }
    let names = [
        "the client's processor, ms a second",
        "the server's processor, ms a second",
        "commands a second",
    ];
    println!("{HOLDS} holds, renewed every 2 s, medians of {rounds} rounds:");
    for (at, name) in names.into_iter().enumerate() {
        let median = |side: usize| {
            let mut all: Vec<f64> = figures[side].iter().map(|figure| figure[at]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (without, with) = (median(0), median(1));
        println!(
            "  {name}: {without:.1} without tracking, {with:.1} with it, {:.2} times",
            with / without
        );
    }
}

/// The processor time of this process in seconds.
fn own_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// That of the server.
async fn server_time(server: &RedisServer) -> f64 {
    let used = server.info("cpu").await;
    let of = |field: &str| used[field].parse::<f64>().unwrap();
    of("used_cpu_user") + of("used_cpu_sys")
}

/// The commands that clients have sent.
async fn commands(server: &RedisServer) -> u64 {
    let mut calls = 0;
    for command in [
        "evalsha",
        "eval",
        "exists",
        "client|tracking",
        "client|caching",
    ] {
        calls += server.command_calls(command).await;
    }
    calls
}
