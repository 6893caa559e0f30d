//! What a command has started, after the command has died of a signal, and when it is told to end.

use distlock_tests::eventually;
use futures_util::future::join_all;
use rustix::process::test_kill_process;
use tokio::time::timeout;

use super::*;
#[cfg(target_os = "linux")]
use crate::terminal::Terminal;

/// A shell that dies of each signal, and its child, which says that it got one and goes on, until it gets USR2. If a test fails, the
/// child ends after a minute or two.
const SHELL_WITH_A_CHILD: &str = "echo program $PPID; echo leader $$; sh -c '\
    trap \"echo got\" TERM HUP USR1; trap \"echo over; exit\" USR2; echo running; \
    n=0; while [ $n -lt 300 ]; do sleep 0.2; n=$((n+1)); done' & wait";

const STAYS_HELD: &str = "stays held until what the command has started has ended";

struct Group {
    run: Process,
    program: Pid,
    leader: Pid,
}

/// Runs such a shell without a terminal, so that it has a process group.
async fn start_group(server: &RedisServer, args: &[&str]) -> Group {
    let url = server.url();
    let program = ["--wait", PROGRAM, "--url", &url, "run"];
    let command = ["--", "sh", "-c", SHELL_WITH_A_CHILD];
    let mut run = Process::start("setsid", [&program, args, &command].concat());
    let program = id(&run.expect("program", SOON).await);
    let leader = id(&run.expect("leader", SOON).await);
    run.expect("running", SOON).await;
    Group {
        run,
        program,
        leader,
    }
}

/// The process that a line names at its end.
fn id(line: &str) -> Pid {
    pid(line.split_whitespace().last().unwrap().parse().unwrap())
}

impl Group {
    async fn leader_has_ended(&self) {
        eventually(SOON, "the command has ended", || async {
            test_kill_process(self.leader).is_err()
        })
        .await;
    }

    async fn says(&self, words: &str) {
        eventually(SOON, words, || async {
            let said = self.run.stderr();
            said.contains(words).then_some(()).ok_or(said)
        })
        .await;
    }

    /// The child ends by USR2, which the program passes on, and then the program has this status.
    async fn ends_by_itself_with(&mut self, code: i32) {
        kill_process(self.program, Signal::USR2).unwrap();
        self.run.expect("over", SOON).await;
        let ended = self.run.wait(SOON).await;
        let said = self.run.stderr();
        assert_eq!(ended.code(), Some(code), "{said}");
        assert!(!said.contains("SIGKILL"), "{said}");
    }

