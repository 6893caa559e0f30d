//! Files that two crates have, because neither can import them from the other.

use std::fs;
use std::path::Path;

#[test]
fn attribute_reads_durations_by_the_same_code_as_files_and_urls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    assert_eq!(
        read("distlock-macros/src/options/duration_text.rs"),
        read("distlock/src/config/duration.rs"),
        "write a change into both files"
    );
}
