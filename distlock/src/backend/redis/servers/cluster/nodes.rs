//! The nodes of a cluster that the client knows, and which of them has which slot.

mod channels;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::Cluster;
use super::slots::{OwnedSlots, SlotMap, SlotOwner};
use super::topology::{ClusterMap, NamedNodes};
use crate::backend::redis::connection::{Address, Expected, Locate};
use crate::backend::redis::messages::{PubSubMode, ServerNumber, Slots};
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::node::Node;
use crate::backend::redis::servers::shared::Shared;
use crate::clock::Tick;
use crate::config::NODE_LINGER;
use crate::sync::RwLock;
use crate::telemetry;

/// The nodes that were used, and the map of the slots.
pub(crate) struct Nodes {
    pub(super) shared: Shared,
    /// Whether commands can be sent. Set once.
    is_open: AtomicBool,
    state: RwLock<State>,
    /// The number of the node that was made last.
    numbers: AtomicU32,
    /// For what the nodes need of the cluster.
    cluster: Weak<Cluster>,
}

struct State {
    /// How the scripts publish, and the nodes listen. Known once the cluster is open.
    publish: Publish,
    map: SlotMap,
    /// The nodes of the last map that was read.
    named: NamedNodes,
    nodes: HashMap<Address, Arc<Node>>,
    /// The slots that are on their way to another node, and when a command was last sent there because of that.
    open_slots: HashMap<u16, Tick>,
    /// The nodes that channels have moved away from, and that keep the plain subscriptions to these.
    left_by_channels: BTreeSet<ServerNumber>,
    /// How often the client has gone to another cluster.
    moves: u64,
}

/// The node to ask for a slot: its owner, or any node while no owner is known.
pub(crate) struct SlotNode {
    pub(crate) node: Arc<Node>,
    /// The number of the change that gave the slot this owner; 0 while no owner is known.
    pub(super) changed: u64,
}

/// A node to ask for the map.
pub(super) struct Informant {
    pub(super) address: Address,
    /// Whether the client is connected to it, so that it can answer at once.
    pub(super) is_up: bool,
    /// Whether only the user has named it.
    pub(super) is_seed: bool,
}

impl Nodes {
    /// No node yet, and a map without owners.
    pub(super) fn new(seeds: Vec<Address>, shared: Shared, cluster: Weak<Cluster>) -> Self {
        Self {
            shared,
            is_open: AtomicBool::new(false),
            state: RwLock::new(State {
                publish: Publish::Plain,
                map: SlotMap::new(seeds),
                named: NamedNodes::default(),
                nodes: HashMap::new(),
                open_slots: HashMap::new(),
                left_by_channels: BTreeSet::new(),
                moves: 0,
            }),
            numbers: AtomicU32::new(0),
            cluster,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        // Acquire: pairs with the Release in `set_open`. Who sees it finds the map.
        self.is_open.load(Ordering::Acquire)
    }

    /// Commands can be sent from now on.
    pub(super) fn set_open(&self) {
        // Release: pairs with the load in `is_open`. The map was stored before.
        self.is_open.store(true, Ordering::Release);
    }

    /// The nodes that were made before it was [open](Nodes::set_open) show their outages from now on. Later ones find it open.
    pub(super) fn tell_first(&self) {
        for node in self.state.read().nodes.values() {
            node.tell_first();
        }
    }

    /// From now on the scripts publish in this way.
    pub(super) fn set_publish(&self, publish: Publish) {
        // Waiters may have made nodes before it was known how these publish. They end when their channels have moved.
        let left = self.state.write().set_publish(publish);
        // In a statement after that one: the end of a node may run any code, so not under the lock.
        forget(left.values());
    }

    /// How often the client has gone to another cluster.
    pub(super) fn moves(&self) -> u64 {
        self.state.read().moves
    }

    pub(super) fn numbered(&self, number: ServerNumber) -> Option<Arc<Node>> {
        let state = self.state.read();
        let mut nodes = state.nodes.values();
        nodes.find(|node| node.number() == number).cloned()
    }

    /// A node has said that a slot is at another node. Returns whether that is new. The caller then has the channels of the slot moved.
    pub(super) fn learn(&self, slot: u16, node: &Address) -> bool {
        let number = self.shared.epochs.next();
        self.state.write().map.learn(slot, node, number)
    }

    /// A node that is asked although it does not have the slot. It is kept for a while.
    pub(super) fn visit(&self, node: &Address) -> Arc<Node> {
        let now = self.shared.clock.now();
        self.state.write().map.visit(node, now);
        self.node_at(node)
    }

    /// A node to ask for keys of a slot that is on its way there.
    pub(super) fn visit_for(&self, slot: u16, node: &Address) -> Arc<Node> {
        let now = self.shared.clock.now();
        let mut state = self.state.write();
        state
            .open_slots
            .retain(|_, asked| now.since(*asked) < NODE_LINGER);
        state.open_slots.insert(slot, now);
        state.map.visit(node, now);
        drop(state);
        self.node_at(node)
    }

    /// Whether a command for this slot was sent a moment ago to the node that the slot is on its way to.
    pub(crate) fn is_open_slot(&self, slot: u16) -> bool {
        let state = self.state.read();
        let asked = state.open_slots.get(&slot).copied();
        drop(state);
        asked.is_some_and(|asked| self.shared.clock.now().since(asked) < NODE_LINGER)
    }

    /// The nodes that were used, with slots or not.
    #[cfg(feature = "test-util")]
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.state.read().nodes.values().cloned().collect()
    }

