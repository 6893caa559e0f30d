//! Reads the map of a cluster, and what follows from a new one.
//!
//! The map is read by one task, with growing pauses, after somebody found that it may be wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::slots::{OwnedSlots, slot_of};
use super::topology::owned_slots;
use super::{Cluster, State};
use crate::backend::redis::connection::Address;
use crate::backend::redis::messages::Place;
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::node::{Failed, Sending};
use crate::backend::{Fault, cause};
use crate::config::{MAP_PAUSE, MAP_TIMEOUT, NODE_LINGER};
use crate::foreign;
use crate::telemetry;

/// The task that reads the map, if it runs.
#[derive(Default)]
pub(super) struct MapReader {
    runs: AtomicBool,
    /// Somebody found that the map may be wrong.
    wanted: AtomicBool,
    wake: Notify,
}

impl Cluster {
    /// Slots have other owners: their channels move there, and what lives there is stated anew.
    pub(super) fn changed(&self) {
        self.move_channels();
        self.shared.epochs.changed();
    }

    /// Has the channels subscribed at the nodes that have their slots.
    pub(super) fn move_channels(&self) {
        for (channel, place) in self.shared.subscriptions.places() {
            let (node, _) = self.node(slot_of(&channel));
            if node.place() != place && !self.hears_from(place) {
                node.subscriber().take_over(&channel);
            }
        }
    }

    /// Whether messages that are published at any node are heard at this one.
    fn hears_from(&self, place: Place) -> bool {
        let state = self.state.read();
        let owners = state.map.owners();
        let mut owners = owners.iter().filter_map(|owner| state.nodes.get(*owner));
        self.publishes() == Publish::Plain && owners.any(|node| node.place() == place)
    }

    /// Has the map read soon.
    pub(in crate::backend::redis::servers) fn want_map(&self) {
        let reader = &self.map_reader;
        // Release, and the wake-up after it: the task that is woken sees the flag.
        reader.wanted.store(true, Ordering::Release);
        foreign::notify_one(&reader.wake);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // One swap: of several callers exactly one starts the task. It pairs with the Release of `Reading`.
        if !reader.runs.swap(true, Ordering::AcqRel) {
            let reading = Reading(Arc::clone(reader));
            drop(runtime.spawn(read_while_wanted(Weak::clone(&self.this), reading)));
        }
    }

    /// Reads the map from the first node that tells it. Each has this time to connect and to answer.
    pub(super) async fn read_map(&self, patience: Duration) -> Result<(), Fault> {
        let (mut owners, seeds) = self.state.read().map.informants();
        owners.shuffle(&mut rand::rng());
        // Those that can be asked at once come first. A seed that is asked becomes a node, which is forgotten again.
        owners.sort_by_cached_key(|owner| !self.node_at(owner).link().is_up());
        let mut fault = no_map();
        for address in owners.iter().chain(&seeds) {
            match self.read_map_from(address, patience).await {
                Ok(owned) => {
                    self.replace_map(&owned);
                    return Ok(());
                }
                // Says more than that another node does not answer.
                Err(denied @ Fault::Denied(_)) => fault = denied,
                Err(_) => {}
            }
        }
        Err(fault)
    }

    async fn read_map_from(
        &self,
        address: &Address,
        patience: Duration,
    ) -> Result<Vec<OwnedSlots>, Fault> {
        let sending = Sending {
            asking: false,
            patience,
        };
        let slots = |_| {
            let mut slots = redis::cmd("CLUSTER");
            slots.arg("SLOTS");
            slots
        };
        match self.node_at(address).send_here(sending, slots).await {
            Ok(answer) => owned_slots(&answer, address).ok_or_else(no_map),
            Err(Failed::With(fault)) => Err(fault),
            Err(_) => Err(no_map()),
        }
    }

    fn replace_map(&self, owned: &[OwnedSlots]) {
        let number = self.shared.epochs.next();
        let is_changed = self.state.write().map.replace(owned, number);
        if is_changed {
            telemetry::slots_changed(&self.name());
            self.changed();
        }
        let _some_linger = self.forget_nodes();
    }

    /// Forgets the nodes that are needed no more. Their connections end when the last command over them is answered. Returns
    /// whether there are others without a slot, which are kept for a while.
    pub(super) fn forget_nodes(&self) -> bool {
        let now = self.shared.clock.now();
        let mut state = self.state.write();
        let State { map, nodes } = &mut *state;
        let forgotten = map.take_forgotten(nodes.keys(), now, NODE_LINGER);
        let forgotten: Vec<_> = forgotten
            .iter()
            .filter_map(|address| nodes.remove(address))
            .collect();
        let owners = map.owners();
        let some_linger = nodes.keys().any(|address| !owners.contains(address));
        drop(state);
        for node in &forgotten {
            node.forget();
        }
        if !forgotten.is_empty() {
            // Before they are dropped: their channels need another place.
            self.move_channels();
        }
        some_linger
    }
}

pub(in crate::backend::redis::servers) fn no_map() -> Fault {
    Fault::NotNow(cause("no node tells which slots the nodes have"))
}

/// Reads the map as long as that is wanted, and forgets the nodes that nobody needs.
async fn read_while_wanted(this: Weak<Cluster>, reading: Reading) {
    let mut pause = MAP_PAUSE.first;
    loop {
        let Some(cluster) = this.upgrade() else {
            return;
        };
        if reading.0.wanted.swap(false, Ordering::AcqRel) {
            let _was_answered = cluster.read_map(MAP_TIMEOUT).await;
        }
        // Not held during the pause, so that the cluster can be dropped.
        drop(cluster);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAP_PAUSE.longest);
        if !reading.0.wanted.load(Ordering::Acquire) {
            // The pauses are short again only after the map was right for a while.
            let quiet = timeout(MAP_PAUSE.longest, reading.0.wake.notified())
                .await
                .is_err();
            if quiet && !reading.0.wanted.load(Ordering::Acquire) {
                let some_linger = this.upgrade().is_some_and(|cluster| cluster.forget_nodes());
                if !some_linger {
                    return;
                }
                let _was_woken = timeout(NODE_LINGER, reading.0.wake.notified()).await;
            }
        }
    }
}

/// Held by the task that reads the map. Resets the flag when the task ends, also when it ends with its runtime.
struct Reading(Arc<MapReader>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::Release);
    }
}
