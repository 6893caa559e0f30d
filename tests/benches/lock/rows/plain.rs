//! The plain lock beside its bare commands and the other crates: one task, many keys, one hot key, dropped guards.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;
use tokio::sync::Mutex;

use crate::contender::{Contender, Entry};
use crate::plan::Plan;
use crate::report;
use crate::tasks::{TASKS, alone, jain, per_call, together};

pub(crate) const FLOOR: &str = "bare EVALSHA";

pub(crate) async fn one_task(server: &RedisServer, plan: Plan, table: &mut Table) {
    let sides = Contender::all(server).await;
    let figures = plan.alternate(&sides, async |side: &Contender| {
        let mut entry = side.entry(0);
        alone(plan.slice, async || entry.pair().await).await
    });
    let row = Row::new("one task, acquire and release", "us", FLOOR);
    table.push(report(row, figures.await));
}

pub(crate) async fn many_keys(server: &RedisServer, plan: Plan, table: &mut Table) {
    let sides = Contender::all(server).await;
    let figures = plan.alternate(&sides, async |side: &Contender| {
        let work = together(TASKS, plan.slice, |until, n, count| {
            let mut entry = side.entry(n);
            async move {
                while Instant::now() < until {
                    entry.pair().await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        per_call(work.await)
    });
    let row = Row::new("64 tasks on 64 keys, time per pair", "us", FLOOR);
    table.push(report(row, figures.await));
}

/// The slices are longer than elsewhere, so that each task is served some times even by the floor.
///
/// The floor is a queue in this process, which is fair, and each hand-over in it goes through the server.
pub(crate) async fn hot_key(server: &RedisServer, plan: Plan, table: &mut Table) {
    let sides = Contender::all(server).await;
    let mut fairness = vec![Vec::new(); sides.len()];
    let figures = plan.alternate(&sides, async |side: &Contender| {
        let queue = Arc::new(Mutex::new(()));
        let work = together(TASKS, 4 * plan.slice, |until, _, count| {
            let (mut entry, queue) = (side.entry(0), Arc::clone(&queue));
            async move {
                while Instant::now() < until {
                    let _turn = match &entry {
                        Entry::Bare(..) => Some(queue.lock().await),
                        _ => None,
                    };
                    entry.pair().await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let work = work.await;
        fairness[side.place()].push(jain(&work.0));
        per_call(work)
    });
    let row = Row::new(
        "64 tasks on one hot key, time per pair",
        "us",
        "a queue over EVALSHA",
    );
    table.push(report(row, figures.await));
    let row = Row::new(
        "64 tasks on one hot key, Jain index of the tasks",
        "1 = fair",
        "a queue over EVALSHA",
    );
    table.push(report(row, fairness));
}

/// A guard is dropped, and the same task acquires the same key at once. The other crates do not release a dropped guard.
pub(crate) async fn dropped(server: &RedisServer, plan: Plan, table: &mut Table) {
    let sides = Contender::without_peers(server).await;
    let figures = plan.alternate(&sides, async |side: &Contender| match side.entry(0) {
        Entry::Bare(mut bare, names) => {
            bare.acquire(&names.0, &names.1).await;
            let took = alone(plan.slice, async || bare.release_and_acquire(&names).await).await;
            bare.release(&names.0, &names.1, &names.2).await;
            took
        }
        Entry::Ours(lock) => {
            let mut held = Some(lock.acquire().await.unwrap());
            let took = alone(plan.slice, async || {
                drop(held.take());
                held = Some(lock.acquire().await.unwrap());
            })
            .await;
            held.unwrap().release().await.unwrap();
            took
        }
        Entry::Rslock(..) | Entry::RedisLock(..) => unreachable!("they are not in this row"),
    });
    let row = Row::new("guard dropped, then the same key again", "us", FLOOR);
    table.push(report(row, figures.await));
}
