//! The process of a server: its program, its command line, and why it does not serve.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::iter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::guardian::Guarded;

use super::login::Login;
use super::{Builder, RedisServer};

/// Names the server program to test against.
const PROGRAM_VARIABLE: &str = "DISTLOCK_TEST_SERVER";

/// Both outputs of the server go here.
pub(super) const LOG: &str = "server.log";

/// The settings of a Sentinel, which it also keeps what it learns in.
const SENTINEL_FILE: &str = "sentinel.conf";

/// How often a start chooses other ports, if one was taken between the choice and the start.
pub(super) const PORT_ATTEMPTS: usize = 10;

/// Why a started server does not serve.
pub(super) enum NotReady {
    PortTaken,
    Failed(String),
}

impl NotReady {
    pub(super) fn missing() -> Self {
        Self::Failed(format!(
            "cannot find {:?}: install it (`apt-get install redis-server`), or let \
             {PROGRAM_VARIABLE} name a server program",
            program()
        ))
    }
}

pub(super) fn program() -> OsString {
    env::var_os(PROGRAM_VARIABLE).unwrap_or_else(|| "redis-server".into())
}

/// The first number of the version of the program: 7 for Redis 7.0.15, 8 for Valkey 8.1.1. The highest number if it does not
/// tell.
fn major_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let told = Command::new(program()).arg("--version").output();
        let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        // `Redis server v=7.0.15 sha=..`
        let told = told.unwrap_or_default();
        let version = told.split_once("v=").map(|(_, version)| version);
        let major = version.and_then(|version| version.split('.').next()?.parse().ok());
        major.unwrap_or(u32::MAX)
    })
}

pub(super) fn launch(options: &Builder, port: u16, dir: &Path) -> Guarded {
    let log = dir.join(LOG);
    let open = OpenOptions::new().create(true).append(true).open(&log);
    let stdout = open.expect("the log of the server can be written");
    let args = match &options.sentinel {
        Some(lines) => sentinel_settings(options, lines, port, dir),
        None => settings(options, port, dir),
    };
    Guarded::spawn(program(), args, &log, Stdio::null(), stdout.into())
        .expect("a process for the server")
}

/// The command line: what every server here has, then what the test asked for.
fn settings(options: &Builder, port: u16, dir: &Path) -> Vec<OsString> {
    let port = port.to_string();
    let appendonly = if options.appendonly { "yes" } else { "no" };
    let ours: [(&str, &OsStr); 7] = [
        ("--port", port.as_ref()),
        ("--bind", "127.0.0.1".as_ref()),
        ("--dir", dir.as_ref()),
        ("--save", "".as_ref()),
        ("--appendonly", appendonly.as_ref()),
        // Not `everysec`: that may keep answered writes in memory while a sync runs, and a kill
        // would lose them. Without syncs each write is in the file before its answer.
        ("--appendfsync", "no".as_ref()),
        ("--daemonize", "no".as_ref()),
    ];
    let ours = ours
        .iter()
        .flat_map(|(name, value)| [name.into(), value.into()]);
    // For DEBUG SLEEP, refused by default from version 7. Earlier versions do not know the setting.
    let debug = (major_version() >= 7).then_some(["--enable-debug-command", "local"]);
    let debug = debug.into_iter().flatten().map(OsString::from);
    let users = options.login.iter().flat_map(Login::users);
    let users = users
        .flat_map(|user| iter::once("--user".into()).chain(user.into_iter().map(OsString::from)));
    let tls = options.tls.iter().flat_map(|tls| tls.settings(dir));
    ours.chain(debug)
        .chain(users)
        .chain(tls)
        .chain(options.args.iter().cloned())
        .collect()
}

/// The command line of a Sentinel. Its file is written once: after a restart it holds what the Sentinel had learned.
fn sentinel_settings(options: &Builder, lines: &[String], port: u16, dir: &Path) -> Vec<OsString> {
    let file = dir.join(SENTINEL_FILE);
    if !file.exists() {
        let tls = options.tls.iter().flat_map(|tls| tls.lines(dir));
        let dir = dir.display();
        let users = options.login.iter().flat_map(Login::users);
        let users = users.map(|user| format!("user {}", user.join(" ")));
        let head = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("dir \"{dir}\""),
        ];
        let own = head.into_iter().chain(users).chain(tls);
        let lines = own.chain(lines.iter().cloned());
        let text = lines.map(|line| line + "\n").collect::<String>();
        fs::write(&file, text).expect("the settings of the Sentinel can be written");
    }
    vec![file.into(), "--sentinel".into()]
}

/// Waits until all processes answer. Returns false if one of them found its port taken: then all start again on others.
///
/// # Panics
/// If one of them does not serve for another reason.
pub(super) async fn all_serve(processes: Vec<&mut RedisServer>) -> bool {
    for process in processes {
        match process.ready().await {
            Ok(()) => {}
            Err(NotReady::PortTaken) => return false,
            Err(NotReady::Failed(why)) => panic!("{why}"),
        }
    }
    true
}

/// Fails a start that found its ports taken each time.
pub(super) fn all_ports_taken() -> ! {
    panic!("{PORT_ATTEMPTS} times a port was taken before its server could bind it")
}
