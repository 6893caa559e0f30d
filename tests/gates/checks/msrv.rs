//! The claimed minimum version of Rust, against those of the dependencies.

use crate::workspace::{self, dependencies, published};

#[test]
fn no_dependency_needs_a_newer_rust_than_the_published_crates_claim() {
    let workspace = workspace::load();
    let claimed = published(&workspace)
        .iter()
        .map(|package| package.rust_version.clone().unwrap())
        .min()
        .unwrap();
    let mut needed: Vec<_> = dependencies(&workspace)
        .into_iter()
        .filter_map(|package| {
            let version = package.rust_version.clone()?;
            Some((version, format!("{} {}", package.name, package.version)))
        })
        .collect();
    needed.sort();
    let (highest, package) = needed.last().unwrap();
    println!(
        "claimed: {claimed}; the highest of {} is {highest}, of {package}",
        needed.len()
    );
    needed.retain(|(version, _)| *version > claimed);
    assert!(
        needed.is_empty(),
        "Rust {claimed} is claimed, but needed are {needed:?}"
    );
}
