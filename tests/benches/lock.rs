//! What the lock costs beside the bare commands it sends: ratios, side by side in one run, on a server of its own.
//!
//! `cargo bench -p distlock-tests`. Rounds of both sides alternate, so that a noisy machine hurts them alike, and the
//! median of the rounds' ratios is printed. A bare pair is the library's own two scripts, sent by EVALSHA over one
//! multiplexed connection with the same socket settings, and nothing else.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run must say so at once"
)]
#![allow(missing_docs, reason = "a program")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_tests::{Process, RedisServer};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const ACQUIRE: &str = include_str!("../../distlock/src/backend/redis/scripts/lock_acquire.lua");
const RELEASE: &str = include_str!("../../distlock/src/backend/redis/scripts/lock_release.lua");
const ROUNDS: usize = 31;
const TASKS: usize = 64;

fn main() {
    // `cargo bench` and `cargo test --benches` hand their own flags on; there is nothing to choose here.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let Ok(url) = std::env::var("DISTLOCK_BENCH_CHILD") {
        return runtime.block_on(child(&url));
    }
    runtime.block_on(async {
        let server = RedisServer::start().await;
        println!("ratio to the bare commands, median of {ROUNDS} alternating rounds (middle half of the rounds)");
        one_task(&server).await;
        many_keys(&server).await;
        hot_key(&server).await;
        two_processes(&server).await;
    });
}

/// One line of the report; `goal` says which way is good.
fn report(what: &str, mut ratios: Vec<f64>, goal: &str) {
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part) as usize];
    println!(
        "{what:<58} {:>7.2}  ({:.2} to {:.2})  goal {goal}",
        at(0.5),
        at(0.25),
        at(0.75)
    );
}

/// The library's two scripts, bare.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
}

impl Bare {
    async fn new(server: &RedisServer) -> Self {
        // Room in the driver's queue and a response timeout as the library has them.
        let config = AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(1024)
            .set_response_timeout(Some(Duration::from_secs(2)));
        let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.unwrap();
        for source in [ACQUIRE, RELEASE] {
            let _: String = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(source)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
        Self {
            connection,
            acquire: Script::new(ACQUIRE).get_hash().into(),
            release: Script::new(RELEASE).get_hash().into(),
        }
    }

    async fn acquire(&mut self, key: &str, owner: &str) -> Value {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&*self.acquire)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(30_000);
        call.query_async(&mut self.connection).await.unwrap()
    }

    async fn release(&mut self, key: &str, owner: &str, channel: &str) -> Value {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&*self.release)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(channel);
        call.query_async(&mut self.connection).await.unwrap()
    }

    async fn pair(&mut self, key: &str, owner: &str, channel: &str) {
        assert_eq!(self.acquire(key, owner).await, Value::Nil);
        assert_eq!(self.release(key, owner, channel).await, Value::Int(0));
    }
}

/// Names as long as the library's own.
fn names(n: usize) -> (String, String, String) {
    let key = format!("bare:{n}");
    let channel = format!("redisson_lock__channel:{{{key}}}");
    (
        key,
        format!("0ddad9e6-60bc-45a5-8797-1987353a9077:{n}"),
        channel,
    )
}

async fn one_task(server: &RedisServer) {
    const PAIRS: u32 = 1_000;
    let client = Client::connect(&server.url()).await.unwrap();
    let (mut bare, (key, owner, channel)) = (Bare::new(server).await, names(0));
    let lock = client.lock("ours:0");
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PAIRS {
            bare.pair(&key, &owner, &channel).await;
        }
        let theirs = start.elapsed();
        let start = Instant::now();
        for _ in 0..PAIRS {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        ratios.push(start.elapsed().as_secs_f64() / theirs.as_secs_f64());
    }
    report(
        "one task, acquire and release: time",
        ratios,
        "at most 1.15",
    );
}

/// Runs `work` in all tasks at once, and answers how long they took together.
async fn together<F>(work: impl Fn(usize) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for n in 0..TASKS {
        tasks.spawn(work(n));
    }
    tasks.join_all().await;
    start.elapsed()
}

async fn many_keys(server: &RedisServer) {
    const PAIRS: usize = 100;
    let client = Client::connect(&server.url()).await.unwrap();
    let bare = Bare::new(server).await;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let theirs = together(|n| {
            let (mut bare, (key, owner, channel)) = (bare.clone(), names(n));
            async move {
                for _ in 0..PAIRS {
                    bare.pair(&key, &owner, &channel).await;
                }
            }
        })
        .await;
        let ours = together(|n| {
            let lock = client.lock(format!("ours:{n}"));
            async move {
                for _ in 0..PAIRS {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            }
        })
        .await;
        ratios.push(theirs.as_secs_f64() / ours.as_secs_f64());
    }
    report("64 tasks on 64 keys: throughput", ratios, "at least 0.90");
}

