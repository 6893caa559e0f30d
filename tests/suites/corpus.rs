//! What the fuzzers of `tests/gates/fuzz` have kept: each input of their corpus once more, through the same entry points.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use distlock::test_util::fuzz;
use distlock_test_backends::hostile_nodes::attempt_at_hostile_nodes;

/// The name of a fuzzer, and what it does with an input.
type Target = (&'static str, fn(&[u8]));

/// The entry points.
const TARGETS: [Target; 4] = [
    ("cluster", fuzz::cluster),
    ("redirect", attempt_at_hostile_nodes),
    ("reply", fuzz::reply),
    ("url", fuzz::url),
];

/// Fewer inputs show that they were not found.
const FEWEST_INPUTS: usize = 15;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("gates/fuzz")
}

fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The names of the entries of a folder, without their extensions.
fn names(folder: &Path) -> BTreeSet<String> {
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries(folder).into_iter().map(name).collect()
}

fn replay(target: &str) {
    let (_, run) = TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    let inputs = entries(&folder().join("corpus").join(target));
    assert!(inputs.len() >= FEWEST_INPUTS, "{} inputs", inputs.len());
    let fails = |input: &&PathBuf| {
        let bytes = fs::read(input).unwrap();
        catch_unwind(|| run(&bytes)).is_err()
    };
    let failed: Vec<_> = inputs.iter().filter(fails).collect();
    assert!(failed.is_empty(), "these inputs fail: {failed:?}");
}

#[test]
fn every_fuzzer_has_a_corpus_that_is_replayed() {
    let replayed: BTreeSet<String> = TARGETS.map(|(name, _)| name.to_owned()).into();
    assert_eq!(names(&folder().join("fuzz_targets")), replayed);
    assert_eq!(names(&folder().join("corpus")), replayed);
}

#[test]
fn urls_of_the_corpus_are_read_or_refused() {
    replay("url");
}

#[test]
fn answers_of_the_corpus_keep_the_map_of_a_cluster_sound() {
    replay("cluster");
}

#[test]
fn replies_of_the_corpus_are_read_or_refused() {
    replay("reply");
}

#[test]
fn redirects_of_the_corpus_end() {
    replay("redirect");
}
