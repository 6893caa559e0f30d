//! How a cluster starts, and how a node joins it.

use std::ffi::OsString;
use std::sync::Arc;

use crate::certificates::Authority;
use crate::eventually::eventually;
use crate::proxy::Proxy;
use crate::server::launch::{PORT_ATTEMPTS, all_ports_taken, all_serve};
use crate::server::login::Login;
use crate::server::port::{bus_port, free_node_port};
use crate::server::tls::SetTls;
use crate::server::{self, ADMIN, RedisServer, free_port, loopback};

use super::{RedisCluster, SLOTS, STABLE_DEADLINE};

/// The smallest cluster in which the others can agree that a master is down.
const MASTERS: usize = 3;

/// What to start a [`RedisCluster`] with.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    server: server::Builder,
    pub(super) login: Option<Login>,
    replicas: bool,
    proxies: bool,
    tls: Option<SetTls>,
}

/// A process of the cluster, and what stands in front of it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: RedisServer,
    pub(super) proxy: Option<Arc<Proxy>>,
    /// What the cluster calls it. Empty until it answers.
    pub(super) id: String,
    pub(super) is_member: bool,
}

impl Node {
    /// The port by which nodes know each other: the node's own, which is the one for TLS where there is one, or its proxy's.
    pub(super) fn announced(&self) -> u16 {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.addr().port());
        proxy.unwrap_or_else(|| self.own_port())
    }

    /// The port that the cluster names to clients without TLS.
    pub(super) fn plain(&self) -> u16 {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.addr().port());
        proxy.unwrap_or_else(|| self.server.port())
    }

    /// The node's own port for other nodes. They speak TLS where there is a port for it.
    pub(super) fn own_port(&self) -> u16 {
        let tls = self.server.tls_port();
        tls.unwrap_or_else(|| self.server.port())
    }

    /// Makes `other` a member of the same cluster.
    async fn meet(&self, other: &Self) {
        let [port, bus] =
            [other.announced(), bus_port(other.own_port())].map(|port| port.to_string());
        let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
        self.server.cli(&meet).await;
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            server: RedisServer::builder(),
            login: None,
            replicas: true,
            proxies: false,
            tls: None,
        }
    }
}

