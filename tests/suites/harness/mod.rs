//! The harness under test: each tool does what it says, and each check can fail.

mod cluster;
mod ends;
mod environment;
mod leaks;
mod process;
mod proxy;
mod sentinel;
mod server;
mod tls;
mod waiting;

use std::any::Any;
use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, eventually_eq};
use tokio::task::JoinError;

/// Ample for anything that should happen at once.
const SOON: Duration = Duration::from_secs(15);

/// For what should not happen: long beside a round trip, short for a test.
const BRIEF: Duration = Duration::from_millis(100);

/// The text of a panic that a task ended with.
fn panic_text(error: JoinError) -> String {
    let payload: Box<dyn Any + Send> = error.into_panic();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    })
    .unwrap()
}

/// Runs what should panic, and gives the text.
async fn panics<T: Send + 'static>(what: impl Future<Output = T> + Send + 'static) -> String {
    panic_text(tokio::spawn(what).await.err().expect("a panic"))
}

/// Waits until a server has these keys.
async fn has_keys(server: &RedisServer, keys: &[&str]) {
    eventually_eq(SOON, "keys", keys.to_vec(), || async {
        let there = server.keys().await;
        keys.iter()
            .copied()
            .filter(|key| there.iter().any(|other| other == key))
            .collect::<Vec<_>>()
    })
    .await;
    assert_eq!(server.keys().await.len(), keys.len());
}

/// Prints how long a verb took: nothing depends on it.
fn took(what: &str, start: Instant) {
    println!("{what}: {:?}", start.elapsed());
}
