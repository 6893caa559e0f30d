//! How the cost of a pair changes when a client has more keys, more tasks or more holds.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use distlock::{Client, Guard};
use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;
use tokio::task::JoinSet;

use super::plain::FLOOR;
use crate::bare::Bare;
use crate::contender::{Contender, Entry};
use crate::plan::Plan;
use crate::report;
use crate::tasks::{TASKS, alone, per_call, together};

const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// With few tasks each command goes alone, and with many they go together.
const TASKS_AT_ONCE: [usize; 6] = [1, 10, 40, 100, 1_000, 10_000];

/// One task that uses its keys in turn.
pub(crate) async fn keys(server: &RedisServer, plan: Plan, table: &mut Table) {
    let sides = Contender::all(server).await;
    for size in SIZES {
        let figures = plan.alternate(&sides, async |side: &Contender| {
            let mut entries: Vec<Entry> = (0..size).map(|n| side.entry(n)).collect();
            let mut next = 0;
            alone(plan.slice, async || {
                entries[next].pair().await;
                next = (next + 1) % size;
            })
            .await
        });
        let row = Row::new(format!("growth: one task, keys: {size}"), "us", FLOOR);
        table.push(report(row, figures.await));
    }
}

/// Each task has a key for itself. Each makes at least one pair.
pub(crate) async fn tasks(server: &RedisServer, plan: Plan, table: &mut Table) {
    let sides = Contender::all(server).await;
    for size in TASKS_AT_ONCE {
        let figures = plan.alternate(&sides, async |side: &Contender| {
            let entries: Vec<Entry> = (0..size).map(|n| side.entry(n)).collect();
            let work = together(size, plan.slice, |until, n, count| {
                let mut entry = entries[n].clone();
                async move {
                    loop {
                        entry.pair().await;
                        count.fetch_add(1, Ordering::Relaxed);
                        if Instant::now() >= until {
                            break;
                        }
                    }
                }
            });
            per_call(work.await)
        });
        let what = format!("growth: tasks on keys of their own: {size}");
        table.push(report(Row::new(what, "us", FLOOR), figures.await));
    }
}

/// One task beside holds of the same client, which it renews. The server has the same keys while the floor is measured.
pub(crate) async fn holds(server: &RedisServer, plan: Plan, table: &mut Table) {
    // Short enough that holds are renewed while the row is measured.
    let client = Client::builder().watchdog_timeout(Duration::from_secs(6));
    let client = client.connect(&server.url()).await.unwrap();
    let bare = Bare::new(&server.url()).await;
    let sides = [Contender::Ours(client.clone()), Contender::Bare(bare)];
    let mut held: Vec<Guard> = Vec::new();
    for size in SIZES {
        while held.len() < size {
            let more = (size - held.len()).min(TASKS);
            let from = held.len();
            let acquiring = (from..from + more)
                .map(|n| client.lock(format!("held:{n}")).acquire())
                .map(async |acquire| acquire.await.unwrap())
                .collect::<JoinSet<_>>();
            held.extend(acquiring.join_all().await);
        }
        let figures = plan.alternate(&sides, async |side: &Contender| {
            let mut entry = side.entry(0);
            alone(plan.slice, async || entry.pair().await).await
        });
        let row = Row::new(format!("growth: one task, keys held: {size}"), "us", FLOOR);
        table.push(report(row, figures.await));
    }
    while !held.is_empty() {
        let some = held.split_off(held.len().saturating_sub(TASKS));
        let releasing = some.into_iter().map(|guard| async move {
            guard.release().await.unwrap();
        });
        releasing.collect::<JoinSet<_>>().join_all().await;
    }
}
