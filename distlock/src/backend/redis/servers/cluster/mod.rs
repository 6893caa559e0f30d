//! The nodes of a cluster.
//!
//! A node is connected to when it is first used, and forgotten when it has no slot any more. Which node has a slot is what
//! the [map](slots::SlotMap) says; it is never more than a hint. A node that does not have the slot says where the slot is, and the
//! command follows. Nothing else is sent twice from here: a command whose outcome is unknown is the caller's to repeat.
//!
//! The whole map is read in the background after a node sent a command elsewhere, or could not be reached: by one task, with
//! growing pauses, so that a thousand waiters whose node is gone cause a few reads. The task also looks at the map every now
//! and then.

mod follow;
mod greet;
mod map;
mod nodes;
mod open;
pub(crate) mod redirect;
mod seed_destination;
mod seeds;
pub(crate) mod slots;

pub(crate) mod topology;

use std::sync::{Arc, Weak};

use redis::{Cmd, Value};

use self::follow::SlotCommand;
use self::map::MapReader;
pub(super) use self::map::no_map;
use self::nodes::{Nodes, SlotNode};
use self::open::{OpenState, names};
use self::seeds::Seeds;
use super::failed::{Failed, moving};
use super::shared::Shared;
use crate::backend::redis::connection::{Address, ConnectedGauge};
use crate::backend::redis::script::{Fill, Form, Script};
use crate::backend::redis::tracking::Track;
use crate::backend::{ConnectionGap, Fault};
use crate::config::PubSub;

/// The nodes of a cluster.
pub(crate) struct Cluster {
    opening: OpenState,
    pub(super) nodes: Nodes,
    map_reader: Arc<MapReader>,
    /// The names of the seeds, which may lead to another cluster later.
    seeds: Arc<Seeds>,
    /// For the task that reads the map.
    this: Weak<Self>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_reading();
    }
}

impl Cluster {
    /// A cluster that these nodes belong to. Nothing is sent.
    pub(super) fn new(seeds: Vec<Address>, mut shared: Shared, pub_sub: PubSub) -> Arc<Self> {
        let gauge = ConnectedGauge::of_each(names(&seeds));
        shared.gauge = Some(Arc::clone(&gauge));
        let named = seeds.clone();
        Arc::new_cyclic(|this| Self {
            opening: OpenState::new(seeds.clone(), pub_sub, gauge),
            nodes: Nodes::new(seeds, shared, Weak::clone(this)),
            map_reader: Arc::default(),
            seeds: Seeds::new(named, Weak::clone(this)),
            this: Weak::clone(this),
        })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.nodes.shared
    }

    /// Reads the map.
    pub(super) async fn refresh(&self) -> Result<(), Fault> {
        self.read_map(self.nodes.shared.response_timeout).await
    }

    /// The present gap between two connections to the node that has a slot; `None` if there is a connection.
    pub(super) fn connection_gap(&self, slot: u16) -> Option<ConnectionGap> {
        // Nothing is sent before the map is known, though nodes are asked for it.
        if !self.nodes.is_open() {
            return Some(ConnectionGap {
                lost: 0,
                changed: 0,
            });
        }
        let SlotNode { node, changed } = self.nodes.node(slot);
        let lost = node.link().gap()?;
        Some(ConnectionGap { lost, changed })
    }

    /// Runs a script on the node that has a slot, and may have the node track keys beside it. The answer is [`Value::Nil`] if it
    /// was not sent.
    pub(super) async fn run(
        &self,
        slot: u16,
        script: &Script,
        track: Option<Track<'_>>,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        self.is_opened().await?;
        // The way to publish is read for each node that is asked: the client may go to another cluster in between.
        let make = |form: Form| with(script.call(form, self.nodes.publishes())).into_cmd();
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
    /// has moved in between, this fails: the replicas of the old node say nothing of the new one. It fails as well while the slot is on
    /// its way and the key is at the new node already.
    pub(super) async fn confirm(
        &self,
        slot: u16,
        script: &Script,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        self.is_opened().await?;
        let SlotNode { node, .. } = self.nodes.node(slot);
        match node.confirm(script, with).await {
            Err(Failed::Elsewhere(elsewhere)) => {
                // For what the client learns from the redirect. The node that it names is not asked: this confirmation fails in any case.
                let _next = self.sent_elsewhere(&node, &elsewhere)?;
                Err(moving())
            }
            answer => answer.map_err(|failed| node.of_answer(node.fault(failed))),
        }
    }
}
