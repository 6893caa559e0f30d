//! What the lock costs beside the bare commands it sends: ratios, side by side in one run, on a server of its own.
//!
//! `cargo bench -p distlock-bench --bench lock`, or one group of rows with `-- shared` behind it. Rounds of both sides
//! alternate, so that a noisy machine hurts them alike, and the
//! median of the rounds' ratios is printed. A bare pair is the library's own two scripts, sent by EVALSHA over one
//! multiplexed connection with the same socket settings, and nothing else.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run must say so at once"
)]
#![allow(missing_docs, reason = "a program")]

mod bare;
mod engines;
mod hand_over;
mod hot_keys;
mod plain;
mod readers;
mod several;
mod shared;

use std::time::{Duration, Instant};

use distlock_bench::quartiles;
use distlock_tests::RedisServer;
use tokio::task::JoinSet;

const ROUNDS: usize = 31;
const TASKS: usize = 64;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let Ok(url) = std::env::var("DISTLOCK_BENCH_CHILD") {
        return runtime.block_on(hand_over::child(&url));
    }
    runtime.block_on(async {
        let server = RedisServer::start().await;
        println!("ratios, median of {ROUNDS} alternating rounds (middle half of the rounds)");
        if chosen("bare", "to the bare commands") {
            plain::one_task(&server).await;
            plain::many_keys(&server).await;
            plain::hot_key(&server).await;
            hand_over::two_processes(&server).await;
        }
        if chosen("plain", "to the plain lock") {
            several::multi_lock(&server).await;
            several::red_lock().await;
            hand_over::fair(&server).await;
            readers::one_key(&server).await;
        }
        if chosen("several", "16 tasks on each of two keys, and one on both") {
            hot_keys::in_memory().await;
            hot_keys::on_redis(&server).await;
            hot_keys::beside_two_others(&server).await;
        }
        if chosen("engines", "a cluster, and replicas that confirm") {
            engines::cluster(&server).await;
            engines::confirmed().await;
        }
        if chosen("shared", "four clients on one hot key") {
            shared::hot_key(&server).await;
        }
    });
}

/// Whether a group of rows runs: all do, unless the arguments name some. Says what the group compares.
fn chosen(name: &str, what: &str) -> bool {
    // `cargo bench` and `cargo test --benches` hand flags of their own on.
    let mut names = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .peekable();
    let chosen = names.peek().is_none() || names.any(|arg| arg == name);
    if chosen {
        println!("{name}: {what}");
    }
    chosen
}

/// One line of the report; `goal` says which way is good.
fn report(what: &str, ratios: Vec<f64>, goal: &str) {
    let [low, median, high] = quartiles(ratios);
    println!("{what:<58} {median:>7.2}  ({low:.2} to {high:.2})  goal {goal}");
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

/// Jain's index: 1 if all were served alike.
fn jain(served: &[f64]) -> f64 {
    let (sum, squares) = (
        served.iter().sum::<f64>(),
        served.iter().map(|n| n * n).sum::<f64>(),
    );
    sum * sum / (served.len() as f64 * squares)
}
