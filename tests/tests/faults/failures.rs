//! `FAILURES.md`, the table of the failure modes, against the tests that there are.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use libtest_mimic::Failed;

use crate::row::Listed;

const TABLE: &str = include_str!("../../FAILURES.md");

const NUMBERS: RangeInclusive<u16> = 1..=92;

/// Rows of features that distlock does not have. A number leaves this list with the feature's test.
const NOT_SUPPORTED: &[u16] = &[7, 23, 54, 56, 57, 58, 59, 60, 61, 62, 64, 65];

/// A row of the table: its number, what the library does, and the names in its last column.
#[derive(Debug)]
struct Failure<'a> {
    number: u16,
    answer: &'a str,
    tests: Vec<&'a str>,
}

fn failures(table: &str) -> Vec<Failure<'_>> {
    table.lines().filter_map(failure).collect()
}

fn failure(line: &str) -> Option<Failure<'_>> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [number, _what, answer, tests] = cells[..] else {
        return None;
    };
    Some(Failure {
        number: number.parse().ok()?,
        answer,
        // Every second piece is between backticks.
        tests: tests.split('`').skip(1).step_by(2).collect(),
    })
}

/// Each number has one row, each row has a test that exists, and each test of this suite has a row that names one of its
/// number.
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
    for number in NUMBERS {
        let rows = failures.iter().filter(|row| row.number == number).count();
        if rows != 1 {
            wrong.push(format!("{number} has {rows} rows"));
        }
    }
    for Failure {
        number,
        answer,
        tests,
    } in &failures
    {
        let missing = NOT_SUPPORTED.contains(number);
        if missing != answer.starts_with("Not supported yet: ") {
            wrong.push(format!(
                "row {number} and the list of what is not supported differ"
            ));
        }
        if missing != tests.is_empty() {
            wrong.push(format!("row {number} names {} tests", tests.len()));
        }
        for test in tests.iter().filter(|test| !exists(test, listed)) {
            wrong.push(format!("row {number} names {test}, which does not exist"));
        }
    }
    for test in listed {
        let own = |row: &&Failure<'_>| row.number == test.number() && !row.tests.is_empty();
        if failures.iter().find(own).is_none() {
            wrong.push(format!("{} has no row", test.name));
        }
    }
    wrong
}

/// Is there this test: one of this suite, or `FILE: NAME`?
fn exists(test: &str, listed: &[Listed]) -> bool {
    let Some((file, name)) = test.split_once(": ") else {
        return listed.iter().any(|it| it.name == test);
    };
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [package.join("tests/suites"), package.join("..")];
    let declared = format!("fn {name}(");
    let mut texts = places
        .iter()
        .filter_map(|place| fs::read_to_string(place.join(file)).ok());
    texts.any(|text| text.contains(&declared))
}
