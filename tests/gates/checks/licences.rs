//! What `cargo deny check bans licenses` would say by `deny.toml`, for machines without `cargo deny`.

use std::collections::BTreeMap;
use std::fs;

use crate::workspace::{self, dependencies};
use cargo_metadata::Metadata;
use cargo_metadata::semver::{Version, VersionReq};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that may be there beside another one of its package.
#[derive(Deserialize)]
struct Skip {
    /// `name:requirement`
    #[serde(rename = "crate")]
    package: String,
}

impl Skip {
    fn matches(&self, name: &str, version: &Version) -> bool {
        let (package, requirement) = self.package.split_once(':').unwrap();
        package == name && VersionReq::parse(requirement).unwrap().matches(version)
    }
}

fn rules(workspace: &Metadata) -> Rules {
    toml::from_str(&fs::read_to_string(workspace.workspace_root.join("deny.toml")).unwrap())
        .unwrap()
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let workspace = workspace::load();
    let allowed = rules(&workspace).licenses.allow;
    let packages = dependencies(&workspace);
    assert!(!packages.is_empty());
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| {
            let Some(licence) = &package.license else {
                return true;
            };
            let expression = Expression::parse_mode(licence, ParseMode::LAX).unwrap();
            !expression.evaluate(|needed| allowed.contains(&needed.to_string()))
        })
        .map(|package| {
            format!(
                "{} {}: {:?}",
                package.name, package.version, package.license
            )
        })
        .collect();
    assert!(refused.is_empty(), "no licence of deny.toml: {refused:#?}");
}

#[test]
fn a_second_version_of_a_dependency_is_listed() {
    let workspace = workspace::load();
    let skips = rules(&workspace).bans.skip;
    let mut versions = BTreeMap::<_, Vec<_>>::new();
    for package in dependencies(&workspace) {
        versions
            .entry(package.name.as_str())
            .or_default()
            .push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let stale: Vec<_> = skips
        .iter()
        .filter(|skip| {
            !versions
                .iter()
                .any(|(name, versions)| versions.iter().any(|version| skip.matches(name, version)))
        })
        .map(|skip| &skip.package)
        .collect();
    assert!(
        stale.is_empty(),
        "listed in deny.toml without a duplicate: {stale:?}"
    );
    versions.retain(|name, versions| {
        versions.retain(|version| !skips.iter().any(|skip| skip.matches(name, version)));
        versions.len() > 1
    });
    assert!(
        versions.is_empty(),
        "several versions, not listed in deny.toml: {versions:#?}"
    );
}
