//! The feature `testing`: what users need to test their own code, through the public API alone.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test may")]

mod faults;
#[cfg(feature = "redis")]
mod paused_time;
mod waits;

use std::time::Duration;

use distlock::{Client, MemoryServer};

/// A server, and two clients of it.
fn replicas() -> (MemoryServer, Client, Client) {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let (one, two) = (client(), client());
    (server, one, two)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