    /// The child is told to end, which it does not do, and is killed.
    async fn is_told_and_killed(&mut self, why: &str) {
        self.run.expect("got", SOON).await;
        let ended = self.run.wait(SOON).await;
        let said = self.run.stderr();
        assert_eq!(ended.code(), Some(79), "{said}");
        for words in [
            &*format!("{why}: what the command has started gets SIGTERM"),
            "what the command has started still runs after 5s: it gets SIGKILL",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        // Nobody has this pipe any more.
        let rest = timeout(SOON, self.run.take_output().next_line()).await;
        assert_eq!(rest.unwrap().unwrap(), None);
    }
}

async fn is_busy(server: &RedisServer, key: &str) {
    let beside = output(server, &["run", key, "--wait", "0", "--", "true"]).await;
    assert_eq!(beside.status.code(), Some(75), "{}", stderr(&beside));
}

#[tokio::test]
async fn longest_hold_is_over_and_the_lock_stays_held_until_the_group_of_the_command_has_ended() {
    let server = RedisServer::start().await;
    let args = ["job", "--kill-after", "1h", "--max-hold", "6s"];
    let mut group = start_group(&server, &args).await;
    group.run.expect("got", SOON).await;
    group.leader_has_ended().await;
    is_busy(&server, "job").await;
    group.ends_by_itself_with(79).await;
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn command_dies_of_a_signal_and_the_lock_stays_held_until_its_group_has_ended_by_itself() {
    let server = RedisServer::start().await;
    let cases = [
        ("a", Signal::TERM, true),
        ("b", Signal::HUP, true),
        ("c", Signal::USR1, true),
        ("d", Signal::TERM, false),
        ("e", Signal::KILL, false),
    ];
    let runs = cases.map(async |(key, signal, is_passed_on)| {
        // Nobody was told by the program to end, so it kills nobody.
        let mut group = start_group(&server, &[key, "--kill-after", "1ms"]).await;
        if is_passed_on {
            kill_process(group.program, signal).unwrap();
            group.run.expect("got", SOON).await;
        } else {
            kill_process(group.leader, signal).unwrap();
        }
        group.leader_has_ended().await;
        let number = signal.as_raw();
        let says = format!("signal {number} has ended the command: the lock {key:?} {STAYS_HELD}");
        group.says(&says).await;
        is_busy(&server, key).await;
        group.ends_by_itself_with(128 + number).await;
    });
    join_all(runs).await;
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn lock_is_lost_while_the_rest_of_a_group_runs_and_the_rest_is_told_and_then_killed() {
    let server = RedisServer::start().await;
    let mut group = start_group(&server, &["job", "--kill-after", "5s"]).await;
    kill_process(group.leader, Signal::TERM).unwrap();
    group.says(STAYS_HELD).await;
    server.cli(&["DEL", "job"]).await;
    group.is_told_and_killed("the lock \"job\" is lost").await;
}

#[tokio::test]
async fn longest_hold_is_over_while_the_rest_of_a_group_runs_and_the_rest_is_told_and_then_killed()
{
    let server = RedisServer::start().await;
    let args = ["job", "--kill-after", "5s", "--max-hold", "10s"];
    let mut group = start_group(&server, &args).await;
    kill_process(group.leader, Signal::TERM).unwrap();
    group.says(STAYS_HELD).await;
    group
        .is_told_and_killed("the time of --max-hold is over")
        .await;
    assert!(server.keys().await.is_empty());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn rest_of_a_group_that_may_not_be_signalled_keeps_the_lock_and_is_left_after_a_loss() {
    let Some([starter, user]) = super::ends::that_may_not_signal().await else {
        return;
    };
    let server = RedisServer::start().await;
    let url = server.url();
    let program = [PROGRAM, "--url", &url, "run", "job", "--kill-after", "1s"];
    // It ends by itself if nobody ends it.
    let user = user.join(" ");
    let script = format!("echo leader $$; {user} sh -c 'echo running $$; exec sleep 60' & wait");
    let command = ["--", "sh", "-c", &script];
    let words = [&["--wait"], starter, &program, &command].concat();
    let mut run = Process::start("setsid", words);
    let leader = id(&run.expect("leader", SOON).await);
    let rest = id(&run.expect("running", SOON).await);
    kill_process(leader, Signal::TERM).unwrap();
    eventually(SOON, "the lock stays held", || async {
        let said = run.stderr();
        said.contains(STAYS_HELD).then_some(()).ok_or(said)
    })
    .await;
    is_busy(&server, "job").await;
    server.cli(&["DEL", "job"]).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{}", run.stderr());
    let told = "what the command has started still runs after 1s: it may not be signalled";
    assert!(run.stderr().contains(told), "{}", run.stderr());
    // If this test may not do that either, it ends by itself.
    let _killed = kill_process(rest, Signal::KILL);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn lock_is_lost_at_a_terminal_and_what_the_command_has_started_is_told_and_then_killed() {
    let server = RedisServer::start().await;
    let command = ["--", "sh", "-c", SHELL_WITH_A_CHILD];
    let args = [&["run", "job", "--kill-after", "5s"], &command[..]].concat();
    let mut run = Terminal::start(&server, &args);
    run.shows("running").await;
    server.cli(&["DEL", "job"]).await;
    run.shows("got").await;
    run.shows("what the command has started still runs after 5s: it gets SIGKILL")
        .await;
    assert_eq!(run.ended().await.code(), Some(79), "{}", run.text());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn command_dies_at_a_terminal_and_the_lock_stays_held_until_what_it_has_started_has_ended() {
    let server = RedisServer::start().await;
    let command = ["--", "sh", "-c", SHELL_WITH_A_CHILD];
    let args = [&["run", "job", "--kill-after", "1ms"], &command[..]].concat();
    let mut run = Terminal::start(&server, &args);
    run.shows("running").await;
    let text = run.text();
    let leader = text.lines().find(|line| line.starts_with("leader"));
    kill_process(id(leader.unwrap()), Signal::TERM).unwrap();
    run.shows(STAYS_HELD).await;
    is_busy(&server, "job").await;
    kill_process(pid(run.program.id()), Signal::USR2).unwrap();
    run.shows("over").await;
    assert_eq!(run.ended().await.code(), Some(128 + 15), "{}", run.text());
    assert!(server.keys().await.is_empty());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn second_interrupt_ends_what_the_command_has_started_and_what_ignores_the_first_one() {
    let server = RedisServer::start().await;
    // A shell without job control has what it starts in the background ignore it.
    let command = ["--", "sh", "-c", SHELL_WITH_A_CHILD];
    let mut run = Terminal::start(&server, &[&["run", "job"], &command[..]].concat());
    run.shows("running").await;
    run.type_in("\x03");
    run.shows(STAYS_HELD).await;
    assert!(!run.text().contains("got"), "{}", run.text());
    run.type_in("\x03");
    run.shows("got").await;
    kill_process(pid(run.program.id()), Signal::USR2).unwrap();
    run.shows("over").await;
    assert_eq!(run.ended().await.code(), Some(128 + 2), "{}", run.text());
}

/// A shell that starts a helper and then becomes `distlock`, as it starts `tee` in `distlock run job -- ./build > >(tee log)`. If a test
/// fails, the helper ends after a minute or two.
#[cfg(target_os = "linux")]
async fn with_a_helper(server: &RedisServer, args: &str) -> (Terminal, Pid) {
    let url = server.url();
    let script = format!("{LOOP_WITH_TRAPS} & exec '{PROGRAM}' --url {url} run {args}");
    let run = Terminal::start_command(&[], &["sh", "-c", &script]);
    run.shows("helper").await;
    let text = run.text();
    let helper = id(text.lines().find(|line| line.contains("helper")).unwrap());
    run.shows("running").await;
    (run, helper)
}

/// The terminal sends HUP when `distlock` has ended.
#[cfg(target_os = "linux")]
const LOOP_WITH_TRAPS: &str = "sh -c 'trap \"echo got\" TERM; trap \"\" HUP; echo helper $$; \
                               n=0; while [ $n -lt 300 ]; do sleep 0.2; n=$((n+1)); done'";

/// Ends the helper, which goes on and has heard nothing.
#[cfg(target_os = "linux")]
fn goes_on_untold(run: &Terminal, helper: Pid) {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", helper.as_raw_nonzero()));
    let _killed = kill_process(helper, Signal::KILL);
    let stat = stat.unwrap();
    assert!(!stat.contains(") Z "), "{stat}");
    assert!(!run.text().contains("got"), "{}", run.text());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn command_dies_at_a_terminal_and_what_ran_there_before_does_not_keep_the_lock() {
    let server = RedisServer::start().await;
    let command = "sh -c 'echo running; read line; kill -KILL $$'";
    let (mut run, helper) = with_a_helper(&server, &format!("job -- {command}")).await;
    run.type_in("\n");
    assert_eq!(run.ended().await.code(), Some(128 + 9), "{}", run.text());
    assert!(!run.text().contains(STAYS_HELD), "{}", run.text());
    assert!(server.keys().await.is_empty());
    goes_on_untold(&run, helper);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn lock_is_lost_at_a_terminal_and_what_ran_there_before_is_neither_told_nor_killed() {
    let server = RedisServer::start().await;
    let command = "sh -c 'trap \"\" TERM; echo running; n=0; while [ $n -lt 300 ]; do sleep 0.2; n=$((n+1)); done'";
    let args = format!("job --kill-after 1s -- {command}");
    let (mut run, helper) = with_a_helper(&server, &args).await;
    server.cli(&["DEL", "job"]).await;
    run.shows("gets SIGKILL").await;
    assert_eq!(run.ended().await.code(), Some(79), "{}", run.text());
    goes_on_untold(&run, helper);
}
