//! What only one room of `distlock` may name: mutexes, the log, metrics, and what the interleavings explore.

use std::fs;
use std::path::{Path, PathBuf};

use super::rust_files;
use super::source::code_of;

/// The files of distlock that name this crate outside of comments and unit tests.
fn naming(crate_name: &str) -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../distlock/src");
    let path_of = format!("{crate_name}::");
    let names_it = |file: &PathBuf| {
        let source = fs::read_to_string(file).unwrap();
        let code = code_of(&source);
        let mut paths = code
            .lines()
            .flat_map(|line| line.match_indices(&path_of).map(move |(at, _)| (line, at)));
        // Not `self::metrics::`, which is a module of the crate.
        paths.any(|(line, at)| {
            line[..at].ends_with(|c: char| !c.is_alphanumeric() && c != ':') || at == 0
        })
    };
    let mut files: Vec<_> = rust_files(&src).into_iter().filter(names_it).collect();
    files.sort();
    let relative = files.iter().map(|file| file.strip_prefix(&src).unwrap());
    relative.map(|file| file.display().to_string()).collect()
}

#[test]
fn mutexes_of_distlock_are_those_that_count_in_tests() {
    assert_eq!(naming("parking_lot"), ["sync/explored/mutex.rs"]);
}

#[test]
fn what_the_interleavings_explore_comes_through_the_room_sync() {
    let explored = [
        "backend/memory/",
        "backend/reply.rs",
        "clock/",
        "guard/",
        "hold/",
        "local/",
        "scope/frames.rs",
        "scope/mod.rs",
        "scope/section.rs",
        "session/",
        "sync/counted.rs",
        "sync/flag.rs",
        "sync/foreign/",
        "sync/hint.rs",
        "sync/on_demand.rs",
        "wait/",
    ];
    let mut beside: Vec<String> = Vec::new();
    for name in [
        "tokio",
        "fastrand",
        "std::sync::atomic",
        "std::thread_local",
    ] {
        let files = naming(name).into_iter();
        let files = files.filter(|file| !file.ends_with("/tests.rs"));
        let explored = files.filter(|file| explored.iter().any(|part| file.starts_with(part)));
        beside.extend(explored.map(|file| format!("{file} names {name}")));
    }
    // The budget of tokio's tasks, which decides nothing here.
    let known = ["backend/reply.rs names tokio"];
    assert_eq!(beside, known, "use `crate::sync`");
}

#[test]
fn log_and_metrics_are_told_by_telemetry_alone() {
    // By `foreign::tell` and `foreign::count`, which find a call under a mutex.
    let telemetry = ["telemetry/acquisition.rs", "telemetry/events/mod.rs"];
    assert_eq!(naming("tracing"), telemetry);
    let with_metrics = ["telemetry/meter.rs", "telemetry/metrics.rs"];
    assert_eq!(naming("metrics"), with_metrics);
}
