//! The rooms of the libraries: each room imports only rooms that stand below it, and the list of rooms is complete. Inside of
//! each folder no files name each other in a circle.
//!
//! The lists are those of CONTRIBUTING.md. A new room gets its place here, and that says what it may import.

mod arrows;
mod copies;
mod folders;
mod logs;
mod one_room;
mod programs;
mod scripts;
mod sizes;
mod source;
mod staircase;

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of a crate from the top to the bottom. Those in one line do not import each other.
type Staircase<'a> = &'a [&'a [&'a str]];

const DISTLOCK: Staircase<'_> = &[
    &["guide", "test_util", "testing"],
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
    &["clock", "config", "resource"],
    &["error"],
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
    &["error", "span"],
];

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
            "on_lost", "attach", "path", "mod", "settings", "multi", "quorum", "beside", "reentry",
            "observed", "lock_set", "handles", "handle",
        ],
    ),
    ("acquire/multi", &["mod", "rounds", "in_scopes", "group"]),
    (
        "guard",
        &[
            "extend",
            "release",
            "expirable_permit",
            "permit",
            "fenced",
            "detached",
            "from_guard",
            "stream",
            "run",
            "critical_section",
            "mod",
            "shares",
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
            "listener",
            "peek",
            "turn",
            "attach",
            "single",
            "attempt",
            "refusal",
            "request",
        ],
    ),
    (
        "wait/several",
        &[
            "rest", "parts", "collect", "mod", "waiter", "part", "position",
        ],
    ),
    (
        "wait/quorum",
        &[
            "play", "pause", "mod", "round", "hold", "regain", "parts", "guards",
        ],
    ),
    (
        "local",
        &[
            "snapshot",
            "slot",
            "share",
            "long_waits",
            "lives",
            "end",
            "registry",
            "used_kinds",
            "checked_heads",
            "entry",
            "shared_holds",
            "waits",
            "waker",
            "queue",
            "turns",
        ],
    ),
    ("local/turns", &["mod", "yield_list", "round_robin", "run"]),
    ("local/slot", &["state", "notes", "leave", "step"]),
    (
        "session/release",
        &[
            "releaser",
            "tries",
            "remembered",
            "in_flight",
            "mod",
            "several",
            "confirm",
            "detached",
            "send",
            "pending",
            "ending",
        ],
    ),
    (
        "hold",
        &[
            "view",
            "quorum_members",
            "hold_ref",
            "mod",
            "state",
            "nesting",
            "quorum_tally",
            "grant",
            "lease",
            "term",
            "sent_over",
            "timer",
        ],
    ),
    (
        "backend/redis/connection",
        &["mod", "link", "gauge", "connect", "addresses"],
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
            "other_masters",
            "together",
            "relogin",
            "pings",
            "outage",
            "stake",
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
            "server_check",
            "rejection",
            "handshake",
            "info",
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
        &[
            "mod",
            "destination",
            "looked_at",
            "endpoint",
            "resolver",
            "url",
            "address",
        ],
    ),
];
