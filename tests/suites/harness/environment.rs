//! Children start as in a plain shell, whatever started the tests.

use std::process::Stdio;

use distlock_tests::Process;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use super::SOON;

/// Tells a process that it is the one with the odd environment.
const INSIDE: &str = "DISTLOCK_TEST_ENVIRONMENT";

/// What a shell says that traps SIGHUP, and names the variables that programs under test would read.
const SCRIPT: &str = "trap 'echo got; exit 0' HUP; echo \"running $REDIS_URL$DISTLOCK_TOKEN$HTTP_PROXY\"; \
                      while :; do sleep 0.02; done";

#[tokio::test]
async fn children_of_tests_under_nohup_trap_signals_and_see_no_variables_of_the_caller() {
    if std::env::var_os(INSIDE).is_some() {
        let mut child = Process::start("sh", ["-c", SCRIPT]);
        assert_eq!(child.line(SOON).await, "running ");
        let pid = Pid::from_raw(i32::try_from(child.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        assert_eq!(child.line(SOON).await, "got");
        return;
    }
    let (_, here) = module_path!().split_once("::").unwrap();
    let name = "children_of_tests_under_nohup_trap_signals_and_see_no_variables_of_the_caller";
    let run = Command::new("sh")
        .args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("{here}::{name}"), "--exact", "--nocapture"])
        .env(INSIDE, "yes")
        .env("REDIS_URL", "redis://127.0.0.1:1")
        .env("DISTLOCK_TOKEN", "7")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = run.await.unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && out.contains("1 passed");
    assert!(passed, "{}\n{out}\n{err}", output.status);
}
