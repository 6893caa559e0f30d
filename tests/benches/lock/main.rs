//! What the lock costs: the library, the bare commands that it sends and two other crates, side by side in one run.
//!
//! `cargo bench -p distlock-bench` measures all rows, `-- --quick` in less time and with fewer rounds, and
//! `--bench lock -- growth` one group of rows. `README.md` beside this folder explains each row.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run must say so at once"
)]
#![allow(missing_docs, reason = "a program")]

mod bare;
mod contender;
mod peers;
mod plan;
mod processes;
mod rows;
mod tasks;

use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;
use tokio::runtime::{Builder, Runtime};

use crate::plan::Plan;
use crate::processes::{CHILD, child, fair, hand_over, share};
use crate::rows::{engines, growth, hot_keys, memory, plain, readers, several};

fn main() {
    let runtime = with_threads(2);
    if let Ok(url) = std::env::var(CHILD) {
        return runtime.block_on(child::run(&url));
    }
    let quick = std::env::args().any(|arg| arg == "--quick");
    let plan = Plan::new(quick);
    let mut table = Table::new();
    println!(
        "up to {} rounds of {:?} for each side; the sides take turns",
        plan.rounds, plan.slice
    );
    runtime.block_on(on_redis(plan, &mut table));
    if chosen("memory") {
        with_threads(1).block_on(memory::threads(1, plan, &mut table));
        runtime.block_on(memory::threads(2, plan, &mut table));
    }
    println!("\nmedian of the rounds (middle half of the rounds)\n\n{table}");
}

async fn on_redis(plan: Plan, table: &mut Table) {
    let server = RedisServer::start().await;
    if chosen("bare") {
        plain::one_task(&server, plan, table).await;
        plain::many_keys(&server, plan, table).await;
        plain::hot_key(&server, plan, table).await;
        plain::dropped(&server, plan, table).await;
        several::multi_lock(&server, plan, table).await;
        readers::one_key(&server, plan, table).await;
    }
    if chosen("processes") {
        hand_over::two_processes(&server, plan, table).await;
        fair::hand_over(&server, plan, table).await;
        share::hot_key(&server, plan, table).await;
    }
    if chosen("growth") {
        growth::keys(&server, plan, table).await;
        growth::tasks(&server, plan, table).await;
        growth::holds(&server, plan, table).await;
    }
    if chosen("several") {
        hot_keys::in_memory(plan, table).await;
        hot_keys::on_redis(&server, plan, table).await;
        hot_keys::beside_two_others(&server, plan, table).await;
    }
    if chosen("engines") {
        engines::cluster(&server, plan, table).await;
        engines::confirmed(plan, table).await;
        several::red_lock(plan, table).await;
    }
}

fn with_threads(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

/// Whether a group of rows runs: all do, unless the arguments name some.
fn chosen(name: &str) -> bool {
    // `cargo bench` and `cargo test --benches` hand flags of their own on.
    let mut names = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .peekable();
    names.peek().is_none() || names.any(|arg| arg == name)
}

/// A row with the figures of the library, the bare commands, `rslock` and `redis-lock`, or of the first two.
fn report(row: Row, figures: Vec<Vec<f64>>) -> Row {
    let mut figures = figures.into_iter();
    let mut next = || figures.next().unwrap_or_default();
    row.ours(next())
        .theirs(next())
        .rslock(next())
        .redis_lock(next())
}
