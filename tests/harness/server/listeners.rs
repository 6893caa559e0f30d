//! Waiting for the subscriptions of clients: a message that is published before is lost for them.

use std::time::Duration;

use super::{RedisCluster, RedisServer};
use crate::eventually_eq;

/// Longer than a subscription takes on a noisy machine.
const LISTENED_WITHIN: Duration = Duration::from_secs(10);

/// Completes when the server has this many listeners on a lock's channel.
///
/// # Panics
/// If that does not happen in time.
pub async fn listened(server: &RedisServer, key: &str, listeners: u64) {
    let channel = format!("redisson_lock__channel:{{{key}}}");
    eventually_eq(LISTENED_WITHIN, "listeners", listeners, || {
        server.pubsub_numsub(&channel)
    })
    .await;
}

impl RedisCluster {
    /// Completes when clients listen to one channel of this key at this node, in the way that they choose by default.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub async fn listened(&self, node: usize, key: &str) {
        let channels = if self.has_sharded_messages().await {
            "SHARDCHANNELS"
        } else {
            "CHANNELS"
        };
        let pattern = format!("*{{{key}}}*");
        eventually_eq(LISTENED_WITHIN, "channels", 1, async || {
            let words = ["PUBSUB", channels, &pattern];
            let channels = self.node(node).try_cli::<Vec<String>>(&words);
            channels.await.expect("a node that runs").len()
        })
        .await;
    }
}
