//! Children start as in a plain shell, however the tests were started.
//!
//! A child inherits which signals are ignored, and the variables. Under `nohup`, or in the background of a shell, a script that
//! traps a signal would trap nothing.

use std::process::Command;
use std::sync::Once;
use std::{env, fs, thread};

use rustix::process::Signal;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// The signals that the tests send to children, or that end them.
const SENT: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// Variables that programs under test read. Those of the tests alone begin with `DISTLOCK_TEST_`.
const READ: [&str; 9] = [
    "REDIS_URL",
    "RUST_LOG",
    "NO_COLOR",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Makes what the command starts independent of what started this process.
pub fn clean(command: &mut Command) -> &mut Command {
    static SIGNALS: Once = Once::new();
    SIGNALS.call_once(stop_ignoring);
    for name in READ {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("DISTLOCK_") && !text.starts_with("DISTLOCK_TEST_") {
            command.env_remove(name);
        }
    }
    // If the user may not look into one of the folders, the system says of a command that no folder has that it may not be run.
    let path = env::var_os("PATH").unwrap_or_default();
    let readable = env::split_paths(&path).filter(|folder| folder.read_dir().is_ok());
    if let Ok(path) = env::join_paths(readable) {
        command.env("PATH", path);
    }
    command
}

/// Handles the signals that this process ignores. A handler that does nothing is the same for this process, and a child begins
/// with the default again, which it would not do for an ignored signal.
fn stop_ignoring() {
    // Only Linux tells.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = ignored(&status);
    let ignored = SENT.into_iter().filter(|signal| mask & bit(*signal) != 0);
    let ignored: Vec<Signal> = ignored.collect();
    if ignored.is_empty() {
        return;
    }
    // Apart: the caller may be inside of a runtime or outside of any. A handler stays when its runtime has ended.
    let install = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.expect("a runtime");
        let _inside = runtime.enter();
        for number in ignored {
            drop(signal(SignalKind::from_raw(number.as_raw())).expect("a handler"));
        }
    });
    install.join().expect("handlers of the ignored signals");
}

/// The signals that a process ignores, by the kernel's description of it.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}