    /// What errors and logs call the cluster: its nodes.
    pub(crate) fn name(&self) -> String {
        let names: Vec<String> = self.known().iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// The nodes that have slots, or those that the user named as long as no map was read.
    pub(super) fn known(&self) -> Vec<Address> {
        let state = self.state.read();
        let owners: Vec<Address> = state.map.owners().into_iter().cloned().collect();
        if owners.is_empty() {
            state.map.seeds_without_slots()
        } else {
            owners
        }
    }

    /// How the scripts publish.
    pub(crate) fn publishes(&self) -> Publish {
        self.state.read().publish
    }

    /// The nodes that have slots.
    pub(crate) fn masters(&self) -> Vec<Arc<Node>> {
        let known = self.known();
        known.iter().map(|address| self.node_at(address)).collect()
    }

    /// The node to ask for a slot.
    pub(crate) fn node(&self, slot: u16) -> SlotNode {
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
    pub(crate) fn has_sharded_messages(&self) -> bool {
        self.publishes() == Publish::Sharded
    }

    /// The node at an address. It is made if it is new.
    pub(super) fn node_at(&self, address: &Address) -> Arc<Node> {
        if let Some(node) = self.state.read().nodes.get(address) {
            return Arc::clone(node);
        }
        let mut state = self.state.write();
        // Another caller may have made it since the first look.
        if let Some(node) = state.nodes.get(address) {
            return Arc::clone(node);
        }
        // Relaxed: the numbers only have to differ.
        // Counted from 1: `greet` uses 0.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let located: Arc<dyn Locate> = Arc::new(address.clone());
        let slots = || -> Arc<dyn Slots> { Arc::new(Weak::clone(&self.cluster)) };
        let mode = match state.publish {
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
        if self.is_open() {
            node.tell_first();
        }
        let node = Arc::new(node);
        state.nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// The number of the last change that concerns a slot. Its node became the owner then, or a new connection replaced an
    /// older one to that node. The first connection does not count, because nothing was sent before it.
    pub(crate) fn epoch(&self, slot: u16) -> u64 {
        let SlotNode { node, changed } = self.node(slot);
        node.link().replaced().max(changed)
    }

    /// Whether data of a slot may have been lost since its [`epoch`](Nodes::epoch) was this.
    pub(crate) fn may_have_lost(&self, slot: u16, epoch: u64) -> bool {
        let lossy = self.state.read().map.lossy(slot);
        self.node(slot).node.link().replaced().max(lossy) > epoch
    }

    /// Whether one of these owners has slots of this cluster, as far as the client knows.
    pub(super) fn has_one_of(&self, owned: &[OwnedSlots]) -> bool {
        let state = self.state.read();
        let owners = state.map.owners();
        owned.iter().any(|one| owners.contains(&one.owner))
    }

    /// Whether this is the map of the present cluster, as far as the client knows. A node may have another address for each that asks,
    /// so addresses tell only where there are no ids.
    pub(super) fn is_cluster_of(&self, map: &ClusterMap) -> bool {
        let by_ids = self.state.read().named.is_cluster_of(&map.named);
        by_ids.unwrap_or_else(|| self.has_one_of(&map.owned))
    }

    /// Whether the nodes of this map are known to be of another cluster.
    pub(super) fn is_other_cluster(&self, map: &ClusterMap) -> bool {
        self.state.read().named.is_cluster_of(&map.named) == Some(false)
    }

    /// Whether the last map has a node with this address.
    pub(super) fn has_named(&self, address: &Address) -> bool {
        self.state.read().named.has(address)
    }

    pub(super) fn address_of(&self, node: &Node) -> Option<Address> {
        let state = self.state.read();
        let mut nodes = state.nodes.iter();
        let found = nodes.find(|(_, other)| other.number() == node.number());
        found.map(|(address, _)| address.clone())
    }

    /// Slots have other owners: their channels move there, and what lives there is renewed.
    pub(super) fn changed(&self) {
        self.move_channels();
        self.shared.epochs.changed();
    }

    /// The same for one slot.
    pub(super) fn slot_changed(&self, slot: u16) {
        self.move_channels_of(|one| one == slot);
        self.shared.epochs.changed();
    }

    /// Replaces the map by what a node has told that was asked when the client had moved so often. Returns whether that still
    /// holds. From now on the scripts publish in this way.
    pub(super) fn replace(&self, map: ClusterMap, publish: Publish, moves: u64) -> bool {
        let number = self.shared.epochs.next();
        let mut state = self.state.write();
        if state.moves != moves {
            return false;
        }
        let left = state.set_publish(publish);
        let is_changed = state.map.replace(&map.owned, number);
        state.named = map.named;
        // The log and the tasks that are woken may run any code.
        drop(state);
        if is_changed {
            telemetry::slots_changed(&self.name());
            self.changed();
        }
        forget(left.values());
        self.forget();
        true
    }

    /// From now on all slots are those of another cluster, at which the scripts publish in this way. What the nodes of
    /// this one answer after that is not believed.
    pub(super) fn move_to(&self, map: ClusterMap, publish: Publish) {
        let number = self.shared.epochs.next();
        let mut state = self.state.write();
        state.moves += 1;
        state.publish = publish;
        let _is_changed = state.map.replace(&map.owned, number);
        state.named = map.named;
        let left = std::mem::take(&mut state.nodes);
        // Leaving a connection wakes tasks, and a waker may run any code.
        drop(state);
        for node in left.values() {
            node.links().for_each(|link| link.leave());
        }
        forget(left.values());
        // Before they are dropped: their channels need another place.
        self.changed();
    }

    /// Forgets the nodes that are needed no more. Their connections end when the last command over them is answered.
    pub(super) fn forget(&self) {
        let now = self.shared.clock.now();
        let mut state = self.state.write();
        let State { map, nodes, .. } = &mut *state;
        let forgotten = map.take_forgotten(nodes.keys(), now, NODE_LINGER);
        let forgotten: Vec<_> = forgotten
            .iter()
            .filter_map(|address| nodes.remove(address))
            .collect();
        // The metrics learn that a node is forgotten, and foreign code never runs under this lock.
        drop(state);
        forget(&forgotten);
        if !forgotten.is_empty() {
            // Before they are dropped: their channels need another place.
            self.move_channels();
        }
    }

    /// The nodes to ask for the map, in this order. A seed that is asked becomes a node, which is kept for a while and then forgotten
    /// again.
    ///
    /// Those that can be asked at once come first. If none of them answers with a map, all known nodes may have gone. The seeds are
    /// the user's word, and their names may lead to other nodes by now. So they take turns with the nodes that are not
    /// connected, of which there may be many.
    ///
    /// The second list has the nodes that do not reach the others. Their maps may lack those that have replaced them, so they are
    /// asked only if all others are silent.
    pub(super) fn informants(&self) -> [Vec<Informant>; 2] {
        let (mut owners, seeds) = {
            let state = self.state.read();
            let owners: Vec<Address> = state.map.owners().into_iter().cloned().collect();
            (owners, state.map.seeds_without_slots())
        };
        // Otherwise all clients would ask the same node.
        fastrand::shuffle(&mut owners);
        let is_cut_off = |owner: &Address| self.node_at(owner).lacks_the_others();
        let (cut_off, owners): (Vec<_>, _) = owners.into_iter().partition(is_cut_off);
        let is_up = |owner: &Address| self.node_at(owner).link().is_up();
        let (up, down): (Vec<_>, Vec<_>) = owners.into_iter().partition(is_up);
        let informant = |is_up, is_seed| {
            move |address| Informant {
                address,
                is_up,
                is_seed,
            }
        };
        let mut first: Vec<_> = up.into_iter().map(informant(true, false)).collect();
        let mut down = down.into_iter().map(informant(false, false));
        let mut seeds = seeds.into_iter().map(informant(false, true));
        while down.len() + seeds.len() > 0 {
            first.extend(down.next());
            first.extend(seeds.next());
        }
        let cut_off = cut_off.into_iter().map(informant(false, false));
        [first, cut_off.collect()]
    }

    /// Nothing is known of the order between a command that another node was asked for and later ones of its slot.
    pub(super) fn went_astray(&self, slot: u16) {
        let number = self.shared.epochs.next();
        self.state.write().map.unsettle(slot, number);
        self.shared.epochs.changed();
    }
}

impl State {
    /// From now on the scripts publish in this way. Returns the nodes that listen in another way.
    #[must_use]
    fn set_publish(&mut self, publish: Publish) -> HashMap<Address, Arc<Node>> {
        if std::mem::replace(&mut self.publish, publish) == publish {
            return HashMap::new();
        }
        std::mem::take(&mut self.nodes)
    }
}

/// The client needs these nodes no more.
fn forget<'a>(nodes: impl IntoIterator<Item = &'a Arc<Node>>) {
    for node in nodes {
        node.forget();
    }
}

#[cfg(test)]
mod tests;
