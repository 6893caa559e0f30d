//! `FOUND.md`, the record of the defects, and `.ci/test`, where it leaves something out, name tests that there are.

use std::fs;
use std::path::Path;
use std::process::Command;

const RECORD: &str = include_str!("../FOUND.md");
const SECOND_COMMAND: &str = include_str!("../../.ci/test");

/// The folders with tests. A target directory is none of them.
const FOLDERS: [&str; 5] = [
    "distlock",
    "distlock-macros",
    "distlock-tower",
    "examples",
    "tests",
];

/// The names between backticks in the last cell of a row of four.
fn held_by(line: &str) -> Vec<&str> {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
    let [_what, _since, _found_by, held_by] = cells[..] else {
        return Vec::new();
    };
    held_by.split('`').skip(1).step_by(2).collect()
}

/// A commit, which stands where no test holds the mend.
fn is_commit(name: &str) -> bool {
    name.len() == 7 && name.chars().all(|letter| letter.is_ascii_hexdigit())
}

/// The texts of all source files in a folder, and the paths of all its files.
fn read(folder: &Path, texts: &mut String, paths: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                read(&path, texts, paths);
            }
            continue;
        }
        paths.push_str(&path.display().to_string().replace('\\', "/"));
        paths.push('\n');
        if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// The texts of all sources of this repository, and the paths of all files.
fn all_files() -> (String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut texts, mut paths) = (String::new(), String::new());
    for folder in FOLDERS {
        read(&root.join(folder), &mut texts, &mut paths);
    }
    (texts, paths)
}

#[test]
fn every_test_that_holds_a_mend_exists() {
    let (texts, paths) = all_files();
    let names: Vec<&str> = RECORD.lines().flat_map(held_by).collect();
    assert!(names.len() > 100, "the record has {} names", names.len());
    let exists = |name: &&str| match name.rsplit_once('/') {
        // A file of compile errors, or one with tests that a macro makes.
        Some(_) => paths.contains(*name),
        None => texts.contains(&format!("fn {name}(")),
    };
    let missing: Vec<&str> = names
        .into_iter()
        .filter(|name| !is_commit(name))
        .filter(|name| !exists(name))
        .collect();
    assert!(missing.is_empty(), "FOUND.md names no tests: {missing:#?}");
}

/// A word that leaves out no test would say that something is played elsewhere. Words with `::` are parts of paths in this program.
#[test]
fn each_word_that_leaves_a_test_out_of_the_second_command_is_in_a_name() {
    let (texts, _) = all_files();
    let program = std::env::current_exe().unwrap();
    let listed = Command::new(program).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let list = SECOND_COMMAND.split("left_to_suites=(").nth(1).unwrap();
    let words: Vec<&str> = list.split(')').next().unwrap().split_whitespace().collect();
    assert!(words.len() > 40, "{words:?}");
    for word in words {
        let is_a_name = match word.contains("::") {
            true => listed.contains(word),
            // The rows of a macro make their names out of these.
            false => texts.contains(&format!("fn {word}")) || texts.contains(&format!(" {word}")),
        };
        assert!(is_a_name, "no test has `{word}` in its name");
    }
}
