//! A cluster.

use std::time::Duration;

use tokio::time::sleep;

use super::promotions::Planned;
use super::{Effect, LEFT_AFTER, REPLACED_WITHIN, names};
use crate::Workload;
use crate::fault_plan::PlannedFault;
use crate::history::{Affected, Timestamp};
use crate::redis::plan::UNREPLICATED;
use crate::redis::wire_fault::WireFault;
use crate::redis::wires::Wires;
use crate::time::timestamp;
use distlock_tests::RedisCluster;
use distlock_tests::pulse::monotonic_nanos;
use distlock_tests::server::RedisServer;

/// How long a node may be late before the others count it as failed, in milliseconds. Tests share the machine.
const NODE_TIMEOUT: &str = "1500";

/// What a replica logs when it becomes the master.
const PROMOTED: &str = "Failover election won";

/// What a master logs when it hears of its successor. Until then it grants.
const DEMOTED: &str = "Reconfiguring myself as a replica";

/// After this time all nodes know which one of them has become a master, also the one that was the master before.
const KNOWN_AFTER: Duration = Duration::from_secs(2);

/// How long all nodes of a shard are gone.
const SHARD_GONE: Duration = Duration::from_secs(5);

/// Three masters with a replica each.
#[derive(Debug)]
pub(in crate::redis) struct Cluster {
    cluster: RedisCluster,
    /// The names that the locks of the run have in the servers, with their slots.
    names: Vec<(String, usize)>,
    /// The failovers that the faults have caused.
    planned: Planned,
    /// Clients connect through them.
    wires: Wires,
}

impl Cluster {
    pub(super) async fn start(workload: &Workload) -> Self {
        let builder = RedisCluster::builder().arg("--cluster-node-timeout", NODE_TIMEOUT);
        let cluster = builder.proxies(true).start().await;
        let wires = Wires::default();
        (0..cluster.size()).for_each(|at| wires.add(cluster.proxy(at)));
        let mut slots = Vec::new();
        for name in names(workload) {
            let slot = cluster.slot_of(&name).await;
            slots.push((name, slot));
        }
        Self {
            cluster,
            names: slots,
            planned: Planned::default(),
            wires,
        }
    }

    pub(super) fn url(&self) -> String {
        self.cluster.url()
    }

    pub(super) fn wires(&self) -> Wires {
        self.wires.clone()
    }

    pub(super) async fn ready(&self) {
        self.cluster.wait_until_stable().await;
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        let nodes = (0..self.cluster.size()).map(|at| self.cluster.node(at));
        nodes.filter(|node| node.runs())
    }

    /// Which locks the promoted nodes had is not known afterwards, so each concerns all.
    pub(super) fn unplanned_failovers(&self) -> Vec<Effect> {
        let nodes = (0..self.cluster.size()).map(|at| self.cluster.node(at));
        let promotions = nodes.flat_map(|node| node.logged(PROMOTED));
        let promotions = promotions.map(|(at, _)| at).collect();
        let unplanned = self.planned.without(promotions).into_iter();
        unplanned
            .map(|at| {
                let names = self.names.iter().map(|(name, _)| name.clone());
                let known = at + timestamp(KNOWN_AFTER);
                // On a slow machine a master that was not stopped may hear of it later.
                let left = self.demoted_after(at).unwrap_or(known);
                let left_after = Duration::from_nanos(left.saturating_sub(known));
                Effect::unplanned_failover(names.collect(), known, left_after)
            })
            .collect()
    }

    /// When the first master after this time heard of its successor, if one did before the next one would be replaced.
    fn demoted_after(&self, at: Timestamp) -> Option<Timestamp> {
        let nodes = (0..self.cluster.size()).map(|at| self.cluster.node(at));
        let demotions = nodes.flat_map(|node| node.logged(DEMOTED));
        let latest = at + timestamp(REPLACED_WITHIN);
        let demotions = demotions.map(|(at, _)| at);
        demotions
            .filter(|demoted| (at..latest).contains(demoted))
            .min()
    }

    pub(super) async fn apply(
        &mut self,
        step: &PlannedFault<WireFault>,
        is_cut_off: impl Fn(&str),
    ) -> Effect {
        let PlannedFault { length, fault, .. } = step;
        match fault {
            WireFault::MoveSlot(key) => {
                let (slot, to) = self.other_master(key).await;
                self.cluster.migrate(slot, to).await;
                Effect::of(Affected::Unnoticed)
            }
            WireFault::LeaveSlot(key) => {
                let (slot, to) = self.other_master(key).await;
                let half = self.cluster.half_migrate(slot, to).await;
                sleep(*length).await;
                self.cluster.finish(half).await;
                Effect::outage()
            }
            WireFault::JoinNode(keys) => self.join(keys, *length).await,
            WireFault::FailOver(key) => {
                let (_, master) = self.master(key).await;
                let from = monotonic_nanos();
                self.cluster.fail_over(master).await;
                self.planned.add(from, monotonic_nanos());
                Effect::outage()
            }
            WireFault::KillMaster { key, unreplicated } => {
                let (slot, master) = self.master(key).await;
                if *unreplicated {
                    self.cluster.cut_replicas(master).await;
                    is_cut_off(key);
                    sleep(UNREPLICATED).await;
                }
                self.kill_master(slot, master).await
            }
            WireFault::StopMaster(key) => {
                let (slot, master) = self.master(key).await;
                let keys = self.keys_at(master).await;
                let from = monotonic_nanos();
                self.cluster.node_mut(master).stop();
                sleep(*length).await;
                self.cluster.node_mut(master).cont();
                let goes_on = monotonic_nanos();
                self.ready().await;
                if self.cluster.node_of(slot).await == master {
                    return Effect {
                        lasted: Some((from, goes_on)),
                        ..Effect::outage()
                    };
                }
                let to = monotonic_nanos();
                self.planned.add(from, to);
                // A master that was replaced carries out what lay in its sockets before it hears that.
                let heard = self.demoted_after(goes_on).unwrap_or(goes_on);
                let until = heard.max(goes_on + timestamp(LEFT_AFTER));
                Effect::failover(keys, (from, until), to.max(until))
            }
            WireFault::LoseShard { key, killed } => self.lose_shard(key, *killed).await,
            _ => Effect::outage().met(self.cluster.kill_clients().await > 0),
        }
    }

