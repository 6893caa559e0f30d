//! What the log says of locks that are freed by force.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::subscriber::{DefaultGuard, set_default};

use super::release::{allowed, confirmed, post};
use super::{clients, json, until_next_look};

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Gets what this thread logs until the guard is dropped.
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, set_default(subscriber))
    }

    /// The only line with this text.
    fn line(&self, part: &str) -> String {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        let mut lines = text.lines().filter(|line| line.contains(part));
        match (lines.next(), lines.next()) {
            (Some(line), None) => line.to_owned(),
            _ => panic!("not one line: {text}"),
        }
    }
}

#[track_caller]
fn names_all(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "no {part:?}: {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_says_who_freed_which_lock_of_whom() {
    let (watcher, worker) = clients();
    let guard = worker.lock("k").acquire().await.unwrap();
    let app = allowed(&watcher);
    let (log, _logs) = Log::start();
    post(&app, &[], &confirmed("k")).await;
    let owner = guard.owner().to_string();
    let line = log.line("freed by force");
    names_all(&line, &["WARN", "user=\"ann\"", &owner, "key=\"k\""]);
}

#[tokio::test(start_paused = true)]
async fn lock_is_logged_and_in_the_history_although_its_sender_has_gone_before_the_answer() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let watcher = Client::builder().faults(&faults).in_memory(&server);
    let watcher = watcher.unwrap();
    let worker = Client::builder().in_memory(&server).unwrap();
    let app = allowed(&watcher);
    let guard = worker.lock("k").acquire().await.unwrap();
    json(&app, "/locks/api/locks").await;
    let (log, _logs) = Log::start();
    let late = Duration::from_millis(500);
    faults.next(Op::ForceRelease, Fault::DelayReply(late));
    // The server drops the request of a connection that is closed.
    let gone = timeout(late / 5, post(&app, &[], &confirmed("k"))).await;
    assert!(gone.is_err(), "{gone:?}");
    assert!(!watcher.lock("k").is_locked().await.unwrap());
    sleep(late).await;
    let owner = guard.owner().to_string();
    let line = log.line("freed by force");
    names_all(&line, &["WARN", "user=\"ann\"", &owner, "key=\"k\""]);
    until_next_look().await;
    let past = &json(&app, "/locks/api/locks/k").await["past"];
    assert_eq!(
        (&past[0]["end"], &past[0]["by"]),
        (&json!("force_released"), &json!("ann"))
    );
}

#[tokio::test(start_paused = true)]
async fn lock_that_may_have_been_freed_is_logged_and_the_answer_says_so() {
    for (fault, status) in [
        (Fault::FailAfter, StatusCode::SERVICE_UNAVAILABLE),
        (Fault::Garbled, StatusCode::BAD_GATEWAY),
    ] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let watcher = Client::builder().faults(&faults).in_memory(&server);
        let watcher = watcher.unwrap();
        let worker = Client::builder().in_memory(&server).unwrap();
        let app = allowed(&watcher);
        let guard = worker.lock("k").acquire().await.unwrap();
        let (log, _logs) = Log::start();
        faults.always(Op::ForceRelease, fault);
        let (answered, answer) = post(&app, &[], &confirmed("k")).await;
        assert_eq!(answered, status, "{answer}");
        let text = answer["error"].as_str().unwrap();
        names_all(text, &["it may or may not have been freed"]);
        let owner = guard.owner().to_string();
        let line = log.line("not known whether it was freed");
        names_all(&line, &["WARN", "user=\"ann\"", &owner, "key=\"k\""]);
    }
}

#[tokio::test(start_paused = true)]
async fn answer_says_that_nothing_was_freed_if_the_server_did_not_answer_the_look_at_the_key() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let watcher = Client::builder().faults(&faults).in_memory(&server);
    let watcher = watcher.unwrap();
    let _guard = watcher.lock("k").acquire().await.unwrap();
    faults.always(Op::Inspect, Fault::FailBefore);
    let (status, answer) = post(&allowed(&watcher), &[], &confirmed("k")).await;
    faults.clear(Op::Inspect);
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    names_all(answer["error"].as_str().unwrap(), &["nothing was freed"]);
    assert!(watcher.lock("k").is_locked().await.unwrap());
}
