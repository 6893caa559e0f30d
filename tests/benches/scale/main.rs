//! How the cost grows: with holds, waiters, processes, keys, readers and clients.
//!
//! `cargo bench -p distlock-bench --bench scale` measures all curves, draws them into `scale/plots` and writes the figures into
//! `SCALE.md`. `-- --quick` measures the smaller sizes and writes nothing. `-- holds readers` measures some curves.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run must say so at once"
)]
#![allow(missing_docs, reason = "a program")]

mod child;
mod cost;
mod curve;
mod curves;
mod page;
mod plan;
mod plot;

use std::process::Command;
use std::time::Instant;

use distlock_tests::RedisServer;
use tokio::runtime::Builder;

use crate::child::CHILD;
use crate::curve::Curve;
use crate::curves::{clients, holds, keys, one_key, processes, readers, waiters};
use crate::plan::Plan;

fn main() {
    if let Ok(url) = std::env::var(CHILD) {
        let mut one_thread = Builder::new_current_thread();
        let runtime = one_thread.enable_all().build().unwrap();
        return runtime.block_on(child::run(&url));
    }
    // `cargo test` starts this program as well, without the flag of `cargo bench`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return println!("cargo bench -p distlock-bench --bench scale");
    }
    let plan = Plan::from_args();
    let start = Instant::now();
    match plan.only() {
        Some(name) => {
            let mut two_threads = Builder::new_multi_thread();
            let runtime = two_threads.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(measure(name, plan));
        }
        // A curve has a process and a server for itself, so that none finds the memory and the scripts of another one.
        None => {
            for name in plan.curves() {
                let mut process = Command::new(std::env::current_exe().unwrap());
                let flags = std::env::args().skip(1).filter(|arg| arg.starts_with('-'));
                let ended = process.arg(name).args(flags).status().unwrap();
                assert!(ended.success(), "{name}: {ended}");
            }
            println!("\n{} s", start.elapsed().as_secs());
        }
    }
}

async fn measure(name: &str, plan: Plan) {
    let server = RedisServer::start().await;
    match name {
        "holds" => done(plan, holds::curve(&server, plan).await),
        "waiters" => done(plan, waiters::curve(&server, plan).await),
        "one-key" => done(plan, one_key::curve(&server, plan).await),
        "processes" => {
            for curve in processes::curves(&server, plan).await {
                done(plan, curve);
            }
        }
        "keys" => done(plan, keys::curve(&server, plan).await),
        "readers" => done(plan, readers::curve(&server, plan).await),
        _ => done(plan, clients::curve(&server, plan).await),
    }
}

fn done(plan: Plan, curve: Curve) {
    println!("\n{curve}");
    if plan.writes() {
        page::write(&curve);
    }
}
