//! The checks at the end of a run on a real server: sums and leftovers.

use crate::time::timestamp;
use distlock::Client;
use distlock::test_util::{Sizes, sizes};
use distlock_tests::pulse::monotonic_nanos;
use tokio::time::sleep;

use super::RedisRun;
use crate::Workload;
use crate::history::{LeakedPermit, Operations, wrong_sum};
use distlock_tests::any_lock::{COUNT, LockKind, PERMITS};
use distlock_tests::server::RedisServer;

impl RedisRun {
    /// A semaphore that lacks other permits than those of killed processes, if there is one.
    pub(super) async fn wrong_sum(&mut self) -> Option<String> {
        let bounds = self.bounds();
        let operations = Operations::from_events(&self.history.events(), bounds.lease);
        let client = Client::connect(&self.urls[0]).await;
        let client = client.expect("a server without faults");
        for key in &self.context.workload.keys {
            let free = client.semaphore(key).available_permits().await;
            let free = free.expect("a server without faults");
            let of_key = operations.all.iter().filter(|op| op.key == *key);
            let (mut least, mut most) = (i64::from(PERMITS), i64::from(PERMITS));
            for (_, leaked_permit) in of_key.filter_map(|op| op.leaked_permit(bounds.settle)) {
                least -= 1;
                most -= i64::from(leaked_permit == LeakedPermit::Surely);
            }
            if !(least..=most).contains(&free) {
                let what = format!("{key}: {free} permits, and not {least} to {most}");
                return Some(what);
            }
        }
        None
    }

    /// A latch whose count differs from what was answered, if there is one.
    pub(super) async fn wrong_counts(&mut self) -> Option<String> {
        let bounds = self.bounds();
        let operations = Operations::from_events(&self.history.events(), bounds.lease);
        let client = Client::connect(&self.urls[0]).await;
        let client = client.expect("a server without faults");
        for (key, ops) in operations.by_key() {
            let left = client.count_down_latch(key).count().await;
            let left = left.expect("a server without faults");
            if let Some(wrong) = wrong_sum(&ops, COUNT.into(), left) {
                return Some(format!("{key}: {wrong}"));
            }
        }
        None
    }

    /// What is left some time after the last operation, if there is anything.
    pub(super) async fn leftovers(&mut self) -> Option<String> {
        let (since, quiet) = (monotonic_nanos(), self.config.ground.quiet());
        loop {
            let clients = self.client_sets.iter().flat_map(|program| program.iter());
            let sizes: Vec<Sizes> = clients.map(sizes).collect();
            let servers = &*self.servers.get_mut();
            let mut stored = Vec::new();
            for server in servers.with_data() {
                stored.extend(leftovers_on(server, &self.context.workload).await);
            }
            if stored.is_empty() && sizes.iter().all(|size| *size == Sizes::default()) {
                self.client_sets.clear();
                let open = servers.connections().await;
                if open.is_empty() {
                    return None;
                }
                stored.push(format!("{open:?}"));
            }
            if monotonic_nanos() > self.pulse.stalls().deadline(since, timestamp(quiet)) {
                return Some(format!("{sizes:?}, {stored:?}"));
            }
            sleep(quiet / 100).await;
        }
    }
}

/// The keys and channels that no run may leave on a server.
async fn leftovers_on(server: &RedisServer, workload: &Workload) -> Vec<String> {
    let (mut keys, mut channels) = (server.keys().await, server.pubsub_channels().await);
    // Sentinels speak to each other over this one.
    channels.retain(|channel| channel != "__sentinel__:hello");
    // Servers before Redis 7 do not know it.
    let sharded = server.try_cli::<Vec<String>>(&["PUBSUB", "SHARDCHANNELS"]);
    channels.extend(sharded.await.unwrap_or_default());
    // The last fencing token of a lock stays on purpose, and so does a semaphore.
    keys.retain(|key| !key.starts_with("redisson_lock_token:"));
    if matches!(
        workload.lock_kind,
        LockKind::Permit | LockKind::Semaphore | LockKind::Latch
    ) {
        keys.retain(|key| !workload.keys.contains(key));
    }
    if matches!(workload.lock_kind, LockKind::Semaphore | LockKind::Latch) {
        // A request for a change is remembered as long as a copy of it may arrive.
        keys.retain(|key| !key.ends_with(":request"));
        // So is that a latch was opened, as long as a waiter may ask.
        keys.retain(|key| !key.ends_with(":distlock_opened"));
        // Permits of a killed process stay taken.
        keys.retain(|key| !key.ends_with(":distlock_owners"));
    }
    if workload.lock_kind == LockKind::Permit {
        // What a killed process had stays there when its lease is over, until the next command for that semaphore.
        for key in &workload.keys {
            let permits = format!("{{{key}}}:timeout");
            if !has_unexpired_permits(server, &permits).await {
                keys.retain(|key| *key != permits);
            }
        }
    }
    keys.extend(channels);
    keys
}

async fn has_unexpired_permits(server: &RedisServer, permits: &str) -> bool {
    let (seconds, _micros): (u64, u64) = server.try_cli(&["TIME"]).await.expect("the time");
    let now = format!("({seconds}000");
    let unexpired: redis::RedisResult<u64> =
        server.try_cli(&["ZCOUNT", permits, &now, "+inf"]).await;
    match unexpired {
        Ok(unexpired) => unexpired > 0,
        // The node that has them is asked as well.
        Err(error) if error.code() == Some("MOVED") => false,
        Err(error) => panic!("no sorted set: {error}"),
    }
}
