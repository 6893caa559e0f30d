//! The server that the clients of a stage share, and what a test asks it or does to it.

use std::collections::BTreeSet;

use distlock::MemoryServer;
use distlock::test_util;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{RedisCluster, RedisServer};

/// The server that the clients of a stage share.
pub(super) enum Server {
    Memory(MemoryServer),
    Redis(Box<RedisServer>),
    /// The set that all stages share.
    Sentinel(&'static SentinelSet),
    /// The cluster that all tests share.
    Cluster(&'static RedisCluster),
}

impl Server {
    /// What has been denied this user.
    pub(super) async fn denied_to(&self, user: &str) -> BTreeSet<String> {
        match self {
            Self::Memory(_) => BTreeSet::new(),
            Self::Redis(server) => server.denied_to(user).await,
            Self::Sentinel(set) => {
                let mut denied = BTreeSet::new();
                for at in 0..3 {
                    denied.append(&mut set.server(at).denied_to(user).await);
                    denied.append(&mut set.sentinel(at).denied_to(user).await);
                }
                denied
            }
            Self::Cluster(cluster) => cluster.denied_to(user).await,
        }
    }

    /// Takes the last fencing token of a key away. `wrapped` is the part of a name that follows from the key.
    pub(super) async fn lose_token(&self, key: &str, wrapped: &str) {
        if let Self::Memory(server) = self {
            return test_util::lose_token(server, key);
        }
        let token = format!("redisson_lock_token:{wrapped}");
        self.server_of(&token).await.cli(&["DEL", &token]).await;
    }

    /// Takes all data away whose names contain this prefix.
    pub(super) async fn wipe(&self, prefix: &str) {
        if let Self::Memory(server) = self {
            return server.forget_all();
        }
        for key in self.names(prefix).await.0 {
            self.server_of(&key).await.cli(&["DEL", &key]).await;
        }
    }

    /// How many wait for a key in the server's own queue.
    pub(super) async fn places(&self, key: &str, wrapped: &str) -> usize {
        if let Self::Memory(server) = self {
            return test_util::places(server, key);
        }
        let queue = format!("redisson_lock_queue:{wrapped}");
        let server = self.server_of(&queue).await;
        server.try_cli(&["LLEN", &queue]).await.unwrap()
    }

    /// How many keys there are whose names contain this prefix, and how many channels that somebody listens to. The last
    /// fencing token of a lock stays on purpose, and does not count.
    pub(super) async fn stored(&self, prefix: &str) -> (usize, usize) {
        if let Self::Memory(server) = self {
            return test_util::stored(server);
        }
        let (keys, channels) = self.names(prefix).await;
        let left = keys
            .iter()
            .filter(|key| !key.starts_with("redisson_lock_token:"))
            // That a latch was opened is remembered for some seconds.
            .filter(|key| !key.ends_with(":distlock_opened"));
        (left.count(), channels.len())
    }

    /// The server that has this key.
    async fn server_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Memory(_) => unreachable!("the memory backend is asked by functions of its own"),
            Self::Redis(server) => server,
            Self::Sentinel(set) => set.server(set.master().await),
            Self::Cluster(cluster) => {
                let slot = cluster.slot_of(key).await;
                cluster.node(cluster.node_of(slot).await)
            }
        }
    }

    /// The keys and the channels whose names contain this prefix. A server of the stage's own has no others.
    async fn names(&self, prefix: &str) -> (Vec<String>, Vec<String>) {
        let (servers, channels, prefix) = match self {
            Self::Cluster(cluster) => {
                let nodes = (0..cluster.size()).map(|at| cluster.node(at)).collect();
                if cluster.has_sharded_messages().await {
                    (nodes, "SHARDCHANNELS", prefix)
                } else {
                    (nodes, "CHANNELS", prefix)
                }
            }
            Self::Sentinel(_) => (vec![self.server_of(prefix).await], "CHANNELS", prefix),
            Self::Memory(_) | Self::Redis(_) => (vec![self.server_of("").await], "CHANNELS", ""),
        };
        let pattern = format!("*{prefix}*");
        let mut names = (Vec::new(), Vec::new());
        for server in servers {
            let keys: Vec<String> = server.try_cli(&["KEYS", &pattern]).await.unwrap();
            let question = ["PUBSUB", channels, &pattern];
            let channels: Vec<String> = server.try_cli(&question).await.unwrap();
            names.0.extend(keys);
            names.1.extend(channels);
        }
        names
    }
}
