//! The program at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use distlock_tests::{Flow, Proxy, Select, Way, eventually};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::*;

/// The program in a session with a terminal for itself, ended by `Drop`.
pub(super) struct Terminal {
    pub(super) program: Child,
    master: File,
    /// What was written to it so far.
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(super) fn start(server: &RedisServer, args: &[&str]) -> Self {
        Self::start_with(&server.url(), &[], args)
    }

    /// Starts it for the server at this URL, with these variables.
    fn start_with(url: &str, variables: &[(&str, &str)], args: &[&str]) -> Self {
        Self::start_command(variables, &[&[PROGRAM, "--url", url], args].concat())
    }

    /// Starts these words, with these variables.
    pub(super) fn start_command(variables: &[(&str, &str)], words: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let size = Winsize {
            ws_row: 20,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let slave = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let copy = || Stdio::from(slave.try_clone().unwrap());
        let program = environment::clean(&mut Command::new("setsid"))
            .envs([("TERM", "xterm")])
            .envs(variables.iter().copied())
            .arg("--ctty")
            .args(words)
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn()
            .unwrap();
        let master = File::from(master);
        let (screen, mut reader) = (
            Arc::<Mutex<Vec<u8>>>::default(),
            master.try_clone().unwrap(),
        );
        let shared = Arc::clone(&screen);
        // It ends with the last process at the terminal.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                shared.lock().unwrap().extend(&bytes[..length]);
            }
        });
        Self {
            program,
            master,
            screen,
        }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// What was drawn last.
    fn picture(&self) -> String {
        let text = self.text();
        text.rsplit("\x1b[H").next().unwrap().to_owned()
    }

    pub(super) fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    pub(super) async fn shows(&self, what: &str) {
        let look = || async {
            self.text()
                .contains(what)
                .then_some(())
                .ok_or_else(|| self.text())
        };
        eventually(SOON, format!("the terminal shows {what:?}"), look).await;
    }

    pub(super) async fn ended(&mut self) -> ExitStatus {
        for _ in 0..1_500 {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it still runs: {}", self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.program.kill();
        let _status = self.program.wait();
    }
}

#[tokio::test]
async fn watch_draws_locks_until_q_and_restores_the_terminal() {
    let server = RedisServer::start().await;
    let mut watch = Terminal::start(&server, &["watch", "job:*", "--interval", "100ms"]);
    watch.shows("0 locks").await;
    let mut run = start(
        &server,
        &["run", "job:1", "--", "sh", "-c", "echo running; read line"],
    );
    run.expect("running", SOON).await;
    eventually(SOON, "the lock is drawn", || async {
        let picture = watch.picture();
        (picture.contains("1 locks") && picture.contains("job:1  lock"))
            .then_some(())
            .ok_or(picture)
    })
    .await;
    assert!(
        !tcgetattr(&watch.master)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    );
    run.send("end");
    eventually(SOON, "the lock is gone", || async {
        let picture = watch.picture();
        (picture.contains("0 locks") && !picture.contains("job:1"))
            .then_some(())
            .ok_or(picture)
    })
    .await;
    let modes = watch.master.try_clone().unwrap();
    watch.type_in("q");
    assert_eq!(watch.ended().await.code(), Some(0));
    watch.shows("\x1b[?1049l").await;
    assert!(
        tcgetattr(&modes)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON | LocalModes::ECHO)
    );
}

#[tokio::test]
async fn watch_goes_on_while_the_server_is_away_and_ends_by_an_interrupt() {
    let mut server = RedisServer::start().await;
    let mut watch = Terminal::start(&server, &["watch", "--interval", "100ms"]);
    watch.shows("0 locks").await;
    server.kill();
    watch.shows("unavailable").await;
    server.restart().await;
    eventually(SOON, "it is back", || async {
        watch.picture().contains("0 locks")
    })
    .await;
    watch.type_in("\x03");
    assert_eq!(watch.ended().await.code(), Some(0));
}

