//! The workspace as cargo sees it, and the packages that a user of the published crates compiles.

use std::collections::BTreeSet;
use std::process::Command;

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, Package};

/// Cargo's description of this workspace, with all features: without them it leaves optional dependencies out.
pub(crate) fn load() -> Metadata {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .exec()
        .unwrap_or_else(|error| panic!("cargo metadata: {error}"))
}

/// The members of the workspace that are published.
pub(crate) fn published(workspace: &Metadata) -> Vec<&Package> {
    workspace
        .workspace_packages()
        .into_iter()
        .filter(|package| {
            package
                .publish
                .as_ref()
                .is_none_or(|registries| !registries.is_empty())
        })
        .collect()
}

/// The dependencies of the published members with all features, on every target, without those of tests and examples.
pub(crate) fn dependencies(workspace: &Metadata) -> Vec<&Package> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(&workspace.workspace_root)
        .args(["tree", "--all-features", "--edges", "normal,build"])
        .args(["--target", "all", "--prefix", "none", "--format", "{p}"]);
    for package in published(workspace) {
        tree.args(["--package", package.name.as_str()]);
    }
    let output = tree
        .output()
        .unwrap_or_else(|error| panic!("cargo tree: {error}"));
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // A line is `name v1.2.3`, for some packages followed by a path and marks.
    let lines = String::from_utf8_lossy(&output.stdout);
    let compiled: BTreeSet<_> = lines
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let found: Vec<_> = workspace
        .packages
        .iter()
        .filter(|package| {
            compiled.contains(&(package.name.as_str(), &*package.version.to_string()))
        })
        .collect();
    assert_eq!(
        found.len(),
        compiled.len(),
        "cargo tree and cargo metadata name different packages"
    );
    found
        .into_iter()
        .filter(|package| !workspace.workspace_members.contains(&package.id))
        .collect()
}
