//! What only a real server shows: the data and messages that Redisson expects, in which slots they lie, several processes,
//! connections that fail.

mod batches;
mod changed_by_hand;
mod cluster;
mod connecting;
mod data;
mod leaders;
mod other_data;
mod processes;
mod red_lock;
mod sentinel;
mod tls;
mod tracking;
mod unpolled;
use std::time::Duration;

use distlock::Client;
use distlock_tests::{RedisServer, eventually_eq};

/// Longer than anything here takes on a noisy machine, and far below the lease of 30 s, which would also free a lock.
const SOON: Duration = Duration::from_secs(10);
const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(server: &RedisServer) -> Client {
    Client::connect(&server.url()).await.expect("a client")
}

/// A client whose watchdog holds locks for this lease.
async fn client_of_lease(server: &RedisServer, lease: Duration) -> Client {
    let builder = Client::builder().watchdog_timeout(lease);
    builder.connect(&server.url()).await.expect("a client")
}

/// Completes when the server has this many listeners on a lock's channel.
async fn listened(server: &RedisServer, key: &str, listeners: u64) {
    let channel = format!("redisson_lock__channel:{{{key}}}");
    eventually_eq(SOON, "listeners", listeners, || {
        server.pubsub_numsub(&channel)
    })
    .await;
}
