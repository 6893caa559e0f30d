//! A live Redisson and distlock contend on everything, in both directions and with two versions of Redisson.
//!
//! A case says what the holder's side does and what the waiter's side does. It is a trial for each version, and for each
//! direction where the two sides do different things. The suite ends with a table of primitives, versions and directions. A
//! cell that no trial filled is a failure, unless the trials were chosen by a filter.
//!
//! To add a case: write an `async fn what_happens(stage: Stage)` in the file of its primitive, and add it to the list at the
//! end of that file.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod case;
mod cases;
mod stage;
mod statistics;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use libtest_mimic::Arguments;

use self::case::Play;
use self::statistics::note;
use self::table::Table;

/// Most cases wait for clocks. More at once would make them wait for the processor.
const AT_ONCE: usize = 10;

/// The page that shows the table.
const GUIDE: &str = include_str!("../../distlock/src/guide/sharing_with_redisson.md");

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    let table = Arc::new(Table::default());
    let is_whole = args.filter.is_none() && args.skip.is_empty();
    let mut failed = false;
    // What measures shares has the machine for itself, and histories are played two at a time.
    for (play, at_once) in [
        (Play::Beside, AT_ONCE),
        (Play::Pairwise, 2),
        (Play::Alone, 1),
    ] {
        let trials = cases::all().into_iter().filter(|case| case.play == play);
        let trials = trials.flat_map(|case| case.trials(&table)).collect();
        args.test_threads = Some(at_once);
        let start = Instant::now();
        failed |= libtest_mimic::run(&args, trials).has_failed();
        note(format!(
            "time of what is played {at_once} at once: {:.0} s",
            start.elapsed().as_secs_f64()
        ));
    }
    if !args.list {
        statistics::print();
        println!("\n{table}");
        if is_whole && !table.is_full() {
            eprintln!("no trial filled some of the cells");
            failed = true;
        }
        if is_whole && !failed && !table.is_in(GUIDE) {
            eprintln!("the guide's page sharing_with_redisson has another table than this one");
            failed = true;
        }
    }
    ExitCode::from(if failed { 101 } else { 0 })
}
