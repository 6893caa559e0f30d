//! The rooms of the libraries: each room imports only rooms that stand below it, and the list of rooms is complete. Inside of
//! each folder no files name each other in a circle.
//!
//! The lists are those of CONTRIBUTING.md. A new room gets its place here, and that says what it may import.

mod arrows;
mod logs;
mod programs;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use self::arrows::Crate;

/// The modules of a crate from the top to the bottom. Those in one line do not import each other.
type Staircase<'a> = &'a [&'a [&'a str]];

const DISTLOCK: Staircase<'_> = &[
    &["guide", "interleavings", "test_util", "testing"],
    &["__private"],
    &["client"],
    &["primitives"],
    &["acquire"],
    &["guard"],
    &["scope", "wait"],
    &["local"],
    &["session"],
    &["hold"],
    &["backend"],
    &["telemetry"],
    &["clock", "resource"],
    &["config"],
    &["error"],
    &["foreign"],
    &["mutex", "task"],
    &["sync"],
];

const DISTLOCK_TOWER: Staircase<'_> = &[
    &["client", "console", "layer", "non_http"],
    &["service"],
    &["future"],
    &["enter"],
    &["settings"],
    &["held", "key", "lock_setters"],
    &["respond", "request_body"],
    &["error"],
];

/// How far down a module stands.
fn rank(staircase: Staircase<'_>, module: &str) -> Option<usize> {
    staircase.iter().position(|step| step.contains(&module))
}

/// The modules of the crate that a file names: in imports and in paths, but not in comments and unit tests.
fn named_modules(source: &str) -> Vec<String> {
    let code = source.lines().map(str::trim_start);
    let code = code.take_while(|line| !line.starts_with("#[cfg(test)]"));
    let mut named = Vec::new();
    for line in code.filter(|line| !line.starts_with("//")) {
        let line = line.split(" //").next().unwrap_or_default();
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

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
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

/// Files that list what their neighbours are about: a sum type, and the store with one field for each of them.
const SUM_TYPES: &[&str] = &["backend/memory/store"];

/// Folders whose own file declares what all others are about: a session, a cluster, a key of a request, and so on. In all other
/// folders `mod.rs` counts as any file.
const PARENTS: &[&str] = &[
    "backend/redis/servers/cluster",
    "session",
    // distlock-tower
    "key",
    "layer",
    "non_http",
    "request_body",
    "respond",
    // The command line.
    "doctor",
];

/// The files and folders on the way of an acquisition and of a release, and those that make connections, folder by folder: each
/// names only those that stand behind it. `mod` is the folder's own file.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "acquire",
        &[
            "on_lost", "attach", "mod", "terms", "multi", "quorum", "reentry", "observed",
            "lock_set", "handle",
        ],
    ),
    ("acquire/multi", &["mod", "in_scopes", "group"]),
    (
        "guard",
        &[
            "extend",
            "fenced",
            "detached",
            "stream",
            "on_lost",
            "run",
            "critical_section",
            "mod",
            "token",
        ],
    ),
    ("scope", &["mod", "section", "current", "frames"]),
    (
        "wait",
        &[
            "yielding",
            "unanswered",
            "quorum",
            "one_server",
            "mod",
            "until_free",
            "several",
            "waiter",
            "look",
            "turn",
            "attach",
            "single",
            "attempt",
            "request",
        ],
    ),
    (
        "wait/several",
        &["rest", "parts", "mod", "waiter", "part", "position"],
    ),
    ("wait/quorum", &["play", "pause", "mod", "round", "regain"]),
    (
        "local",
        &[
            "snapshot",
            "slot_state",
            "slot",
            "share",
            "long_waits",
            "lives",
            "end",
            "registry",
            "shared_holds",
            "yield_list",
            "waits",
            "signal",
            "round_robin",
            "queue",
            "run",
        ],
    ),
    (
        "session/release",
        &[
            "releaser",
            "tries",
            "remembered",
            "in_flight",
            "mod",
            "confirm",
            "pending",
            "ending",
        ],
    ),
    (
        "hold",
        &[
            "view", "hold_ref", "mod", "state", "nesting", "grant", "terms", "lease", "term",
            "flag",
        ],
    ),
    (
        "backend/redis/connection",
        &["mod", "link", "connect", "addresses"],
    ),
    (
        "backend/redis/connection/link",
        &[
            "run",
            "connecting",
            "mod",
            "opening",
            "config",
            "name_watch",
            "together",
            "relogin",
            "pings",
            "outage",
            "stake",
            "known_run",
            "epochs",
            "phase",
            "unanswered",
        ],
    ),
    (
        "backend/redis/connection/connect",
        &[
            "mod",
            "pause",
            "probe",
            "first_check",
            "handshake",
            "connector",
            "transport",
            "tls",
            "stream",
            "driven",
            "step",
        ],
    ),
    (
        "backend/redis/connection/addresses",
        &["mod", "place", "endpoint", "resolver", "url", "address"],
    ),
];

fn folder_of(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(name).join("src")
}

