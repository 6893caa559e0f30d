//! One task that needs two keys, beside many that need one of them each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, Client};
use distlock_tests::RedisServer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::report;

const SINGLES: usize = 16;
const TIME: Duration = Duration::from_millis(300);
const ROUNDS: usize = 11;

/// Each enters in a loop, without anything to do inside.
#[derive(Default)]
struct Loops {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Loops {
    /// Counts the grants, and the longest time from one to the next in microseconds.
    fn start(&mut self, acquire: Acquire, count: &Arc<AtomicU64>, longest: &Arc<AtomicU64>) {
        let (stop, count, longest) = (
            Arc::clone(&self.stop),
            Arc::clone(count),
            Arc::clone(longest),
        );
        self.tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                let guard = acquire.clone().await.unwrap();
                longest.fetch_max(start.elapsed().as_micros() as u64, Ordering::Relaxed);
                guard.release().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                // In memory nothing else waits, and one task alone would keep its thread.
                tokio::task::yield_now().await;
            }
        });
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
    }
}

/// The grants of all single waiters, and of the one on both keys.
async fn grants(client: &Client, with_both: bool) -> (f64, f64) {
    let (singles, both) = (Arc::default(), Arc::default());
    let mut loops = Loops::default();
    for _ in 0..SINGLES {
        for key in ["hot:a", "hot:b"] {
            loops.start(client.lock(key).acquire(), &singles, &Arc::default());
        }
    }
    if with_both {
        let acquire = client.multi_lock(["hot:a", "hot:b"]).acquire();
        loops.start(acquire, &both, &Arc::default());
    }
    sleep(TIME).await;
    let granted = [&singles, &both].map(|count| count.load(Ordering::Relaxed) as f64);
    loops.end().await;
    (granted[0], granted[1])
}

async fn one_client(client: &Client, place: &str) {
    let (mut shares, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (alone, _) = grants(client, false).await;
        let (singles, both) = grants(client, true).await;
        shares.push(both / (singles / (2 * SINGLES) as f64));
        losses.push(singles / alone);
    }
    let share = format!("{place}, on both to one of the others: grants");
    report(&share, shares, "at least 0.5");
    let rest = format!("{place}, the others beside it to alone: grants");
    report(&rest, losses, "at least 0.75");
}

pub(crate) async fn in_memory() {
    one_client(&Client::in_memory(), "in memory").await;
}

pub(crate) async fn on_redis(server: &RedisServer) {
    let client = Client::connect(&server.url()).await.unwrap();
    one_client(&client, "one client on Redis").await;
}

/// Three clients, as three processes would be: two are each hot on one key, and the third needs both.
pub(crate) async fn beside_two_others(server: &RedisServer) {
    const TIME: Duration = Duration::from_secs(20);
    let (mut loops, longest) = (Loops::default(), Arc::default());
    let (singles, both) = (Arc::default(), Arc::default());
    for key in ["hot:a", "hot:b"] {
        let client = Client::connect(&server.url()).await.unwrap();
        for _ in 0..SINGLES {
            loops.start(client.lock(key).acquire(), &singles, &Arc::default());
        }
    }
    let client = Client::connect(&server.url()).await.unwrap();
    loops.start(
        client.multi_lock(["hot:a", "hot:b"]).acquire(),
        &both,
        &longest,
    );
    sleep(TIME).await;
    let counts =
        [&singles, &both, &longest].map(|count: &Arc<AtomicU64>| count.load(Ordering::Relaxed));
    loops.end().await;
    let [singles, both, longest] = counts;
    println!(
        "beside two other clients, {TIME:?}: {both} grants to {singles}; longest wait {:?}",
        Duration::from_micros(longest)
    );
}