#[tokio::test]
async fn watch_ends_by_q_and_by_an_interrupt_in_the_middle_of_a_long_look_and_restores_the_terminal()
 {
    let server = RedisServer::start().await;
    server.cli(&["DEBUG", "POPULATE", "300000", "text"]).await;
    let proxy = Proxy::start(server.addr()).await;
    let delay = Duration::from_millis(20);
    let slow = proxy.flow(Select::ALL, Way::Down, Flow::Delay(delay));
    let watch = ["watch", "--all", "--max-keys", "1000000"];
    for typed in ["q", "\x03"] {
        let mut watch = Terminal::start_with(&proxy.url(), &[], &watch);
        watch.shows("0 locks so far").await;
        let modes = watch.master.try_clone().unwrap();
        watch.type_in(typed);
        assert_eq!(watch.ended().await.code(), Some(0));
        watch.shows("\x1b[?1049l").await;
        let whole = "0 locks\x1b[K";
        assert!(!watch.text().contains(whole), "the look came to its end");
        let modes = tcgetattr(&modes).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    }
    assert!(slow.hits() > 0);
}

#[tokio::test]
async fn watch_ends_by_q_at_once_after_another_key() {
    let server = RedisServer::start().await;
    for typed in ["xq", "\n\x1b[AQ"] {
        let mut watch = Terminal::start(&server, &["watch", "--interval", "1h"]);
        watch.shows("0 locks\x1b[K").await;
        watch.type_in(typed);
        assert_eq!(watch.ended().await.code(), Some(0), "{typed:?}");
    }
}

#[tokio::test]
async fn watch_that_is_stopped_leaves_the_screen_to_the_shell_and_draws_again_when_it_goes_on() {
    let server = RedisServer::start().await;
    let script = format!(
        "'{PROGRAM}' --url {} watch --interval 100ms; echo the shell; read line; fg; echo over",
        server.url()
    );
    let mut shell = Terminal::start_command(&[], &["sh", "-mc", &script]);
    shell.shows("0 locks").await;
    shell.type_in("\x1a");
    shell.shows("the shell").await;
    let text = shell.text();
    let (watch, _) = text.split_once("the shell").unwrap();
    assert!(watch.contains("\x1b[?25h\x1b[?1049l"), "{watch:?}");
    let modes = tcgetattr(&shell.master).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    shell.type_in("\n");
    eventually(SOON, "it draws again", || async {
        let text = shell.text();
        let (_, since) = text.split_once("the shell").unwrap();
        let drawn = since.contains("\x1b[?1049h") && since.contains("0 locks");
        drawn.then_some(()).ok_or(text)
    })
    .await;
    shell.type_in("q");
    shell.shows("over").await;
    assert_eq!(shell.ended().await.code(), Some(0));
}

#[tokio::test]
async fn interrupt_from_the_terminal_reaches_the_command_once() {
    let server = RedisServer::start().await;
    let script = "n=0; trap 'n=$((n+1)); echo int $n' INT; trap 'echo usr1' USR1; \
                  trap 'echo count $n; exit 5' TERM; echo running; while :; do sleep 0.02; done";
    let mut run = Terminal::start(&server, &["run", "job", "--", "sh", "-c", script]);
    run.shows("running").await;
    let program = pid(run.program.id());
    let send = |signal| kill_process(program, signal).unwrap();
    // What the program passes on comes later than what the terminal sends, so that the command counts both.
    send(Signal::STOP);
    run.type_in("\x03");
    run.shows("int 1").await;
    send(Signal::USR1);
    send(Signal::CONT);
    run.shows("usr1").await;
    send(Signal::TERM);
    assert_eq!(run.ended().await.code(), Some(5));
    run.shows("count 1").await;
}

#[tokio::test]
async fn release_asks_and_only_yes_releases() {
    let server = RedisServer::start().await;
    let mut run = start(
        &server,
        &["run", "job", "--", "sh", "-c", "echo running; read line"],
    );
    run.expect("running", SOON).await;
    for (answer, status, keys) in [("n\n", 1, 1), ("\n", 1, 1), ("y\n", 0, 0)] {
        let mut release = Terminal::start(&server, &["release", "job"]);
        release.shows("[y/N]").await;
        release.type_in(answer);
        assert_eq!(
            release.ended().await.code(),
            Some(status),
            "{}",
            release.text()
        );
        assert_eq!(server.keys().await.len(), keys);
    }
}

