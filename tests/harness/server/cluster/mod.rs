//! A Redis Cluster for one test.
//!
//! # Invariants
//! 1. A cluster that was started is stable: see [`RedisCluster::wait_until_stable`].
//! 2. All its processes end with the value and with this test process (see [`crate::guardian`]).
//! 3. Each node keeps its port, its directory, its id and its index over `kill` and `restart`, and keeps its index when it
//!    is forgotten.
//!
//! A node that was killed and one that stands still are asked nothing; the others have to see that it failed.

mod builder;
mod slots;
mod users;
mod view;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::eventually::{eventually, eventually_eq};
use crate::proxy::Proxy;

use super::RedisServer;
use super::login::Login;
use builder::Node;

pub use builder::Builder;
pub use slots::HalfMigration;

/// How many slots a cluster has.
pub const SLOTS: usize = 16_384;

/// A cluster that starts is stable after 3 s, and after a kill within 6 s.
const STABLE_DEADLINE: Duration = Duration::from_secs(60);

/// A replica that has not become the master in this time has given up.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(6);

/// What a node that is a master answers to `CLUSTER FAILOVER`.
const IS_MASTER: &str = "CLUSTER FAILOVER to a replica";

/// How often a planned failover is asked for.
const FAILOVERS: usize = 5;

/// Three masters, each with a replica, all ended by `Drop`.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    // For nodes that join.
    builder: Builder,
}

