//! The rows in which several processes use one key. This program starts itself as their child processes.

pub(crate) mod child;
mod clock;
pub(crate) mod fair;
pub(crate) mod hand_over;
mod kind;
pub(crate) mod share;

use std::time::Duration;

use distlock_tests::{Process, RedisServer};

/// Set in child processes to the URL of the server.
pub(crate) const CHILD: &str = "DISTLOCK_BENCH_CHILD";

/// For the answers of child processes.
const WITHIN: Duration = Duration::from_secs(60);

fn start_child(server: &RedisServer) -> Process {
    let program = std::env::current_exe().unwrap();
    let url = format!("{CHILD}={}", server.url());
    Process::start("env", [url.as_str(), program.to_str().unwrap()])
}
