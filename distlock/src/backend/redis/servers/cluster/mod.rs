//! The nodes of a cluster.
//!
//! A node is connected to when it is first used, and forgotten when it has no slot any more. Which node has a slot is what
//! the [map](SlotMap) says; it is never more than a hint. A node that does not have the slot says where the slot is, and the
//! command follows. Nothing else is sent twice from here: a command whose outcome is unknown is the caller's to repeat.
//!
//! The whole map is read in the background after a node sent a command elsewhere, or could not be reached: by one task, with
//! growing pauses, so that a thousand waiters whose node is gone cause a few reads. The task also looks at the map every now
//! and then.

mod cluster_slots;
mod follow;
mod greet;
mod map;
mod moved;
mod open;
pub(crate) mod redirect;
mod seed_place;
mod seeds;
pub(crate) mod slots;

pub(crate) mod topology;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use redis::{Cmd, Value};

use self::cluster_slots::ClusterSlots;
use self::follow::SlotCommand;
use self::map::MapReader;
pub(super) use self::map::no_map;
use self::open::{OpenState, names};
use self::seeds::Seeds;
use self::slots::{SlotMap, SlotOwner};
use super::failed::{Failed, moving};
use super::node::{Form, Node};
use super::shared::Shared;
use crate::backend::redis::connection::{Address, ConnectedGauge, Expected, Locate};
use crate::backend::redis::messages::{PubSubMode, Slots};
use crate::backend::redis::script::{Fill, Publish, Script};
use crate::backend::redis::tracking::Track;
use crate::backend::{ConnectionGap, Fault};
use crate::config::PubSub;
use crate::mutex::RwLock;

/// The nodes of a cluster.
pub(super) struct Cluster {
    shared: Shared,
    /// Known once it is [open](Cluster::open).
    publish: OnceLock<Publish>,
    opening: OpenState,
    state: RwLock<State>,
    /// The number of the node that was made last.
    numbers: AtomicU32,
    map_reader: Arc<MapReader>,
    /// The names of the seeds, which may lead to another cluster later.
    seeds: Arc<Seeds>,
    /// For what the nodes, and the task that reads the map, need of the cluster.
    this: Weak<Self>,
}

struct State {
    map: SlotMap,
    nodes: HashMap<Address, Arc<Node>>,
    /// How often the client has gone to another cluster.
    moves: u64,
}

/// The node to ask for a slot: its owner, or any node while no owner is known.
pub(super) struct SlotNode {
    pub(super) node: Arc<Node>,
    /// The number of the change that gave the slot this owner; 0 while no owner is known.
    pub(super) changed: u64,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_reading();
    }
}

impl Cluster {
    /// A cluster that these nodes belong to. Nothing is sent.
    pub(super) fn new(seeds: Vec<Address>, mut shared: Shared, pub_sub: PubSub) -> Arc<Self> {
        let gauge = ConnectedGauge::new(names(&seeds));
        shared.gauge = Some(Arc::clone(&gauge));
        let named = seeds.clone();
        Arc::new_cyclic(|this| Self {
            shared,
            publish: OnceLock::new(),
            opening: OpenState::new(seeds.clone(), pub_sub, gauge),
            state: RwLock::new(State {
                map: SlotMap::new(seeds),
                nodes: HashMap::new(),
                moves: 0,
            }),
            numbers: AtomicU32::new(0),
            map_reader: Arc::default(),
            seeds: Seeds::new(named, Weak::clone(this)),
            this: Weak::clone(this),
        })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The nodes that were used, with slots or not.
    #[cfg(feature = "test-util")]
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.state.read().nodes.values().cloned().collect()
    }

    /// What errors and logs call the cluster: its nodes.
    pub(super) fn name(&self) -> String {
        let names: Vec<String> = self.known().iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// The nodes that have slots, or those that the user named as long as no map was read.
    fn known(&self) -> Vec<Address> {
        let state = self.state.read();
        let owners: Vec<Address> = state.map.owners().into_iter().cloned().collect();
        if owners.is_empty() {
            state.map.seeds_without_slots()
        } else {
            owners
        }
    }

    /// How the scripts publish.
    pub(super) fn publishes(&self) -> Publish {
        self.publish.get().copied().unwrap_or(Publish::Plain)
    }

    /// The nodes that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let known = self.known();
        known.iter().map(|address| self.node_at(address)).collect()
    }

    /// Reads the map.
    pub(super) async fn refresh(&self) -> Result<(), Fault> {
        self.read_map(self.shared.response_timeout).await
    }