impl RedisCluster {
    /// Starts three masters with a replica each, without passwords and without proxies. The masters are the nodes 0 to 2,
    /// each with a third of the slots.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// For a cluster with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The cluster that all tests of this process share, and that ends with the process: three masters without replicas.
    ///
    /// It is for tests that only use keys and channels of their own: nobody may stop a node of it, move a slot, or count
    /// all of its keys and connections. A node that is late does not count as failed. Nobody gets in without a password:
    /// the one of the URL may do anything, and tests [create](RedisCluster::set_user) others.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<RedisCluster> = OnceCell::const_new();
        let builder = Self::builder().replicas(false).without_default_user();
        SHARED.get_or_init(|| builder.start()).await
    }

    /// URL for a client without TLS: all members, and the user where there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("redis", Node::plain)
    }

    /// URL for a client over TLS: the ports for TLS of all members, and the user where there is one.
    ///
    /// # Panics
    /// If the cluster was started without TLS.
    #[must_use]
    pub fn tls_url(&self) -> String {
        self.url_of("rediss", |node| node.server.tls_addr().port())
    }

    fn url_of(&self, scheme: &str, port: impl Fn(&Node) -> u16) -> String {
        let login = self.builder.login.as_ref().map(Login::in_url);
        let members = self.nodes.iter().filter(|node| node.is_member);
        let members = members.map(|node| format!("127.0.0.1:{}", port(node)));
        let members = members.collect::<Vec<_>>().join(",");
        let login = login.unwrap_or_default();
        format!("{scheme}+cluster://{login}{members}")
    }

    /// How many nodes were started.
    #[must_use]
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// A node: to ask it, or to look at its process.
    #[must_use]
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index].server
    }

    /// A node: to kill, stop and restart it.
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index].server
    }

    /// The proxy in front of a node. A share of it injects faults of the wire while the cluster is borrowed.
    ///
    /// # Panics
    /// If the cluster was started without proxies.
    #[must_use]
    pub fn proxy(&self, index: usize) -> &Arc<Proxy> {
        let proxy = self.nodes[index].proxy.as_ref();
        proxy.expect("the cluster was started with proxies")
    }

    /// Runs one command on each running node.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub async fn each(&self, words: &[&str]) {
        for (_, node) in self.running() {
            node.server.cli(words).await;
        }
    }

    /// The slot of a key, as the servers count it.
    ///
    /// # Panics
    /// If no node runs.
    pub async fn slot_of(&self, key: &str) -> usize {
        let (_, node) = self.running().next().expect("a node that runs");
        let slot = node.server.try_text(&["CLUSTER", "KEYSLOT", key]).await;
        slot.expect("a node knows the slot of a key")
    }

    /// A key whose name begins with `prefix` and whose slot is at this node.
    ///
    /// # Panics
    /// If the node has so few slots that none is found.
    pub async fn key_at(&self, node: usize, prefix: &str) -> String {
        for number in 0..1_000 {
            let key = format!("{prefix}{number}");
            if self.node_of(self.slot_of(&key).await).await == node {
                return key;
            }
        }
        panic!("none of a thousand keys is at node {node}")
    }

    /// The owner of a slot, as soon as all running nodes name the same one. That may be a node that was killed.
    ///
    /// # Panics
    /// If they do not agree in time.
    pub async fn node_of(&self, slot: usize) -> usize {
        let what = format!("the nodes to agree on slot {slot}");
        eventually(STABLE_DEADLINE, what, || self.agreed_owner(slot)).await
    }

    /// The owner of a slot, as soon as all running nodes name another one than `old`.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub async fn node_of_after(&self, slot: usize, old: usize) -> usize {
        let another = async || match self.agreed_owner(slot).await {
            Ok(owner) if owner == old => Err(format!("they name {old}")),
            answer => answer,
        };
        let what = format!("slot {slot} to leave node {old}");
        eventually(STABLE_DEADLINE, what, another).await
    }

    /// The slots of a node, in order, as it sees them itself.
    ///
    /// # Panics
    /// If the node does not run.
    pub async fn slots_of(&self, node: usize) -> Vec<usize> {
        let node = &self.nodes[node];
        let view = self.view_of(node).await.expect("a node that runs");
        let own = view.get(node).expect("a node sees itself");
        own.slots().collect()
    }

    /// The replicas of a master, as soon as all running nodes agree on them.
    ///
    /// # Panics
    /// If they do not agree in time.
    pub async fn replicas_of(&self, master: usize) -> Vec<usize> {
        let agreed = || self.agreed_view();
        let view = eventually(STABLE_DEADLINE, "the nodes to agree", agreed).await;
        let id = &self.nodes[master].id;
        let is_replica = |node: &Node| {
            view.get(node)
                .is_some_and(|seen| seen.master.as_ref() == Some(id))
        };
        (0..self.nodes.len())
            .filter(|index| is_replica(&self.nodes[*index]))
            .collect()
    }

    /// Cuts all replicas off a master: what is written from now on is lost with it. Returns the replicas, which stand still.
    ///
    /// Ends their connections at the master too. Otherwise a replica would still read what the master had sent when it
    /// continues.
    ///
    /// # Panics
    /// If the master does not let go of them.
    pub async fn cut_replicas(&mut self, master: usize) -> Vec<usize> {
        let replicas = self.replicas_of(master).await;
        for replica in &replicas {
            self.node_mut(*replica).stop();
        }
        let master = self.node(master);
        master.kill_clients("replica").await;
        let connected = async || master.info("replication").await["connected_slaves"].clone();
        let none = "0".to_owned();
        eventually_eq(STABLE_DEADLINE, "replicas of the master", none, connected).await;
        replicas
    }

    /// Cuts a master off from all other nodes, and has its replica take its place. The master goes on answering clients, and
    /// refuses their commands from here on. It believes that it has its slots, and the others that it never was.
    ///
    /// # Panics
    /// If a node refuses its part.
    pub async fn cut_off(&self, master: usize) {
        let replicas = self.replicas_of(master).await;
        let replica = *replicas.first().expect("a replica of the master");
        let cut_off = &self.nodes[master];
        let forget = ["CLUSTER", "FORGET", &cut_off.id];
        for (index, node) in self.running().filter(|(index, _)| *index != master) {
            cut_off.server.cli(&["CLUSTER", "FORGET", &node.id]).await;
            if index != replica {
                node.server.cli(&forget).await;
            }
        }
        let replica = &self.nodes[replica].server;
        replica.cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
        // Refused as long as that is its master.
        let forgets = || replica.try_text::<()>(&forget);
        eventually(STABLE_DEADLINE, "the replica to take the place", forgets).await;
        let refuses = async || {
            let info: String = cut_off.server.try_text(&["CLUSTER", "INFO"]).await?;
            let refuses = info.contains("cluster_state:fail");
            refuses.then_some(()).ok_or(info)
        };
        eventually(STABLE_DEADLINE, "the master to refuse commands", refuses).await;
    }

    /// A planned failover (`CLUSTER FAILOVER`) of a master to its first running replica. Returns the index of the new
    /// master when all running nodes know it.
    ///
    /// # Panics
    /// If the master has no running replica, or if the failover does not happen.
    pub async fn fail_over(&self, master: usize) -> usize {
        let mut replicas = self.replicas_of(master).await.into_iter();
        let replica = replicas.find(|index| self.nodes[*index].server.runs());
        let replica = replica.unwrap_or_else(|| panic!("no replica of node {master} runs"));
        for _ in 0..FAILOVERS {
            // Refused while the replica has no link to its master, and once it has taken the place by itself, on a machine that is slow.
            let begins = async || {
                let server = &self.nodes[replica].server;
                match server.try_text::<()>(&["CLUSTER", "FAILOVER"]).await {
                    Err(refusal) if refusal.contains(IS_MASTER) => Ok(()),
                    begun => begun,
                }
            };
            eventually(STABLE_DEADLINE, "a planned failover to begin", begins).await;
            let ends = eventually(STABLE_DEADLINE, "all to see the failover", async || {
                let view = self.agreed_view().await?;
                let is_master = view
                    .get(&self.nodes[replica])
                    .is_some_and(view::Seen::is_master);
                is_master.then_some(()).ok_or_else(|| "not yet".to_owned())
            });
            if tokio::time::timeout(FAILOVER_TIMEOUT, ends).await.is_ok() {
                return replica;
            }
        }
        panic!("node {replica} does not take the place of node {master}")
    }

    /// Removes a master without slots from the cluster. Its process goes on and knows nobody any more.
    ///
    /// # Panics
    /// If a node refuses its part.
    pub async fn forget(&mut self, node: usize) {
        self.nodes[node].is_member = false;
        let forget = ["CLUSTER", "FORGET", &self.nodes[node].id];
        self.each(&forget).await;
        if self.nodes[node].server.runs() {
            self.nodes[node]
                .server
                .cli(&["CLUSTER", "RESET", "SOFT"])
                .await;
        }
        self.wait_until_stable().await;
    }

    /// Ends all connections of clients, subscribers included, at all running nodes. Returns their number.
    ///
    /// # Panics
    /// As [`RedisServer::kill_clients`].
    pub async fn kill_clients(&self) -> u64 {
        let mut killed = 0;
        for (_, node) in self.running() {
            killed += node.server.kill_clients("normal").await;
            killed += node.server.kill_clients("pubsub").await;
        }
        killed
    }

    /// Waits until the cluster is stable. All slots are served, and no slot is on its way. All running nodes agree on the
    /// replicas of each master and on the owners of the slots. They all regard members that do not run as failed, and the
    /// replicas have a link to their master.
    ///
    /// # Panics
    /// If that does not happen in time, with what was missing last. It cannot happen while a shard has no running node.
    pub async fn wait_until_stable(&self) {
        let stable = || self.is_stable();
        eventually(STABLE_DEADLINE, "a stable cluster", stable).await;
    }

    async fn agreed_owner(&self, slot: usize) -> Result<usize, String> {
        let mut named = None;
        for (_, node) in self.running() {
            let view = self.view_of(node).await?;
            let owner = view
                .owner(slot)
                .ok_or_else(|| format!("nobody has slot {slot}"))?;
            let owner = self.index_of(owner)?;
            if named.is_some_and(|named| named != owner) {
                return Err(format!("some name {named:?}, some {owner}"));
            }
            named = Some(owner);
        }
        named.ok_or_else(|| "no node runs".to_owned())
    }
}
