//! The plain lock beside its bare commands: one task, many keys, one hot key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_tests::RedisServer;
use tokio::sync::Mutex;

use crate::bare::{Bare, names};
use crate::{ROUNDS, TASKS, jain, report, together};

pub(crate) async fn one_task(server: &RedisServer) {
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

pub(crate) async fn many_keys(server: &RedisServer) {
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
pub(crate) async fn hot_key(server: &RedisServer) {
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
