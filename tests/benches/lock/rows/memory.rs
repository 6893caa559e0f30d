//! The memory backend, on one thread and on two. Its cost is that of the library's own bookkeeping: the clock, the queues
//! and the holds. All keys of a client share one clock, so two threads show whether that clock is in the way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Client, Lock};
use distlock_bench::{Row, Table};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::plan::Plan;
use crate::tasks::{TASKS, per_call, together};

/// Pairs between two looks at the clock and at the other tasks.
const BATCH: u64 = 20;

enum Side {
    Ours(Client),
    /// A mutex for each key, in a map.
    Mutexes(Mutexes),
}

type Mutexes = Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>;

/// On a runtime with `threads` threads, which must be the one that this runs in.
pub(crate) async fn threads(threads: usize, plan: Plan, table: &mut Table) {
    let mutexes = Side::Mutexes(Arc::default());
    let sides = [Side::Ours(Client::in_memory()), mutexes];
    for tasks in [threads, TASKS] {
        let figures = plan.alternate(&sides, async |side: &Side| {
            pairs(side, tasks, plan.slice).await
        });
        let [ours, theirs] = figures.await.try_into().unwrap();
        let what = format!("in memory, threads: {threads}, tasks on keys of their own: {tasks}");
        let row = Row::new(what, "us", "a map of mutexes");
        table.push(row.ours(ours).theirs(theirs));
    }
}

async fn pairs(side: &Side, tasks: usize, slice: Duration) -> f64 {
    match side {
        Side::Ours(client) => {
            let work = together(tasks, slice, |until, n, count| {
                with_lock(client.lock(format!("key:{n}")), until, count)
            });
            per_call(work.await)
        }
        Side::Mutexes(mutexes) => {
            let work = together(tasks, slice, |until, n, count| {
                with_mutex(Arc::clone(mutexes), format!("key:{n}"), until, count)
            });
            per_call(work.await)
        }
    }
}

async fn with_lock(lock: Lock, until: Instant, count: Arc<AtomicU64>) {
    while Instant::now() < until {
        for _ in 0..BATCH {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        count.fetch_add(BATCH, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}

async fn with_mutex(mutexes: Mutexes, key: String, until: Instant, count: Arc<AtomicU64>) {
    while Instant::now() < until {
        for _ in 0..BATCH {
            let mutex = Arc::clone(mutexes.lock().entry(key.clone()).or_default());
            drop(mutex.lock().await);
            mutexes.lock().remove(&key);
        }
        count.fetch_add(BATCH, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}
