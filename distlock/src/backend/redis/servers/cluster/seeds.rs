//! The names of a cluster's seeds, while the client is connected. They may be pointed at another cluster while the old one stays
//! up, and then clients that were started before and after would lock on different clusters.
//!
//! A new client takes the first seed that answers. So the first name that has an answer decides here as well. A seed that is an
//! address decides that the client stays.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::Cluster;
use super::map::no_map;
use super::seed_destination::{Elsewhere, SeedDestination};
use super::topology::{ClusterMap, cluster_map};
use crate::backend::Fault;
use crate::backend::redis::connection::{Address, Connector, Look, Named, NodeAnswer, ask_node_at};
use crate::backend::redis::script::Publish;
use crate::sync::Mutex;
use crate::telemetry;

pub(super) struct Seeds {
    seeds: Vec<Address>,
    destinations: Mutex<HashMap<Address, SeedDestination>>,
    cluster: Weak<Cluster>,
}

impl Seeds {
    pub(super) fn new(seeds: Vec<Address>, cluster: Weak<Cluster>) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            destinations: Mutex::default(),
            cluster,
        })
    }

    /// Whether one of them has this name, as errors name nodes.
    pub(super) fn has(&self, name: &str) -> bool {
        self.seeds.iter().any(|seed| seed.to_string() == name)
    }

    /// Whether one of them has this address.
    pub(super) fn has_address(&self, address: &Address) -> bool {
        self.seeds.contains(address)
    }

    async fn look_at_first(&self, connector: &Connector) {
        for seed in &self.seeds {
            match connector.look_up(seed).await {
                None => return,
                Some(Ok(answer)) => return self.answered(connector, seed, answer).await,
                Some(Err(fault)) => telemetry::name_not_found(&seed.to_string(), &fault.why()),
            }
        }
    }

    /// The name of a seed stands for these addresses.
    async fn answered(&self, connector: &Connector, seed: &Address, answer: Vec<SocketAddr>) {
        if !self.with_destination(seed, |destination| destination.answered(&answer)) {
            return;
        }
        for at in &answer {
            let there = match cluster_at(connector, seed, *at).await {
                Ok(there) => there,
                Err(fault) => {
                    telemetry::name_leads_nowhere(at, &fault.why());
                    continue;
                }
            };
            let Some(cluster) = self.cluster.upgrade() else {
                return;
            };
            if cluster.nodes.is_cluster_of(&there.map) {
                return self.with_destination(seed, |destination| destination.is_same(&answer));
            }
            let left = cluster.nodes.name();
            match self.with_destination(seed, |destination| {
                destination.is_other(&answer, Instant::now())
            }) {
                Elsewhere::Go => {
                    telemetry::name_moved(&left, &format_args!("{seed} ({at})"));
                    let setting = cluster.opening.pub_sub;
                    let publish = Publish::by(setting, there.has_sharded_messages);
                    cluster.nodes.move_to(there.map, publish);
                }
                Elsewhere::Stay { is_new: true } => telemetry::name_rotates(seed),
                Elsewhere::Stay { is_new: false } => {}
            }
            // The first node that answers decides, as for a client that connects.
            return;
        }
    }

    fn with_destination<T>(
        &self,
        seed: &Address,
        with: impl FnOnce(&mut SeedDestination) -> T,
    ) -> T {
        with(self.destinations.lock().entry(seed.clone()).or_default())
    }
}

impl Named for Seeds {
    fn look<'a>(&'a self, connector: &'a Connector) -> Look<'a> {
        Box::pin(self.look_at_first(connector))
    }
}

impl Cluster {
    /// The client has connected: the names of the seeds are looked up again from now on.
    pub(super) fn watch_seeds(&self) {
        let seeds = &self.seeds;
        let connector = &self.nodes.shared.connector;
        for seed in &seeds.seeds {
            let known = SeedDestination::new(connector.last_addresses(seed));
            // A former destination is replaced: the addresses of this connection count from now on.
            let _first = seeds.destinations.lock().insert(seed.clone(), known);
        }
        let names = Arc::downgrade(seeds);
        self.nodes.shared.names.watch_names(names);
    }
}

/// A cluster, and how its nodes publish.
struct OtherCluster {
    map: ClusterMap,
    has_sharded_messages: bool,
}

/// The cluster of the node at this address, which a name stands for.
async fn cluster_at(
    connector: &Connector,
    name: &Address,
    at: SocketAddr,
) -> Result<OtherCluster, Fault> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let NodeAnswer {
        answer,
        has_sharded_messages,
    } = ask_node_at(connector, name, at, &question).await?;
    let asked = Address::Tcp {
        host: at.ip().to_string(),
        port: at.port(),
    };
    Ok(OtherCluster {
        map: cluster_map(&answer, &asked).ok_or_else(no_map)?,
        has_sharded_messages,
    })
}