impl Builder {
    /// One more setting of the nodes, such as `("--cluster-node-timeout", "5000")`. Wins over the harness's own.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.server = self.server.arg(name, value);
        self
    }

    /// The nodes let only this user in. The replicas know the password.
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.server = self.server.credentials(user, password);
        self.login = Some(Login::new(user, password));
        self
    }

    /// Nobody gets in but the harness, and the users that a test [creates](RedisCluster::set_user).
    pub fn without_default_user(self) -> Self {
        let [user, password] = ADMIN;
        self.credentials(user, password)
    }

    /// Whether each of the three masters has a replica. With them by default. Without them a node counts as failed after 15 s
    /// of silence, otherwise after 2.5 s.
    pub fn replicas(mut self, on: bool) -> Self {
        self.replicas = on;
        self
    }

    /// Whether a proxy stands in front of each node. The cluster names the proxies, so that clients and replicas connect
    /// through them; what the nodes tell each other does not. The proxies end with the runtime that starts them.
    pub fn proxies(mut self, on: bool) -> Self {
        self.proxies = on;
        self
    }

    /// All nodes speak TLS, among each other as well, with a certificate of this authority. The plain ports stay open for
    /// clients. A client on a plain port learns the plain ports of the other nodes. Not for a cluster with proxies.
    pub fn tls(mut self, authority: &Authority) -> Self {
        self.tls = Some(SetTls::new(authority, false));
        self
    }

    /// As [`Builder::tls`]. In addition, clients on the ports for TLS need a certificate of that authority.
    pub fn mutual_tls(mut self, authority: &Authority) -> Self {
        self.tls = Some(SetTls::new(authority, true));
        self
    }

    /// Starts the nodes at the same time, makes a cluster of them, and waits until it is
    /// [stable](RedisCluster::wait_until_stable).
    ///
    /// # Panics
    /// If a process does not start, or if the cluster does not become stable in time.
    pub async fn start(self) -> RedisCluster {
        let nodes = if self.replicas { 2 * MASTERS } else { MASTERS };
        let nodes = self.start_nodes(nodes).await;
        for (index, master) in nodes[..MASTERS].iter().enumerate() {
            let epoch = (index + 1).to_string();
            let set_epoch = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            master.server.cli(&set_epoch).await;
            let slots = SLOTS * index / MASTERS..SLOTS * (index + 1) / MASTERS;
            let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            let mut add = vec!["CLUSTER", "ADDSLOTS"];
            add.extend(slots.iter().map(String::as_str));
            master.server.cli(&add).await;
        }
        // Everybody meets everybody: by hearsay alone the last two meet much later.
        for (index, node) in nodes.iter().enumerate() {
            for other in &nodes[index + 1..] {
                node.meet(other).await;
            }
        }
        for (master, replica) in nodes.iter().zip(&nodes[MASTERS..]) {
            let replicate = ["CLUSTER", "REPLICATE", &master.id];
            // Refused until the two have met.
            let replicates = || replica.server.try_text::<()>(&replicate);
            eventually(
                STABLE_DEADLINE,
                "the replica to know its master",
                replicates,
            )
            .await;
        }
        let builder = self;
        let cluster = RedisCluster { nodes, builder };
        cluster.wait_until_stable().await;
        cluster
    }

    /// Starts nodes of which none knows another.
    async fn start_nodes(&self, count: usize) -> Vec<Node> {
        for _ in 0..PORT_ATTEMPTS {
            let mut nodes = Vec::new();
            for _ in 0..count {
                nodes.push(self.launch().await);
            }
            let servers = nodes.iter_mut().map(|node| &mut node.server);
            if all_serve(servers.collect()).await {
                for node in &mut nodes {
                    let id = node.server.try_text(&["CLUSTER", "MYID"]).await;
                    node.id = id.expect("a node has an id");
                }
                return nodes;
            }
        }
        all_ports_taken()
    }

    async fn launch(&self) -> Node {
        let port = free_node_port();
        let proxy = if self.proxies {
            Some(Arc::new(Proxy::start(loopback(port)).await))
        } else {
            None
        };
        // A machine that stands still for a moment must not fail a node. Only replicas have to take over soon.
        let node_timeout = if self.replicas { "2500" } else { "15000" };
        let mut server = RedisServer::builder()
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-node-timeout", node_timeout)
            .arg("--cluster-announce-ip", "127.0.0.1")
            // Replicas stay with the master that the test gave them to.
            .arg("--cluster-migration-barrier", "10")
            .arg("--repl-diskless-sync", "yes")
            .arg("--repl-diskless-sync-delay", "0");
        if let Some(proxy) = &proxy {
            server = server
                .arg("--cluster-announce-port", proxy.addr().port().to_string())
                .arg("--cluster-announce-bus-port", bus_port(port).to_string());
        }
        if let Some(login) = &self.login {
            server = server
                .arg("--masteruser", &login.user)
                .arg("--masterauth", &login.password);
        }
        // The bus has the number of the port for TLS plus that of all buses.
        let plain = match &self.tls {
            Some(tls) => {
                server = server.tls_of(tls, port, true).arg("--tls-cluster", "yes");
                free_port()
            }
            None => port,
        };
        Node {
            server: server.followed_by(&self.server).launch(plain),
            proxy,
            id: String::new(),
            is_member: true,
        }
    }
}

impl RedisCluster {
    /// Starts one more node and makes it a member: a master without slots. Returns its index when the cluster is stable.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub async fn add_node(&mut self) -> usize {
        let index = self.nodes.len();
        let nodes = self.builder.start_nodes(1).await;
        self.nodes.extend(nodes);
        for (other, node) in self.running() {
            if other != index {
                self.nodes[index].meet(node).await;
            }
        }
        self.wait_until_stable().await;
        index
    }
}
