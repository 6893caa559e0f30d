//! Counts the instructions of the library for each instruction of the bare commands, and fails if a ratio is not the stored
//! one any more. `.ci/run instructions` runs it.
//!
//! Instructions do not depend on how busy the machine is, and times do. The ratio is to the same commands in the same run, so
//! that another compiler or processor changes both sides.

#![allow(
    clippy::unwrap_used,
    reason = "a program that cannot count must say so at once"
)]
#![allow(missing_docs, reason = "a program")]

mod bare;
mod callgrind;
mod cases;
mod cost;
mod parts;
mod stored;

use std::process::ExitCode;

use distlock_tests::RedisServer;

use cases::{CASES, Case};
use cost::Cost;
use stored::Stored;

/// A ratio may differ from the stored one by this part of it.
const TOLERANCE: f64 = 0.05;

/// An update leaves a ratio as it is that differs by less: nobody has changed it.
const UNCHANGED: f64 = 0.01;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [case, url] = &args[..] {
        // This is the program under callgrind.
        print!("{}", cases::run(case, url));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(gate())
}

async fn gate() -> ExitCode {
    let updates = std::env::var_os("UPDATE_INSTRUCTIONS").is_some();
    let mut stored = Stored::read();
    let mut wrong = Vec::new();
    println!("instructions for each operation: library, bare commands, ratio");
    for case in &CASES {
        let cost = count(case).await;
        let Case { name, what, .. } = case;
        println!("{name:<10} {cost}  {what}");
        if !case.is_gated {
            continue;
        }
        if updates && difference(case, &cost, &stored).is_none_or(|by| by.abs() > UNCHANGED) {
            stored.set(name, cost.ratio());
        }
        wrong.extend(objection(case, &cost, &stored));
    }
    if updates {
        stored.write();
    }
    for objection in &wrong {
        eprintln!("{objection}");
    }
    if wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Each case has a server for itself, with no keys of other cases.
async fn count(case: &Case) -> Cost {
    let server = RedisServer::start().await;
    Cost::of(&callgrind::count(case.name, &server).await)
}

/// By which part of the stored ratio the counted one differs from it.
fn difference(case: &Case, cost: &Cost, stored: &Stored) -> Option<f64> {
    let stored = stored.ratio(case.name)?;
    Some(cost.ratio() / stored - 1.0)
}

/// What is wrong with a ratio, and what to do about it.
fn objection(case: &Case, cost: &Cost, stored: &Stored) -> Option<String> {
    const UPDATE: &str = "If that is intended, `UPDATE_INSTRUCTIONS=1 bash .ci/run instructions` stores the new ratio; then \
                          write the reason in tests/benches/instructions.txt.";
    let (name, ratio) = (case.name, cost.ratio());
    let Some(before) = stored.ratio(name) else {
        return Some(format!(
            "{name}: no ratio is stored, and {ratio:.3} was counted. {UPDATE}"
        ));
    };
    let by = ratio / before - 1.0;
    if by.abs() > TOLERANCE {
        let (percent, way) = (100.0 * by.abs(), if by > 0.0 { "more" } else { "less" });
        return Some(format!(
            "{name}: the stored ratio is {before:.3}, and {ratio:.3} was counted, {percent:.1} % {way}. {UPDATE}"
        ));
    }
    let lacks =
        format!("{name}: the reason for its ratio is missing in tests/benches/instructions.txt");
    (!stored.has_reason(name)).then_some(lacks)
}