#[tokio::test]
async fn semaphore_whose_number_changes_during_the_question_stays_and_the_new_number_is_told() {
    let server = RedisServer::start().await;
    let client = distlock::Client::connect(&server.url()).await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    let _permit = pool.acquire().await.unwrap();
    let mut release = Terminal::start(&server, &["release", "pool"]);
    release.shows("2 permits are free and 1 taken by ").await;
    release.shows("[y/N]").await;
    let _another = pool.acquire().await.unwrap();
    release.type_in("y\n");
    assert_eq!(release.ended().await.code(), Some(1), "{}", release.text());
    release.shows("1 permits are free and 2 taken by ").await;
    release.shows("nothing was released").await;
    assert!(client.inspect("pool").await.unwrap().is_held());

    let mut release = Terminal::start(&server, &["release", "pool"]);
    release.shows("[y/N]").await;
    release.type_in("y\n");
    assert_eq!(release.ended().await.code(), Some(0), "{}", release.text());
    assert!(!client.inspect("pool").await.unwrap().is_held());
}

#[tokio::test]
async fn holder_that_came_during_the_question_keeps_the_lock_and_is_named() {
    let server = RedisServer::start().await;
    let named = async |name: &str| {
        let client = distlock::Client::builder().name(name);
        client.connect(&server.url()).await.unwrap()
    };
    let (first, next) = (named("first").await, named("next").await);
    let guard = first.lock("job").acquire().await.unwrap();
    let mut release = Terminal::start(&server, &["release", "job"]);
    release.shows("is held by first (").await;
    release.shows("[y/N]").await;
    guard.release().await.unwrap();
    let _next = next.lock("job").acquire().await.unwrap();
    release.type_in("y\n");
    assert_eq!(release.ended().await.code(), Some(1), "{}", release.text());
    release.shows("job is held by next (").await;
    assert!(next.lock("job").is_locked().await.unwrap());
}

#[tokio::test]
async fn long_keys_are_cut_in_the_middle_on_a_terminal_and_shown_as_a_whole_with_wide_and_in_a_pipe()
 {
    let server = RedisServer::start().await;
    let key = format!("order:{}:42", "x".repeat(300));
    let command = ["--", "sh", "-c", "echo running; read line"];
    let mut run = start(&server, &[&["run", &key], &command[..]].concat());
    run.expect("running", SOON).await;
    for (args, is_cut) in [(&["ls"] as &[&str], true), (&["ls", "--wide"], false)] {
        let mut ls = Terminal::start(&server, args);
        assert_eq!(ls.ended().await.code(), Some(0));
        ls.shows("LISTENING").await;
        ls.shows(":42  lock").await;
        let text = ls.text();
        assert_eq!(text.contains(&key), !is_cut, "{text}");
        assert_eq!(text.contains('…'), is_cut, "{text}");
        // The terminal has 100 columns.
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(
            longest.is_some_and(|longest| longest > 110),
            !is_cut,
            "{text}"
        );
    }
    assert!(stdout(&output(&server, &["ls"]).await).contains(&key));
    let watch = Terminal::start(&server, &["watch"]);
    watch.shows(":42  lock").await;
}

#[tokio::test]
async fn colours_are_for_terminals_alone_and_not_with_no_color_or_on_a_dumb_one() {
    let server = RedisServer::start().await;
    let is_coloured = async |variables: &[(&str, &str)], args: &[&str], last: &str| {
        let mut program = Terminal::start_with(&server.url(), variables, args);
        program.ended().await;
        program.shows(last).await;
        program.text().contains("\x1b[3")
    };
    let doctor: &[&str] = &["doctor", "--prefix", "distlock:"];
    let wrong: &[&str] = &[
        "run",
        "job",
        "--permits",
        "1",
        "--max-hold",
        "0",
        "--",
        "true",
    ];
    for (args, last) in [(doctor, "clock"), (wrong, "--max-hold")] {
        for (variables, expected) in [
            (&[] as &[_], true),
            (&[("NO_COLOR", "")], true),
            (&[("NO_COLOR", "1")], false),
            (&[("TERM", "dumb")], false),
        ] {
            let found = is_coloured(variables, args, last).await;
            assert_eq!(found, expected, "{args:?} {variables:?}");
        }
        let piped = output(&server, args).await;
        assert!(
            !(stdout(&piped) + &stderr(&piped)).contains('\x1b'),
            "{args:?}"
        );
    }
}
