//! The program `distlock` as people use it: on real servers, by its output and its exit status.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod doctor;
mod layouts;
mod look;
#[cfg(target_os = "linux")]
mod processes;
mod readme;
mod release;
mod run;
mod several;
mod terminal;
mod usage;

use std::process::Output;
use std::time::Duration;

use distlock_tests::{Process, RedisServer, environment};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

const PROGRAM: &str = env!("CARGO_BIN_EXE_distlock");

/// Starts the program for a server.
fn start(server: &RedisServer, args: &[&str]) -> Process {
    let url = server.url();
    let words = ["--url", &url].into_iter().chain(args.iter().copied());
    Process::start(PROGRAM, words)
}

/// Runs the program for a server to its end, without a terminal.
async fn output(server: &RedisServer, args: &[&str]) -> Output {
    let url = server.url();
    let words = ["--url", &url].into_iter().chain(args.iter().copied());
    plain_output(words).await
}

async fn plain_output<'a>(words: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = program(PROGRAM);
    command.args(words).kill_on_drop(true);
    command.stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(SOON, command.output()).await;
    output.expect("the program ends").unwrap()
}

/// As [`plain_output`] of `doctor` in JSON. It is asked again if the machine stood still for a moment, which is a finding of
/// `doctor` as well.
async fn doctor_output(words: &[&str]) -> Output {
    let mut tries = 0;
    loop {
        tries += 1;
        let output = plain_output(words.iter().copied()).await;
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        let is_late = |check: &Value| {
            let finding = (check["check"].as_str(), check["verdict"].as_str());
            matches!(
                finding,
                (Some("latency"), Some("bad")) | (Some("clock"), Some("warn"))
            )
        };
        let mut checks = report["checks"].as_array().into_iter().flatten();
        if tries == 5 || !checks.any(is_late) {
            return output;
        }
    }
}

/// A command that starts as in a plain shell.
fn program(name: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(name);
    environment::clean(command.as_std_mut());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The process with this id. None of ours was reaped yet.
fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

fn signal(process: &Process, signal: Signal) {
    kill_process(pid(process.pid()), signal).unwrap();
}
