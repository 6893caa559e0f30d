//! Each curve: what it measures, at which sizes.

pub(crate) mod clients;
pub(crate) mod holds;
pub(crate) mod keys;
pub(crate) mod one_key;
pub(crate) mod processes;
pub(crate) mod readers;
pub(crate) mod waiters;

use std::time::{Duration, Instant};

use distlock::{Acquire, Client, Guard};
use distlock_tests::{RedisServer, eventually};
use futures_util::stream::{self, StreamExt};
use tokio::task::JoinSet;

/// Acquisitions and releases on their way at a time.
const AT_ONCE: usize = 512;

/// For what should take a few seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// Makes all acquisitions, many at a time.
async fn hold(acquisitions: impl IntoIterator<Item = Acquire>) -> Vec<Guard> {
    let acquiring = acquisitions.into_iter().map(async |one| one.await.unwrap());
    stream::iter(acquiring)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

async fn release(guards: Vec<Guard>) {
    let releasing = guards
        .into_iter()
        .map(async |guard| guard.release().await.unwrap());
    stream::iter(releasing)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

/// A client whose holds are renewed in ten minutes, so that a measurement sees no renewal.
async fn without_renewals(server: &RedisServer) -> Client {
    let client = Client::builder().watchdog_timeout(Duration::from_secs(1_800));
    client.connect(&server.url()).await.unwrap()
}

/// Tasks that wait, until the set is dropped. Completes when each key has a subscription, and was asked for once more after
/// that.
async fn wait_for(server: &RedisServer, acquisitions: Vec<Acquire>) -> JoinSet<()> {
    let keys = acquisitions.len();
    let attempts = attempts(server).await + 2 * keys as u64;
    let waiters = acquisitions.into_iter().map(|one| async move {
        let _ = one.await;
    });
    let waiting = waiters.collect::<JoinSet<()>>();
    subscribed(server, keys).await;
    eventually(DEADLINE, "all waiters sleep", async || {
        self::attempts(server).await >= attempts
    })
    .await;
    waiting
}

/// Attempts to acquire a plain lock so far: nothing else asks whether a key exists.
async fn attempts(server: &RedisServer) -> u64 {
    server.command_calls("exists").await
}

async fn subscribed(server: &RedisServer, keys: usize) {
    let keys = keys.to_string();
    eventually(DEADLINE, "all keys have a subscription", async || {
        server.info("stats").await["pubsub_channels"] == keys
    })
    .await;
}

/// Calls `work` again and again for the time. Returns how often.
async fn repeat(time: Duration, mut work: impl AsyncFnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0.0);
    while start.elapsed() < time {
        work().await;
        calls += 1.0;
    }
    calls
}
