//! `.ci/test` plays each test program once.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// The programs that `.ci/test` plays by their names. It plays all others by patterns, which leave out these initials.
const BY_NAME: [(&str, &str); 4] = [
    ("chaos", "ch"),
    ("faults", "f"),
    ("memory", "m"),
    ("suites", "s"),
];

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

#[test]
fn no_test_program_has_a_name_that_the_patterns_of_the_second_command_leave_out() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let metadata = cargo.args(["--manifest-path", tests]).output();
    let metadata = metadata.expect("cargo metadata").stdout;
    let metadata: Value = serde_json::from_slice(&metadata).expect("its JSON");
    let command = include_str!("../../../.ci/test");
    let is_played = |package: &&Value| {
        let mut words = command.split(|c: char| !c.is_alphanumeric() && c != '-');
        words.any(|word| package["name"] == word)
    };
    let packages = items(&metadata, "packages").filter(is_played);
    let targets = packages.flat_map(|package| items(package, "targets"));
    let programs = targets.filter(|target| items(target, "kind").any(|kind| kind == "test"));
    let programs: BTreeSet<&str> = programs
        .filter_map(|target| target["name"].as_str())
        .collect();
    for (name, initial) in BY_NAME {
        let programs = programs
            .iter()
            .filter(|program| program.starts_with(initial));
        let programs: Vec<_> = programs.collect();
        assert_eq!(programs, [&name], "those that begin with {initial:?}");
    }
}