    /// A node joins, has the slots of these keys for some time, and leaves.
    async fn join(&mut self, keys: &[String], stays: Duration) -> Effect {
        let node = self.add(keys).await;
        sleep(stays).await;
        let asked = self.is_asked(node).await;
        for slot in self.cluster.slots_of(node).await {
            let to = self.master_but(node).await;
            self.cluster.migrate(slot, to).await;
        }
        self.cluster.forget(node).await;
        self.cluster.node_mut(node).kill();
        Effect::of(Affected::Unnoticed).met(asked)
    }

    /// A node joins and gets the slots of these keys.
    pub(super) async fn add(&mut self, keys: &[String]) -> usize {
        let node = self.cluster.add_node().await;
        self.wires.add(self.cluster.proxy(node));
        for key in keys {
            let (slot, owner) = self.master(key).await;
            // Two keys may have the same slot.
            if owner != node {
                self.cluster.migrate(slot, node).await;
            }
        }
        node
    }

    /// Whether clients have sent commands of locks to a node.
    pub(super) async fn is_asked(&self, node: usize) -> bool {
        self.cluster.node(node).command_calls("evalsha").await > 0
    }

    /// Kills the master of a slot, waits until its replica is the master, and starts it again.
    async fn kill_master(&mut self, slot: usize, master: usize) -> Effect {
        let keys = self.keys_at(master).await;
        let from = monotonic_nanos();
        self.cluster.node_mut(master).kill();
        let until = monotonic_nanos();
        for node in 0..self.cluster.size() {
            self.cluster.node_mut(node).cont();
        }
        self.cluster.node_of_after(slot, master).await;
        let to = monotonic_nanos();
        self.planned.add(from, to);
        self.cluster.node_mut(master).restart().await;
        Effect::failover(keys, (from, until), to)
    }

    /// The last master of a shard is gone for some time, and all nodes refuse all keys. It is killed and loses its data, or
    /// stands still.
    async fn lose_shard(&mut self, key: &str, killed: bool) -> Effect {
        let (_, master) = self.master(key).await;
        let keys = self.keys_at(master).await;
        let replicas = self.cluster.replicas_of(master).await;
        for replica in &replicas {
            self.cluster.node_mut(*replica).kill();
        }
        let from = monotonic_nanos();
        if killed {
            self.cluster.node_mut(master).kill()
        } else {
            self.cluster.node_mut(master).stop()
        }
        let until = monotonic_nanos();
        sleep(SHARD_GONE).await;
        let other = self.servers().next().expect("a node of another shard");
        let state: String = other
            .try_cli(&["CLUSTER", "INFO"])
            .await
            .expect("its state");
        let is_down = state.contains("cluster_state:fail");
        if killed {
            // A copy from its time as a replica may have keys of slots that it has given away since. It would import those slots,
            // and nobody would end that.
            self.cluster.node_mut(master).restart_empty().await
        } else {
            self.cluster.node_mut(master).cont()
        }
        for replica in replicas {
            self.cluster.node_mut(replica).restart_empty().await;
        }
        self.ready().await;
        let to = monotonic_nanos();
        let effect = if killed {
            Effect::failover(keys, (from, until), to)
        } else {
            Effect {
                lasted: Some((from, to)),
                ..Effect::outage()
            }
        };
        effect.met(is_down)
    }

    /// The slot of a key, and its master.
    async fn master(&self, key: &str) -> (usize, usize) {
        let slot = self.cluster.slot_of(key).await;
        (slot, self.cluster.node_of(slot).await)
    }

    /// The slot of a key, and a master that does not have it.
    async fn other_master(&self, key: &str) -> (usize, usize) {
        let (slot, owner) = self.master(key).await;
        (slot, self.master_but(owner).await)
    }

    /// A master that is not this one.
    async fn master_but(&self, owner: usize) -> usize {
        for other in (0..self.cluster.size()).filter(|other| *other != owner) {
            // Those that have left do not run.
            if self.cluster.node(other).runs() && !self.cluster.slots_of(other).await.is_empty() {
                return other;
            }
        }
        panic!("node {owner} has all slots")
    }

    /// The names whose data is at a master.
    async fn keys_at(&self, master: usize) -> Vec<String> {
        let slots = self.cluster.slots_of(master).await;
        let at_master = self.names.iter().filter(|(_, slot)| slots.contains(slot));
        at_master.map(|(name, _)| name.clone()).collect()
    }
}