/// The queue to compare with: local and fair, and each hand-over goes through the server.
async fn hot_key(server: &RedisServer) {
    const ROUND: Duration = Duration::from_millis(150);
    let client = Client::connect(&server.url()).await.unwrap();
    let (bare, queue) = (Bare::new(server).await, Arc::new(Mutex::new(())));
    let (mut ratios, mut fairness) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let theirs = served(ROUND, |until, count| {
            let (mut bare, queue, (key, owner, channel)) =
                (bare.clone(), Arc::clone(&queue), names(0));
            async move {
                while Instant::now() < until {
                    let _turn = queue.lock().await;
                    bare.pair(&key, &owner, &channel).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
        .await;
        let ours = served(ROUND, |until, count| {
            let lock = client.lock("hot");
            async move {
                while Instant::now() < until {
                    let guard = lock.acquire().await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                    guard.release().await.unwrap();
                }
            }
        })
        .await;
        ratios.push(ours.iter().sum::<f64>() / theirs.iter().sum::<f64>());
        fairness.push(jain(&ours));
    }
    report(
        "64 tasks on one hot key: throughput to a queue over Redis",
        ratios,
        "at least 10",
    );
    report("64 tasks on one hot key: Jain index", fairness, "over 0.95");
}

/// How often each task was served until the round's end.
async fn served<F>(round: Duration, work: impl Fn(Instant, Arc<AtomicU64>) -> F) -> Vec<f64>
where
    F: Future<Output = ()> + Send + 'static,
{
    let counts: Vec<Arc<AtomicU64>> = (0..TASKS).map(|_| Arc::default()).collect();
    let until = Instant::now() + round;
    together(|n| work(until, Arc::clone(&counts[n]))).await;
    counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed) as f64)
        .collect()
}

fn jain(served: &[f64]) -> f64 {
    let (sum, squares) = (
        served.iter().sum::<f64>(),
        served.iter().map(|n| n * n).sum::<f64>(),
    );
    sum * sum / (served.len() as f64 * squares)
}

/// From the start of a release here to the grant in another process, beside the bare commands that it takes: one script
/// that publishes, and one EVALSHA by who hears of it.
async fn two_processes(server: &RedisServer) {
    const TIMES: usize = 200;
    let client = Client::connect(&server.url()).await.unwrap();
    let mut bare = Bare::new(server).await;
    let me = std::env::current_exe().unwrap();
    let child_of = format!("DISTLOCK_BENCH_CHILD={}", server.url());
    let mut child = Process::start("env", [child_of.as_str(), me.to_str().unwrap()]);
    let within = Duration::from_secs(10);
    let (key, owner, channel) = names(7);
    let (lock, mut ratios) = (client.lock("ours:handover"), Vec::new());
    for _ in 0..TIMES {
        bare.acquire(&key, &owner).await;
        child.send("bare");
        assert_eq!(child.line(within).await, "listening");
        let start = now();
        bare.release(&key, &owner, &channel).await;
        let theirs = granted(&child.line(within).await) - start;

        let guard = lock.acquire().await.unwrap();
        child.send("ours");
        assert_eq!(child.line(within).await, "listening");
        let subscribed = "redisson_lock__channel:{ours:handover}";
        distlock_tests::eventually(within, "the child waits", || async {
            server.pubsub_numsub(subscribed).await == 1
        })
        .await;
        // The subscription is followed by one more attempt, before the child sleeps.
        let _settled: Value = redis::cmd("PING")
            .query_async(&mut bare.connection)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let start = now();
        guard.release().await.unwrap();
        let ours = granted(&child.line(within).await) - start;
        ratios.push(ours / theirs);
    }
    report(
        "release to grant in another process: time",
        ratios,
        "(1.5 round trips)",
    );
}

fn granted(line: &str) -> f64 {
    line.strip_prefix("granted ")
        .and_then(|ns| ns.parse().ok())
        .unwrap_or_else(|| panic!("the child said {line:?}"))
}

/// The machine's monotonic clock in nanoseconds, the same for both processes.
fn now() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The other process: takes what the first one frees, by the library or by bare commands.
async fn child(url: &str) {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let client = Client::connect(url).await.unwrap();
    let (key, _, channel) = names(7);
    let owner = "1ddad9e6-60bc-45a5-8797-1987353a9077:1";
    let raw = redis::Client::open(url).unwrap();
    let mut connection = raw.get_multiplexed_async_connection().await.unwrap();
    let mut messages = raw.get_async_pubsub().await.unwrap();
    messages.subscribe(&channel).await.unwrap();
    let mut messages = messages.into_on_message();
    let script = Script::new(ACQUIRE);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        println!("listening");
        if line == "ours" {
            let guard = client.lock("ours:handover").acquire().await.unwrap();
            println!("granted {}", now());
            guard.release().await.unwrap();
        } else {
            futures_util::StreamExt::next(&mut messages).await.unwrap();
            let mut call = redis::cmd("EVALSHA");
            call.arg(script.get_hash())
                .arg(1)
                .arg(&key)
                .arg(owner)
                .arg(30_000);
            let _: Value = call.query_async(&mut connection).await.unwrap();
            println!("granted {}", now());
            let _: Value = redis::cmd("DEL")
                .arg(&key)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
    }
}