    /// The node to ask for a slot.
    pub(super) fn node(&self, slot: u16) -> SlotNode {
        let state = self.state.read();
        let SlotOwner { owner, changed } = state.map.owner(slot);
        if let Some(node) = owner.and_then(|owner| state.nodes.get(owner)) {
            let node = Arc::clone(node);
            return SlotNode { node, changed };
        }
        let any = || state.map.owners().into_iter().next().cloned();
        let seed = || state.map.seeds_without_slots().into_iter().next();
        let address = owner.cloned().or_else(any).or_else(seed);
        // `node_at` locks it for writing.
        drop(state);
        // Every cluster has a seed.
        let address = address.unwrap_or_else(|| Address::Unix("nowhere".into()));
        let node = self.node_at(&address);
        SlotNode { node, changed }
    }

    /// Whether messages go only to the nodes with the slot of their channel.
    pub(super) fn has_sharded_messages(&self) -> bool {
        self.publishes() == Publish::Sharded
    }

    /// The node at an address. It is made if it is new.
    fn node_at(&self, address: &Address) -> Arc<Node> {
        if let Some(node) = self.state.read().nodes.get(address) {
            return Arc::clone(node);
        }
        let mut state = self.state.write();
        // Another caller may have made it since the first look.
        if let Some(node) = state.nodes.get(address) {
            return Arc::clone(node);
        }
        // Relaxed: the numbers only have to differ.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let located: Arc<dyn Locate> = Arc::new(address.clone());
        let slots = || -> Arc<dyn Slots> { Arc::new(ClusterSlots(Weak::clone(&self.this))) };
        let mode = match self.publishes() {
            Publish::Plain => PubSubMode::Plain,
            Publish::Sharded => PubSubMode::Sharded(slots()),
            Publish::Both => PubSubMode::Both(slots()),
        };
        let messages = Arc::clone(&located);
        let node = Node::new(
            located,
            messages,
            Expected::Node,
            &self.shared,
            number,
            mode,
        );
        if self.opening.is_open() {
            node.tell_first();
        }
        let node = Arc::new(node);
        state.nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// The number of the last change that concerns a slot. Its node became the owner then, or a new connection replaced an
    /// older one to that node. The first connection does not count, because nothing was sent before it.
    pub(super) fn epoch(&self, slot: u16) -> u64 {
        let SlotNode { node, changed } = self.node(slot);
        node.link().replaced().max(changed)
    }

    /// The present gap between two connections to the node that has a slot; `None` if there is a connection.
    pub(super) fn connection_gap(&self, slot: u16) -> Option<ConnectionGap> {
        // Nothing is sent before the map is known, though nodes are asked for it.
        if !self.opening.is_open() {
            return Some(ConnectionGap {
                lost: 0,
                changed: 0,
            });
        }
        let SlotNode { node, changed } = self.node(slot);
        let lost = node.link().gap()?;
        Some(ConnectionGap { lost, changed })
    }

    /// Whether data of a slot may have been lost since its [`epoch`](Cluster::epoch) was this.
    pub(super) fn may_have_lost(&self, slot: u16, epoch: u64) -> bool {
        let lossy = self.state.read().map.lossy(slot);
        self.node(slot).node.link().replaced().max(lossy) > epoch
    }

    /// Runs a script on the node that has a slot.
    pub(super) async fn run(
        &self,
        slot: u16,
        script: &Script,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        self.run_as(slot, script, None, with).await
    }

    /// Runs a script on the node that has a slot, and may have the node track keys beside it. The answer is [`Value::Nil`] if it
    /// was not sent.
    pub(super) async fn run_as(
        &self,
        slot: u16,
        script: &Script,
        track: Option<Track<'_>>,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        self.is_opened().await?;
        let publish = self.publishes();
        let make = |form: Form| {
            let call = match form {
                Form::Digest => script.by_digest(publish),
                Form::Source => script.by_source(publish),
            };
            with(call).into_cmd()
        };
        let command = SlotCommand {
            slot,
            make: &make,
            script: script.bit(),
            track,
        };
        self.follow(command).await
    }

    /// Sends a command other than a script to the node that has a slot.
    pub(super) async fn send(&self, slot: u16, command: Cmd) -> Result<Value, Fault> {
        self.is_opened().await?;
        let command = SlotCommand {
            slot,
            make: &|_| command.clone(),
            script: 0,
            track: None,
        };
        self.follow(command).await
    }

    /// Renews by a script what the node of a slot has granted, and waits until enough of its replicas have it. If the slot
    /// has moved in between, this fails: the replicas of the old node say nothing of the new one.
    pub(super) async fn confirm(
        &self,
        slot: u16,
        script: &Script,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        self.is_opened().await?;
        let SlotNode { node, .. } = self.node(slot);
        match node.confirm(script, with).await {
            Err(Failed::Elsewhere(elsewhere)) => {
                // For what the client learns from the redirect. The node that it names is not asked: this confirmation fails in any case.
                let _node_to_ask = self.sent_elsewhere(&node, &elsewhere)?;
                Err(moving())
            }
            answer => answer.map_err(|failed| node.of_answer(node.fault(failed))),
        }
    }
}
