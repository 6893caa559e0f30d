//! How a distributed lock fails: tests for the rows of `FAILURES.md`, with the failure really injected.
//!
//! A test has the number of its row in its name: `f01_..` is row 1. A test whose failure never happened fails, even when all
//! its assertions hold. The suite ends with a table of the rows, what was injected and how often, and the result.
//!
//! There is one file for each subject, in a folder for what it concerns. To add a test: write an
//! `async fn fNN_what_happens(row: &Row)`, add it to the list at the end of its file, and name it in its row of
//! `FAILURES.md`.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod cluster;
mod failures;
mod foreign;
mod lives;
mod row;
mod stage;
mod support;

mod connections;
mod leases;
mod outcomes;
mod processes;
mod replication;
mod rights;
mod server;
mod waiters;

use std::process::ExitCode;

use distlock_tests::log;
use libtest_mimic::{Arguments, Trial};
use tracing::level_filters::LevelFilter;

use self::row::{Listed, Row, table};

fn main() -> ExitCode {
    log::collect(LevelFilter::INFO);
    support::silence_wanted_panics();
    let mut args = Arguments::from_args();
    let threads = std::env::var("RUST_TEST_THREADS").ok();
    args.test_threads = args.test_threads.or(threads.and_then(|n| n.parse().ok()));
    let listed: Vec<Listed> = [
        outcomes::rows(),
        leases::rows(),
        waiters::rows(),
        connections::rows(),
        server::rows(),
        replication::rows(),
        rights::rows(),
        processes::rows(),
        cluster::rows(),
    ]
    .concat();
    let mut rows: Vec<Row> = listed.iter().map(Row::of).collect();
    rows.sort_by_key(Row::number);
    let mut trials: Vec<Trial> = rows.iter().map(Row::trial).collect();
    trials.push(Trial::test("every_row_has_its_test", move || {
        failures::complete(&listed)
    }));
    let conclusion = libtest_mimic::run(&args, trials);
    if !args.list {
        print!("{}", table(&rows));
    }
    conclusion.exit_code()
}
