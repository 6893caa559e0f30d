//! One task that needs two keys, beside many that need one of them each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, Client};
use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::plan::Plan;

const SINGLES: usize = 16;

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
async fn grants(client: &Client, with_both: bool, time: Duration) -> (f64, f64) {
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
    sleep(time).await;
    let granted = [&singles, &both].map(|count| count.load(Ordering::Relaxed) as f64);
    loops.end().await;
    (granted[0], granted[1])
}

async fn one_client(client: &Client, place: &str, plan: Plan, table: &mut Table) {
    let (mut shares, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    // Long enough that the one on both keys is granted often.
    let time = 3 * plan.slice;
    for _ in 0..plan.rounds.div_ceil(2) {
        alone.push(grants(client, false, time).await.0 / time.as_secs_f64());
        let (singles, both) = grants(client, true, time).await;
        beside.push(singles / time.as_secs_f64());
        shares.push(both / (singles / (2 * SINGLES) as f64));
    }
    let what = format!("{place}, two hot keys: grants of one task on both");
    let row = Row::new(what, "ratio", "");
    // Compared with a task on one of the keys, which is 1.
    table.push(row.ours(shares));
    let what = format!("{place}, two hot keys: grants of the others");
    let row = Row::new(what, "1/s", "without that task");
    table.push(row.ours(beside).theirs(alone));
}

pub(crate) async fn in_memory(plan: Plan, table: &mut Table) {
    one_client(&Client::in_memory(), "memory", plan, table).await;
}

pub(crate) async fn on_redis(server: &RedisServer, plan: Plan, table: &mut Table) {
    let client = Client::connect(&server.url()).await.unwrap();
    one_client(&client, "Redis", plan, table).await;
}

/// Three clients, as three processes would be: two are each hot on one key, and the third needs both.
pub(crate) async fn beside_two_others(server: &RedisServer, plan: Plan, table: &mut Table) {
    let (mut loops, longest) = (Loops::default(), Arc::default());
    let (singles, both) = (Arc::default(), Arc::default());
    for key in ["hot:a", "hot:b"] {
        let client = Client::connect(&server.url()).await.unwrap();
        for _ in 0..SINGLES {
            loops.start(client.lock(key).acquire(), &singles, &Arc::default());
        }
    }
    let client = Client::connect(&server.url()).await.unwrap();
    let acquire = client.multi_lock(["hot:a", "hot:b"]).acquire();
    loops.start(acquire, &both, &longest);
    let (time, rounds) = plan.share;
    sleep(time * u32::try_from(rounds).unwrap()).await;
    let counts = [&singles, &both].map(|count: &Arc<AtomicU64>| count.load(Ordering::Relaxed));
    loops.end().await;
    let [singles, both] = counts.map(|count| count as f64);
    let share = both / (singles / (2 * SINGLES) as f64);
    let what = "three clients, two hot keys: grants of one task on both";
    table.push(Row::new(what, "ratio", "").ours(vec![share]));
    let longest = longest.load(Ordering::Relaxed) as f64 / 1e3;
    let what = "three clients, two hot keys: its longest wait";
    table.push(Row::new(what, "ms", "").ours(vec![longest]));
}
