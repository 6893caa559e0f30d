//! The public API of the published crates, against its text in `tests/gates/checks/api`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::workspace::{self, published};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The crates whose types are in the public API. A new major version of one of them is a new major version of ours, so none gets in
/// unseen.
const FOREIGN: &[(&str, &[&str])] = &[
    // `pin_project_lite` stands in bounds that it writes itself, and nobody can name them. `tokio` has the instants of deadlines.
    (
        "distlock",
        &[
            "futures_core",
            "pin_project_lite",
            "serde_core",
            "tokio",
            "uuid",
        ],
    ),
    ("distlock_macros", &[]),
    (
        "distlock_tower",
        &[
            "axum",
            "axum_core",
            "bytes",
            "distlock",
            "http",
            "http_body",
            "pin_project_lite",
            "serde_core",
            "tower_layer",
            "tower_service",
        ],
    ),
];

/// Set to write the texts anew.
const UPDATE: &str = "UPDATE_API";

/// The version of Rust whose rustdoc wrote the texts: other versions have other formats, and derive other items.
const COMPILER: &str = "1.95";

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
             take the one that reads the format of Rust {COMPILER}",
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
    let rustdoc = Command::new("rustdoc").arg("--version").output().unwrap();
    let rustdoc = String::from_utf8(rustdoc.stdout).unwrap();
    assert!(
        rustdoc.starts_with(&format!("rustdoc {COMPILER}.")),
        "the texts are those of Rust {COMPILER}, and in use is {}: run `.ci/run api`, which takes that version",
        rustdoc.trim_end()
    );
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
            "distlock/metrics,distlock/serde,distlock/testing,distlock/tls-rustls,distlock-tower/console,distlock-tower/form,distlock-tower/metrics",
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

#[test]
fn all_texts_of_a_compiler_are_of_the_same_version() {
    let root = workspace::load().workspace_root;
    for (file, line) in [
        (".ci/run", format!("compiler={COMPILER}.")),
        (
            "tests/attribute/mistakes.rs",
            format!("#[rustversion::stable({COMPILER})]"),
        ),
        (
            "distlock-tower/tests/integration/compile_fail.rs",
            format!("#[rustversion::stable({COMPILER})]"),
        ),
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let is_there = text.lines().any(|one| one.starts_with(&line));
        assert!(is_there, "no line of {file} begins with {line}");
    }
}

/// The first segments of the paths in a text of an API that name a crate.
fn crates_in(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter))
        .filter_map(|path| path.split_once("::"))
        .map(|(first, _)| first)
        // `T::Output`, and the rest of `<T as Trait>::Output`.
        .filter(|first| first.starts_with(|letter: char| letter.is_ascii_lowercase()))
        // `str` is a type of the language.
        .filter(|first| !["alloc", "core", "std", "str"].contains(first))
        .collect()
}

#[test]
fn crates_whose_types_are_in_the_public_api_are_listed() {
    for (name, listed) in FOREIGN {
        let file = Path::new(HERE).join("api").join(name).with_extension("txt");
        let text = fs::read_to_string(file).unwrap();
        let mut found = crates_in(&text);
        assert!(found.remove(name), "{name}: no path of its own");
        assert_eq!(found, listed.iter().copied().collect(), "{name}");
    }
}
