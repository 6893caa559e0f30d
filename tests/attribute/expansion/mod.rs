//! Functions that the attribute accepts. They compile without warnings, including those of clippy's pedantic lints, and
//! each call returns the value of its body.

#![deny(warnings, clippy::pedantic)]
// These lints ask for documentation and `#[must_use]`, not for other code. `attributes` denies the first again, to show
// that documentation stays on its function.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate)]

pub mod options;
pub mod other_attributes;
pub mod signatures;
pub mod surroundings;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use distlock::{Client, with_client};

/// Runs a call on a new in-memory client, unless the attribute names another one.
async fn run<F: Future>(call: F) -> F::Output {
    with_client(Client::in_memory(), call).await
}

/// Runs a call that must succeed, and returns its value.
async fn ok<T, E: Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    run(call).await.expect("the call succeeds")
}

/// The files below `folder` that the file of their folder does not name.
fn files_without_module(folder: &Path) -> Vec<PathBuf> {
    let modules = std::fs::read_to_string(folder.join("mod.rs")).expect("each folder has a file");
    let mut missing = Vec::new();
    for file in std::fs::read_dir(folder).expect("the folder exists") {
        let path = file.expect("the file is readable").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("file names are UTF-8");
        if path.is_dir() {
            missing.extend(files_without_module(&path));
        }
        if name != "mod" && !modules.contains(&format!("\npub mod {name};\n")) {
            missing.push(path);
        }
    }
    missing
}

// A file without its `pub mod` line would not be compiled at all.
#[test]
fn every_file_is_a_module() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("expansion");
    assert_eq!(files_without_module(&folder), Vec::<PathBuf>::new());
}
