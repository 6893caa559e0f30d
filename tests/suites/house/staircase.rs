//! Imports between the modules of a crate: each goes downwards.

use std::fs;
use std::path::Path;

use super::source::code_of;
use super::{DISTLOCK, DISTLOCK_TOWER, Staircase, rust_files};

/// How far down a module stands.
fn rank(staircase: Staircase<'_>, module: &str) -> Option<usize> {
    staircase.iter().position(|step| step.contains(&module))
}

/// The modules of the crate that a file names: in imports and in paths, but not in comments and unit tests.
fn named_modules(source: &str) -> Vec<String> {
    let mut named = Vec::new();
    for line in code_of(source).lines() {
        let mut paths = line.split("crate::");
        let mut before = paths.next().unwrap_or_default();
        for path in paths {
            // `$crate` of a macro goes through the crate root, as users do.
            if !before.ends_with('$') {
                let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
                named.push(path.chars().take_while(|c| is_of_name(*c)).collect());
            }
            before = path;
        }
    }
    named
}

/// What is wrong with the imports of one file.
fn wrong_imports(staircase: Staircase<'_>, module: &str, source: &str) -> Vec<String> {
    let Some(own) = rank(staircase, module) else {
        return vec![format!("{module} has no place in the list of modules")];
    };
    let wrong = |named: &String| match rank(staircase, named) {
        _ if named == module => None,
        Some(other) if other > own => None,
        Some(_) => Some(format!(
            "{module} imports {named}, which does not stand below it"
        )),
        None => Some(format!(
            "{module} names `crate::{named}`, which is no module in the list"
        )),
    };
    named_modules(source).iter().filter_map(wrong).collect()
}

fn check(name: &str, staircase: Staircase<'_>) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
        .join("src");
    let (mut wrong, mut seen) = (Vec::new(), Vec::new());
    for file in rust_files(&src) {
        let path = file.strip_prefix(&src).unwrap();
        let first = path
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap();
        let module = first.strip_suffix(".rs").unwrap_or(first).to_owned();
        if module == "lib" {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        let of_file = wrong_imports(staircase, &module, &source);
        wrong.extend(
            of_file
                .iter()
                .map(|what| format!("{}: {what}", path.display())),
        );
        seen.push(module);
    }
    let listed = staircase.iter().copied().flatten();
    let gone = listed.filter(|module| !seen.iter().any(|seen| seen == *module));
    wrong.extend(gone.map(|module| format!("the list has {module}, and {name} has not")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_of_distlock_import_only_what_stands_below_them() {
    check("distlock", DISTLOCK);
}

#[test]
fn modules_of_distlock_tower_import_only_what_stands_below_them() {
    check("distlock-tower", DISTLOCK_TOWER);
}

#[test]
fn import_upwards_or_of_an_unknown_module_is_found() {
    let wrong = |module: &str, source: &str| wrong_imports(DISTLOCK, module, source).len();
    assert_eq!(
        wrong(
            "hold",
            "use crate::backend::Target;\nuse crate::error::Error;"
        ),
        0
    );
    assert_eq!(wrong("hold", "use crate::local::Registry;"), 1);
    assert_eq!(wrong("wait", "pub(crate) use crate::scope::Frame;"), 1);
    assert_eq!(wrong("wait", "    let tick = crate::client::now();"), 1);
    assert_eq!(
        wrong(
            "wait",
            "/// See [`client`](crate::client).\nuse crate::hold::Hold;"
        ),
        0
    );
    assert_eq!(
        wrong(
            "clock",
            "#[cfg(test)]\nuse self::boot::suspend;\nuse crate::config::MAX_WAIT;"
        ),
        1
    );
    assert_eq!(wrong("wait", "use crate::Client;"), 1);
    assert_eq!(wrong("util", "use crate::error::Error;"), 1);
    assert_eq!(
        wrong(
            "error",
            "#[cfg(test)]\nmod tests {\n    use crate::client::Client;\n}"
        ),
        0
    );
}