#[test]
fn files_of_a_folder_do_not_name_each_other_in_a_circle() {
    let crates = [
        "distlock",
        "distlock-tower",
        "distlock-macros",
        "distlock/cli",
    ];
    let circles: Vec<_> = crates
        .iter()
        .flat_map(|name| {
            let circles = Crate::read(&folder_of(name)).circles(SUM_TYPES, PARENTS);
            circles
                .into_iter()
                .map(move |circle| format!("{name}, {circle}"))
        })
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn files_on_the_way_of_an_acquisition_and_a_release_name_only_those_behind_them() {
    let distlock = Crate::read(&folder_of("distlock"));
    let orders = ORDERS.iter();
    let wrong: Vec<_> = orders
        .flat_map(|(folder, order)| distlock.out_of_order(folder, order))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn arrow_back_and_a_file_that_is_in_no_list_are_found() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod one;\nmod two;\nuse self::one::One;"),
        (
            "room/one.rs",
            "use super::two::Two;\npub(crate) struct One;",
        ),
        ("room/two.rs", "pub(crate) struct Two;"),
    ];
    let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let room = Crate::of(BTreeMap::from(files));
    assert!(room.out_of_order("room", &["mod", "one", "two"]).is_empty());
    let back = "in room: one -> two (room/one.rs:1)";
    assert_eq!(room.out_of_order("room", &["mod", "two", "one"]), [back]);
    assert_eq!(room.out_of_order("room", &["mod", "one"]), [back]);
}

#[test]
fn folders_own_file_is_on_a_circle_unless_it_is_listed() {
    let files = [
        ("lib.rs", "mod room;"),
        (
            "room/mod.rs",
            "mod one;\nuse self::one::One;\npub(crate) struct Room;",
        ),
        ("room/one.rs", "use super::Room;\npub(crate) struct One;"),
    ];
    let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let room = Crate::of(BTreeMap::from(files));
    assert_eq!(room.circles(&[], &[]).len(), 1);
    assert!(room.circles(&[], &["room"]).is_empty());
}

#[test]
fn circle_of_files_is_found_by_whatever_way_they_name_each_other() {
    let circles = |one: &str, two: &str| {
        let files = [
            ("lib.rs", "mod room;"),
            (
                "room/mod.rs",
                "mod one;\nmod two;\nmod three;\npub(crate) use self::two::Two;",
            ),
            ("room/one.rs", one),
            ("room/two.rs", two),
            ("room/three.rs", "use super::one::One;"),
        ];
        let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let files = Crate::of(BTreeMap::from(files));
        files.circles(&[], &[]).join("\n")
    };
    let names_one = "use super::one::One;\npub(crate) struct Two;";
    assert_eq!(circles("", names_one), "");
    assert_eq!(
        circles("use super::two::Two;", names_one),
        "in room: one -> two (room/one.rs:1), two -> one (room/two.rs:1)"
    );
    for back in [
        "use super::Two;",
        "use super::{Two as Other};",
        "use crate::room::{Two, three::Three};",
        "fn f() {\n    super::two::run();\n}",
        "pub(crate) use super::two::Two;\nfn f(two: Two) {}",
    ] {
        assert!(!circles(back, names_one).is_empty(), "{back}");
    }
    for none in [
        "// use super::Two;",
        "const TEXT: &str = \"super::two::Two\";",
        "#[cfg(test)]\nmod tests {\n    use super::super::two::Two;\n}",
    ] {
        assert_eq!(circles(none, names_one), "", "{none}");
    }
}

/// The files of distlock that name this crate outside of comments and unit tests.
fn naming(crate_name: &str) -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../distlock/src");
    let path_of = format!("{crate_name}::");
    let names_it = |file: &PathBuf| {
        let source = fs::read_to_string(file).unwrap();
        let code = source.lines().map(str::trim_start);
        let code = code.take_while(|line| !line.starts_with("#[cfg(test)]"));
        let mut paths = code
            .filter(|line| !line.starts_with("//"))
            .flat_map(|line| line.match_indices(&path_of).map(move |(at, _)| (line, at)));
        // Not `self::metrics::`, which is a module of the crate.
        paths.any(|(line, at)| {
            line[..at].ends_with(|c: char| !c.is_alphanumeric() && c != ':') || at == 0
        })
    };
    let mut files: Vec<_> = rust_files(&src).into_iter().filter(names_it).collect();
    files.sort();
    let relative = files.iter().map(|file| file.strip_prefix(&src).unwrap());
    relative.map(|file| file.display().to_string()).collect()
}

#[test]
fn mutexes_of_distlock_are_those_that_count_in_tests() {
    assert_eq!(naming("parking_lot"), ["sync/mutex.rs"]);
}

#[test]
fn what_the_interleavings_explore_comes_through_the_room_sync() {
    let explored = [
        "backend/memory/",
        "clock/",
        "foreign/",
        "guard/",
        "hold/",
        "local/",
        "mutex/",
        "scope/frames.rs",
        "scope/mod.rs",
        "scope/section.rs",
        "session/",
        "task/",
        "wait/",
    ];
    let mut beside: Vec<String> = Vec::new();
    for name in [
        "tokio",
        "fastrand",
        "std::sync::atomic",
        "std::thread_local",
    ] {
        let files = naming(name).into_iter();
        let files = files.filter(|file| !file.ends_with("/tests.rs"));
        let explored = files.filter(|file| explored.iter().any(|part| file.starts_with(part)));
        beside.extend(explored.map(|file| format!("{file} names {name}")));
    }
    // The budget of tokio's tasks, which decides nothing here.
    let known = ["backend/memory/mod.rs names tokio"];
    assert_eq!(beside, known, "use `crate::sync`");
}

#[test]
fn log_and_metrics_are_told_by_telemetry_alone() {
    // By `foreign::tell` and `foreign::count`, which find a call under a mutex. The acquisition enters its span when it is
    // polled.
    let telemetry = ["telemetry/acquisition.rs", "telemetry/events.rs"];
    assert_eq!(
        naming("tracing"),
        [&["acquire/observed.rs"], &telemetry[..]].concat()
    );
    let with_metrics = ["telemetry/meter.rs", "telemetry/metrics.rs"];
    assert_eq!(naming("metrics"), with_metrics);
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
