//! What only a real server shows: the data and messages that Redisson expects, in which slots they lie, several processes,
//! connections that fail.

/// A test for each of these functions, which is played again if it fails on a machine that stood still for this long: for
/// clients whose leases or timeouts are about as short.
macro_rules! in_real_time {
    ($too_late:expr; $($test:ident),+ $(,)?) => {
        mod in_real_time {
            use super::*;

            $(#[test] fn $test() { $crate::redis::play($too_late, super::$test); })+
        }
    };
}

mod batches;
mod changed_by_hand;
mod cluster;
mod connecting;
mod data;
mod identity;
mod leaders;
mod other_data;
mod processes;
mod red_lock;
mod runtimes;
mod sentinel;
mod tls;
mod tracking;
mod unpolled;
use std::time::Duration;

use distlock::Client;
use distlock_tests::{Pulse, RedisServer, listened, play_until_it_counts};
use tokio::runtime;

/// Longer than anything here takes on a noisy machine, and far below the lease of 30 s, which would also free a lock.
const SOON: Duration = Duration::from_secs(10);
const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A client that waits for answers for as long as its lease allows, so that a machine that stands still is no outage.
async fn client(server: &RedisServer) -> Client {
    let builder = Client::builder()
        .response_timeout(Duration::MAX)
        .unavailable_after(SOON);
    builder.connect(&server.url()).await.expect("a client")
}

/// A client whose watchdog holds locks for this lease.
async fn client_of_lease(server: &RedisServer, lease: Duration) -> Client {
    let builder = Client::builder().watchdog_timeout(lease);
    builder.connect(&server.url()).await.expect("a client")
}

/// Plays a test, and again if it fails on a machine that stood still for this long.
fn play(too_late: Duration, test: impl AsyncFn()) {
    let prepare = || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let pulse = runtime.block_on(async { Pulse::start() });
        (runtime, pulse)
    };
    play_until_it_counts(
        too_late,
        prepare,
        |(runtime, _)| runtime.block_on(test()),
        |(_, pulse)| pulse.stretch(Duration::ZERO),
    );
}
