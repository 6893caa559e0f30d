//! Every future of the public API is dropped after its n-th poll, left alone there, and meets a panic of the n-th call of foreign
//! code, for each n until nothing is left to disturb. Afterwards its key is free, others get their turn, and nothing is left: no
//! hold, no waiter, no subscription, no release that is owed, no task, no data.
//!
//! The awaits are not listed: a future is played once for each of its polls. [`rows`] is the table of the futures, and `api` fails
//! if the text of the public API has one that no row plays.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(
    clippy::async_yields_async,
    reason = "what is prepared before is apart from the future under test"
)]

mod api;
mod calls;
mod cuts;
mod play;
mod rows;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use distlock_tests::{RedisServer, size};

use self::cuts::{Cut, PLACES};
use self::play::{Backend, Ground};
use self::rows::Row;

/// Plays a row with a cut at every `step`-th place, from the first to the last.
fn every_place(ground: &Ground, row: &Row, sort: usize, step: u32) {
    // Not the same places in each row.
    let first = row.name.len() as u32 % step;
    for place in (first..PLACES).step_by(step as usize) {
        if !play::in_a_runtime(ground, row, &Cut::at(sort, place, ground)) {
            return;
        }
    }
    panic!("{}: each of {PLACES} plays was cut", row.name);
}

/// Plays all rows of a backend, on as many threads as help. Fails with each row that failed.
fn every_row(ground: &Ground, sorts: &[usize], step: u32, threads: usize) {
    calls::quiet();
    let rows = rows::names(ground.backend());
    assert!(rows.len() > 100, "{} rows", rows.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let (table, mut failed) = (rows::all(), Vec::new());
        while let Some(name) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = table.iter().find(|row| row.name == *name).unwrap();
            for sort in sorts {
                let played =
                    catch_unwind(AssertUnwindSafe(|| every_place(ground, row, *sort, step)));
                if played.is_err() {
                    failed.push(format!("{name}, {}", cuts::SORTS[*sort]));
                }
            }
        }
        failed
    };
    let failed: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.flatten().collect()
    });
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}

const DROPPED: &[usize] = &[0];
const LEFT: &[usize] = &[1, 2];
const LEFT_FOR_LONG: &[usize] = &[3, 4];
const PANICS: &[usize] = &[5, 6];

fn in_memory(sorts: &[usize], step: u32) {
    every_row(&Ground::memory(), sorts, step, 2);
}

/// On one server. Most of a play is waiting, so many threads play.
fn on_redis(sorts: &[usize], step: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(RedisServer::start());
    every_row(&Ground::redis(&server.url()), sorts, step, 16);
}

#[test]
fn future_in_memory_that_is_dropped_after_any_poll_leaves_nothing() {
    in_memory(DROPPED, 1);
}

#[test]
fn future_in_memory_that_is_left_alone_after_any_poll_leaves_nothing() {
    in_memory(LEFT, size(11, 1));
    in_memory(LEFT_FOR_LONG, size(11, 1));
}

#[test]
fn future_in_memory_that_meets_a_panic_of_any_foreign_call_leaves_nothing() {
    in_memory(PANICS, size(47, 1));
}

#[test]
fn future_on_redis_that_is_dropped_after_any_poll_leaves_nothing() {
    on_redis(DROPPED, size(17, 1));
}

/// A long time is left to paused time, which costs nothing.
#[test]
fn future_on_redis_that_is_left_alone_after_any_poll_leaves_nothing() {
    on_redis(LEFT, size(47, 1));
}

/// Each call but those of connections is one that the plays in memory make, too.
#[test]
fn future_on_redis_that_meets_a_panic_of_a_foreign_call_leaves_nothing() {
    on_redis(PANICS, size(480, 12));
}

/// Where the backend cannot play a row, the row says so.
#[test]
fn each_row_is_played_on_a_backend() {
    let [memory, redis] = [Backend::Memory, Backend::Redis].map(rows::names);
    for row in rows::all() {
        assert!(memory.contains(&row.name) || redis.contains(&row.name));
    }
}
