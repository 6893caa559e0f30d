//! The public API of the published crates, against its text in `tests/gates/checks/api`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::workspace::{self, published};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Set to write the texts anew.
const UPDATE: &str = "UPDATE_API";

/// The public items of a crate, one in each line: with derived traits, without `Send` and its like, which the tests of
/// the crates assert, and without what holds for every type.
fn text(json: &Path) -> String {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build();
    api.map(|api| api.to_string()).unwrap_or_else(|error| {
        let read: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        panic!(
            "rustdoc wrote format {}, which this version of `public-api` does not read ({error}): \
             run the check with the toolchain that the texts are from, or take the newest `public-api`",
            read["format_version"]
        )
    })
}

/// The lines that only one of the texts has.
fn difference(old: &str, new: &str) -> String {
    let [before, after] = [old, new].map(|text| text.lines().collect::<BTreeSet<_>>());
    let mut lines = String::new();
    for line in &before - &after {
        writeln!(lines, "- {line}").unwrap();
    }
    for line in &after - &before {
        writeln!(lines, "+ {line}").unwrap();
    }
    lines
}

#[test]
fn the_public_api_is_the_one_that_was_reviewed() {
    let workspace = workspace::load();
    let mut crates = published(&workspace);
    // A program has no API.
    crates.retain(|package| !package.targets.iter().any(|target| target.is_bin()));
    let mut doc = Command::new(env!("CARGO"));
    doc.current_dir(&workspace.workspace_root)
        // The features that are public and not on by default. Any TLS has the same methods.
        .args([
            "doc",
            "--no-deps",
            "--features",
            "distlock/metrics,distlock/serde,distlock/testing,distlock/tls-rustls,distlock-tower/console,distlock-tower/metrics",
        ])
        // Rustdoc writes JSON only where unstable options are allowed. They are for rustdoc alone: as a variable of the
        // whole build, the permission would make cargo compile the dependencies anew.
        .env("RUSTDOC", Path::new(HERE).join("rustdoc"))
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json")
        .env_remove("CARGO_ENCODED_RUSTDOCFLAGS");
    for package in &crates {
        doc.args(["--package", package.name.as_str()]);
    }
    assert!(doc.status().unwrap().success(), "cargo doc failed");

    let update = env::var_os(UPDATE).is_some();
    let mut changes = String::new();
    for package in crates {
        let name = package.name.replace('-', "_");
        let json = workspace.target_directory.join("doc").join(&name);
        let new = text(json.with_extension("json").as_std_path());
        let file = Path::new(HERE).join("api").join(name).with_extension("txt");
        if update {
            fs::write(file, new).unwrap();
            continue;
        }
        let old = fs::read_to_string(&file).unwrap_or_default();
        if old != new {
            writeln!(changes, "{}:\n{}", file.display(), difference(&old, &new)).unwrap();
        }
    }
    assert!(
        changes.is_empty(),
        "the public API changed; after a look at each line, write the texts anew by `{UPDATE}=1 .ci/run api`\n{changes}"
    );
}
