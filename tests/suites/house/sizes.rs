//! Code and tests are found by the names of their folders and files, so neither grows without a look at it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::rust_files;

/// Where the code, the tests, the benches, the examples and the command line are.
const ROOTS: [&str; 8] = [
    "tests",
    "examples",
    "distlock/cli",
    "distlock/src",
    "distlock/tests",
    "distlock-macros/src",
    "distlock-tower/src",
    "distlock-tower/tests",
];

/// A longer file has two subjects.
const MOST_LINES: usize = 450;

/// A folder with more files is cut by subject.
const MOST_FILES: usize = 16;

/// Cases of one test, a file each, which no reader looks through.
fn is_case(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "ui")
}

#[test]
fn files_and_folders_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = ROOTS
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)));
    let is_ours = |file: &PathBuf| {
        let target = file.components().any(|part| part.as_os_str() == "target");
        !is_case(file) && !target
    };
    let files: Vec<_> = files.filter(is_ours).collect();
    assert!(files.len() > 1000, "{} files were found", files.len());
    let mut wrong = Vec::new();
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    for file in &files {
        *folders.entry(file.parent().unwrap()).or_default() += 1;
        let lines = fs::read_to_string(file).unwrap().lines().count();
        if lines > MOST_LINES {
            wrong.push(format!("{} has {lines} lines", file.display()));
        }
    }
    let crowded = folders.iter().filter(|(_, files)| **files > MOST_FILES);
    wrong.extend(crowded.map(|(folder, files)| format!("{} has {files} files", folder.display())));
    assert!(
        wrong.is_empty(),
        "cut them by subject:\n{}",
        wrong.join("\n")
    );
}
