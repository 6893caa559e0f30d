//! Users of a cluster: the same on all nodes.

use std::collections::BTreeSet;

use super::RedisCluster;

impl RedisCluster {
    /// As [`crate::RedisServer::set_user`], on all running nodes.
    ///
    /// # Panics
    /// As [`crate::RedisServer::set_user`].
    pub async fn set_user(&self, user: &str, rights: &[impl AsRef<str>]) {
        for (_, node) in self.running() {
            node.server.set_user(user, rights).await;
        }
    }

    /// Whether the nodes have messages that only the nodes with a slot get.
    ///
    /// # Panics
    /// If no node runs.
    pub async fn has_sharded_messages(&self) -> bool {
        let (_, node) = self.running().next().expect("a node that runs");
        node.server.knows("spublish").await
    }

    /// As [`crate::RedisServer::denied_to`], of all running nodes.
    ///
    /// # Panics
    /// As [`crate::RedisServer::cli`].
    pub async fn denied_to(&self, user: &str) -> BTreeSet<String> {
        let mut denied = BTreeSet::new();
        for (_, node) in self.running() {
            denied.append(&mut node.server.denied_to(user).await);
        }
        denied
    }
}
