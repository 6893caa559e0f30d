//! Where commands for a key go: to one server, or to the node of a cluster that has its slot.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::cluster::Cluster;
use super::layout::ONE;
use super::node::Node;
use super::{Layout, Servers};
use crate::backend::redis::script::{Fill, Publish, Script};
use crate::backend::redis::slot::slot_of;
use crate::backend::redis::tracking::Track;
use crate::backend::{ConnectionGap, Fault, Home, Subscription};
use crate::resource::key::Key;

/// What has a key.
#[derive(Clone, Copy)]
pub(crate) enum Route<'a> {
    Single(&'a Node),
    /// The node of the cluster that has this slot.
    Slot(&'a Arc<Cluster>, u16),
}

impl Servers {
    /// Where commands for a key go.
    #[inline]
    pub(crate) fn route(&self, key: &Key) -> Route<'_> {
        match &self.layout {
            Layout::Single { node, .. } => Route::Single(node),
            Layout::Cluster(cluster) => Route::Slot(cluster, slot_of(key.name())),
        }
    }
}

impl Route<'_> {
    // What goes to a cluster is boxed here: it is more than twice as large, and each command to one server would have room for it.

    /// Runs a script on the server of a key. All keys that it names have the same slot as this one.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and each command has room for this"
    )]
    pub(crate) fn run(
        self,
        script: &Script,
        with: Fill<'_>,
    ) -> impl Future<Output = Result<Value, Fault>> {
        async move {
            match self {
                Route::Single(node) => node.run(script, with).await,
                Route::Slot(cluster, slot) => Box::pin(cluster.run(slot, script, None, with)).await,
            }
        }
    }

    /// Runs a script on the server of a key, and has the server track keys beside it. The answer is
    /// [`Value::Nil`](redis::Value::Nil) if it was not sent.
    pub(crate) async fn run_tracked(
        self,
        script: &Script,
        track: Track<'_>,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        match self {
            Route::Single(node) => node.run_tracked(script, track, with).await,
            Route::Slot(cluster, slot) => {
                Box::pin(cluster.run(slot, script, Some(track), with)).await
            }
        }
    }

    /// Renews by a script what the server of a key has granted, and waits until enough of its replicas have it.
    pub(crate) async fn confirm(self, script: &Script, with: Fill<'_>) -> Result<Value, Fault> {
        match self {
            Route::Single(node) => {
                let confirmed = node.confirm(script, with).await;
                confirmed.map_err(|failed| node.of_answer(node.fault(failed)))
            }
            Route::Slot(cluster, slot) => cluster.confirm(slot, script, with).await,
        }
    }

    /// Sends a command other than a script to the server of a key.
    pub(crate) async fn send(self, command: Cmd) -> Result<Value, Fault> {
        match self {
            Route::Single(node) => node.send(command).await,
            Route::Slot(cluster, slot) => Box::pin(cluster.send(slot, command)).await,
        }
    }

    /// Where a key lives.
    pub(crate) fn home(self) -> Home {
        match self {
            // All keys are together, so one command may name any of them.
            Route::Single(_) => Home {
                server: ONE,
                slot: 0,
            },
            Route::Slot(cluster, slot) => {
                let server = cluster.nodes.node(slot).node.number();
                Home { server, slot }
            }
        }
    }

    /// A share in the subscription to a channel of a key.
    pub(crate) fn subscribe(self, channel: String) -> Subscription {
        match self {
            Route::Single(node) => node.subscriber().subscribe(channel),
            Route::Slot(cluster, slot) => cluster.nodes.subscribe(slot, channel),
        }
    }

    /// Whether scripts for a key may just have published where nobody listens: its slot is on its way to another node, which has carried
    /// them out, and those that wait listen at the owner of the slot.
    pub(crate) fn publishes_elsewhere(self) -> bool {
        match self {
            Route::Single(_) => false,
            Route::Slot(cluster, slot) => cluster.nodes.is_open_slot(slot),
        }
    }

    /// Publishes a message at the owner of a slot, by a sharded message. Returns how many subscribers were notified, as the scripts count
    /// them, or `None` if that is not known or messages go to all nodes anyway.
    pub(crate) async fn publish(self, channel: &str, message: &str) -> Option<i64> {
        let Route::Slot(cluster, slot) = self else {
            return None;
        };
        let counted = match cluster.nodes.publishes() {
            Publish::Plain => return None,
            Publish::Sharded => 1,
            // Whoever listens to the one listens to the other, and the scripts add both up.
            Publish::Both => 2,
        };
        let mut publish = redis::cmd("SPUBLISH");
        publish.arg(channel).arg(message);
        match cluster.send(slot, publish).await {
            Ok(Value::Int(notified)) => Some(notified * counted),
            // Those that wait look by themselves, a little later.
            _ => None,
        }
    }

    /// Does this with the server of a key.
    pub(crate) fn with_node<T>(self, with: impl FnOnce(&Node) -> T) -> T {
        match self {
            Route::Single(node) => with(node),
            Route::Slot(cluster, slot) => with(&cluster.nodes.node(slot).node),
        }
    }

    /// The present gap between two connections to the server of a key; `None` if there is a connection.
    pub(crate) fn connection_gap(self) -> Option<ConnectionGap> {
        match self {
            Route::Single(node) => {
                let lost = node.link().gap()?;
                Some(ConnectionGap { lost, changed: 0 })
            }
            Route::Slot(cluster, slot) => cluster.connection_gap(slot),
        }
    }

    /// The number of the connection for commands to the server of a key.
    pub(crate) fn epoch(self) -> u64 {
        match self {
            Route::Single(node) => node.link().epoch(),
            Route::Slot(cluster, slot) => cluster.nodes.epoch(slot),
        }
    }

    /// Whether data of a key may have been lost since its epoch was this.
    pub(crate) fn may_have_lost(self, epoch: u64) -> bool {
        match self {
            // A new connection may lead to another server, or to one that has lost its data.
            Route::Single(node) => node.link().epoch() != epoch,
            Route::Slot(cluster, slot) => cluster.nodes.may_have_lost(slot, epoch),
        }
    }
}
