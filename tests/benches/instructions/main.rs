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

use callgrind::Uncounted;
use cases::{CASES, Case};
use cost::Cost;
use stored::Stored;

/// A ratio may differ from the stored one by this part of it.
const TOLERANCE: f64 = 0.05;

/// An update keeps a stored ratio that differs by less than this part of it, with its date and its reason.
const UNCHANGED: f64 = 0.01;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [case, url] = &args[..] {
        // This is the program under callgrind.
        #[cfg(feature = "metrics")]
        record();
        print!("{}", cases::run(case, url));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if args == ["--costs"] {
        runtime.block_on(costs());
        return ExitCode::SUCCESS;
    }
    runtime.block_on(gate())
}

/// Takes all metrics, as the exporter for Prometheus does in a service.
#[cfg(feature = "metrics")]
fn record() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new();
    // Summaries and buckets cost about the same. Services have buckets.
    let recorder = recorder
        .set_buckets(&[0.001, 0.01, 0.1, 1.0, 10.0])
        .unwrap();
    metrics::set_global_recorder(recorder.build_recorder()).unwrap();
}

/// Prints what one operation of the library costs in each case, for a script that compares two builds.
async fn costs() {
    for case in &CASES {
        match count(case).await {
            Ok(cost) => println!("{} {:.0}", case.name, cost.library()),
            Err(Uncounted::TooBusy) => eprintln!("{}: the machine is too busy", case.name),
            Err(Uncounted::Failed(failure)) => panic!("{failure}"),
        }
    }
}

async fn gate() -> ExitCode {
    let mut stored = Stored::read();
    let updates = std::env::var_os("UPDATE_INSTRUCTIONS").is_some();
    let mut objections = Vec::new();
    println!("instructions for each operation: library, bare commands, ratio");
    for case in &CASES {
        let cost = match count(case).await {
            Ok(cost) => cost,
            Err(Uncounted::TooBusy) if !case.is_gated => {
                println!("{:<10} the machine is too busy to count it", case.name);
                continue;
            }
            Err(Uncounted::TooBusy) => panic!("{}: the machine is too busy", case.name),
            Err(Uncounted::Failed(failure)) => panic!("{failure}"),
        };
        println!("{:<10} {cost}  {}", case.name, case.what);
        if !case.is_gated {
            continue;
        }
        let ratio = cost.ratio();
        let is_unchanged = |by: f64| by.abs() <= UNCHANGED;
        if updates
            && !stored
                .difference(case.name, ratio)
                .is_some_and(is_unchanged)
        {
            stored.set(case.name, ratio);
        }
        objections.extend(objection(case.name, ratio, &stored));
    }
    for objection in &objections {
        eprintln!("{objection}");
    }
    if updates {
        stored.write();
    } else if !objections.is_empty() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Each case has a server for itself, with no keys of other cases.
async fn count(case: &Case) -> Result<Cost, Uncounted> {
    let server = RedisServer::start().await;
    let parts = callgrind::count(case.name, &server).await?;
    Ok(Cost::of(&parts))
}

/// What is wrong with a ratio, and what to do about it.
fn objection(case: &str, ratio: f64, stored: &Stored) -> Option<String> {
    const UPDATE: &str = "If the change is intended, run `UPDATE_INSTRUCTIONS=1 bash .ci/run instructions`, and then write \
                          the reason in tests/benches/instructions.txt.";
    let (Some(before), Some(by)) = (stored.ratio(case), stored.difference(case, ratio)) else {
        return Some(format!(
            "{case}: no ratio is stored, and the counted ratio is {ratio:.3}. {UPDATE}"
        ));
    };
    if by.abs() > TOLERANCE {
        let (percent, way) = (100.0 * by.abs(), if by > 0.0 { "more" } else { "less" });
        return Some(format!(
            "{case}: the stored ratio is {before:.3}, and the counted ratio is {ratio:.3}, {percent:.1} % {way}. \
             At most {:.0} % are allowed. {UPDATE}",
            100.0 * TOLERANCE
        ));
    }
    (!stored.has_reason(case)).then(|| {
        format!("{case}: write the reason for the ratio in tests/benches/instructions.txt.")
    })
}
