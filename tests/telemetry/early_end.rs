//! What is said of a runtime that ends before its locks are released.

use std::thread;

use distlock::{Client, Guard};
use distlock_tests::RedisServer;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::spans::{collect, has_said};

const EARLY: &str = "the runtime ended before all was released; if the program ends now, keys stay taken until \
                     their leases end, and permits of a plain semaphore for good: call `Client::close` before the program ends";

/// How a program ends that has a guard.
enum End {
    /// It drops the guard, as at the end of `main`.
    Drops,
    /// A static of it keeps the guard.
    Keeps,
    /// A task of it has the guard.
    Spawns,
    Closes,
}

/// Acquires and ends as a program does. Returns what has outlived the runtime.
fn program(url: &str, end: &End) -> Option<Guard> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let guard = client.lock("order:42").acquire().await.unwrap();
        match end {
            End::Drops => drop(guard),
            End::Keeps => return Some(guard),
            End::Spawns => drop(tokio::spawn(async move { guard.lost().await })),
            End::Closes => {
                drop(guard);
                client.close(crate::exported::SOON).await.unwrap();
            }
        }
        None
    })
}

/// Whether the log tells that this program has ended too early.
async fn is_told(end: End) -> bool {
    collect();
    let server = RedisServer::start().await;
    let url = server.url();
    let (ended, has_ended) = oneshot::channel();
    // On a plain thread: the runtime of the test is none of the program's.
    thread::spawn(move || ended.send(program(&url, &end).is_some()));
    has_ended.await.expect("the program panicked");
    has_said(EARLY, "server", &server.addr().to_string())
}

#[tokio::test]
async fn program_that_ends_before_its_locks_are_released_is_told_so() {
    assert!(is_told(End::Drops).await);
    assert!(is_told(End::Keeps).await);
    assert!(is_told(End::Spawns).await);
}

#[tokio::test]
async fn program_that_closes_its_client_is_told_of_no_early_end() {
    assert!(!is_told(End::Closes).await);
}
