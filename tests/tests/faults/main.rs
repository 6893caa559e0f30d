//! How a distributed lock fails, one test for each way, with the fault really injected.
//!
//! Rows of the table of failures have numbers, and a test has its row's: `f01_..` is row 1. A test that never saw its
//! fault happen fails, also where all that it asserts was so. The suite ends with a table: row, what was injected and
//! how often, and what came of it.
//!
//! One file per subject. To add a row: an `async fn fNN_what_happens(row: &Row)` and its line in the list at the end of
//! its file; the number goes into [`ROWS`].

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

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

use libtest_mimic::{Arguments, Failed, Trial};

use self::row::{Listed, Row, table};

/// The rows that one lock on one server has.
const ROWS: &[u16] = &[
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 21, 24, 25, 26, 27, 28, 29, 30, 31,
    33, 34, 35, 36, 39, 40, 41, 43, 44, 45, 46, 47, 48, 49, 50, 52, 53, 67, 68, 69, 70, 71, 72, 73,
    74, 75, 76, 79, 80, 81, 83, 85, 86, 88, 89, 92,
];

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
        complete(&listed)
    }));
    let conclusion = libtest_mimic::run(&args, trials);
    if !args.list {
        print!("{}", table(&rows));
    }
    conclusion.exit_code()
}

/// Each row has a test, and each test a row.
fn complete(listed: &[Listed]) -> Result<(), Failed> {
    let mut tested: Vec<u16> = listed.iter().map(Listed::number).collect();
    tested.sort_unstable();
    tested.dedup();
    if tested == ROWS {
        return Ok(());
    }
    Err(format!("tests for the rows {tested:?}, and the list has {ROWS:?}").into())
}
