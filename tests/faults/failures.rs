//! `FAILURES.md`, the table of the failure modes, against the tests that there are.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;

use crate::row::Listed;

const TABLE: &str = include_str!("../FAILURES.md");

/// How a defect was found, as `FOUND.md` calls it, or that the row is from the list that was there before the code.
const FOUND_BY: [&str; 11] = [
    "the list",
    "writing a test",
    "chaos",
    "a review by reading",
    "an attack",
    "a live Redisson",
    "a user's trial",
    "an operator's trial",
    "bug reports of others",
    "load",
    "CI",
];

/// A row of the table: its number, the names of its tests, and how its defect was found.
#[derive(Debug)]
struct Failure<'a> {
    number: u16,
    tests: Vec<&'a str>,
    found_by: Vec<&'a str>,
}

fn failures(table: &str) -> Vec<Failure<'_>> {
    table.lines().filter_map(failure).collect()
}

fn failure(line: &str) -> Option<Failure<'_>> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [number, _what, _answer, tests, found_by] = cells[..] else {
        return None;
    };
    Some(Failure {
        number: number.parse().ok()?,
        // Every second piece is between backticks.
        tests: tests.split('`').skip(1).step_by(2).collect(),
        found_by: found_by.split(", ").collect(),
    })
}

/// Each number has one row, each row says how its defect was found and has a test that exists, and each test of this suite is named by the row
/// of its number.
pub(crate) fn complete(listed: &[Listed]) -> Result<(), Failed> {
    let wrong = mistakes(TABLE, listed);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.join("\n").into())
}

fn mistakes(table: &str, listed: &[Listed]) -> Vec<String> {
    let failures = failures(table);
    let mut wrong = Vec::new();
    let highest = failures.iter().map(|row| row.number).max().unwrap_or(0);
    for number in 1..=highest {
        let rows = failures.iter().filter(|row| row.number == number).count();
        if rows != 1 {
            wrong.push(format!("{number} has {rows} rows"));
        }
    }
    for Failure {
        number,
        tests,
        found_by,
    } in &failures
    {
        for unknown in found_by.iter().filter(|word| !FOUND_BY.contains(word)) {
            wrong.push(format!("row {number} was found by {unknown:?}"));
        }
        if tests.is_empty() {
            wrong.push(format!("row {number} names no test"));
        }
        for test in tests.iter().filter(|test| !exists(test, listed)) {
            wrong.push(format!("row {number} names {test}, which does not exist"));
        }
    }
    for test in listed {
        let rows = failures.iter().filter(|row| row.number == test.number());
        // On memory it is the same test.
        let name = test.name.replace("_in_memory", "");
        let is_named = |named: &&str| names(named, test.name) || names(named, &name);
        if !rows.flat_map(|row| &row.tests).any(is_named) {
            wrong.push(format!("no row {} names {}", test.number(), test.name));
        }
    }
    wrong
}

/// Whether a name in the table is this one. A `*` stands for any text.
fn names(named: &str, name: &str) -> bool {
    match named.split_once('*') {
        Some((start, end)) => name
            .strip_prefix(start)
            .is_some_and(|rest| rest.ends_with(end)),
        None => named == name,
    }
}

/// Is there this test: one of this suite, or `FILE: NAME`?
fn exists(test: &str, listed: &[Listed]) -> bool {
    let Some((file, name)) = test.split_once(": ") else {
        return listed.iter().any(|it| names(test, it.name));
    };
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [package.join("suites"), package.join("..")];
    let declared = format!("fn {name}(");
    let mut texts = places
        .iter()
        .filter_map(|place| fs::read_to_string(place.join(file)).ok());
    texts.any(|text| text.contains(&declared))
}
