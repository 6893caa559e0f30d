//! How a distributed lock fails: tests for the rows of `FAILURES.md`, with the failure really injected.
//!
//! A test has the number of its row in its name: `f01_..` is row 1. A test whose failure never happened fails, even when all
//! its assertions hold. The suite ends with a table of the rows, what was injected and how often, and the result.
//!
//! There is one file for each subject. To add a test: write an `async fn fNN_what_happens(row: &Row)`, add it to the list at
//! the end of its file, and name it in its row of `FAILURES.md`.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod failures;
mod lives;
mod log;
mod row;
mod support;

mod cancel;
mod changes;
mod connection;
mod drops;
mod fencing;
mod foreign;
mod keys;
mod lease;
mod messages;
mod nesting;
mod numbers;
mod outcome;
mod panics;
mod process;
mod refusals;
mod release;
mod rights;
mod rights_by_kind;
mod scripts;
mod servers;
mod stage;
mod subscriptions;
mod sweep;
mod waiting;
mod watchdog;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use self::row::{Listed, Row, table};

fn main() -> ExitCode {
    log::collect();
    let mut args = Arguments::from_args();
    let threads = std::env::var("RUST_TEST_THREADS").ok();
    args.test_threads = args.test_threads.or(threads.and_then(|n| n.parse().ok()));
    let listed: Vec<Listed> = [
        outcome::rows(),
        numbers::rows(),
        lease::rows(),
        waiting::rows(),
        messages::rows(),
        subscriptions::rows(),
        watchdog::rows(),
        connection::rows(),
        servers::rows(),
        refusals::rows(),
        rights::rows(),
        rights_by_kind::rows(),
        process::rows(),
        scripts::rows(),
        sweep::rows(),
        cancel::rows(),
        panics::rows(),
        nesting::rows(),
        keys::rows(),
        drops::rows(),
        changes::rows(),
        fencing::rows(),
        release::rows(),
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
