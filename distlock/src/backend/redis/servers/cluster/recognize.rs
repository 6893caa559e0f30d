//! Whether a node is one of the client's cluster.
//!
//! A node that is gone may leave its address to a node of another cluster. That one would grant the locks in the slots that both
//! have, and clients that know of the change lock elsewhere. So each node is asked for its map over each new connection, before the
//! first command.

use std::time::Duration;

use tokio::time::timeout;

use super::Cluster;
use super::map::ask_for_map;
use super::topology::cluster_map;
use crate::backend::redis::servers::failed::Failed;
use crate::backend::redis::servers::node::Node;
use crate::backend::{Fault, cause};
use crate::error::show;

impl Cluster {
    /// Fails if the node is known to be of another cluster, or does not answer.
    pub(super) async fn recognize(&self, node: &Node, patience: Duration) -> Result<(), Fault> {
        if node.is_recognized() {
            return Ok(());
        }
        // Boxed: this is rare, and each command would have room for it.
        let asked = Box::pin(timeout(patience, self.ask_whose(node, patience)));
        let none = |_| {
            let text = format!("{}: no answer within {}", node.name(), show(patience));
            Err(Fault::NotNow(cause(text)))
        };
        asked.await.unwrap_or_else(none)
    }

    async fn ask_whose(&self, node: &Node, patience: Duration) -> Result<(), Fault> {
        // One caller asks for all.
        let _one = node.recognizing().await;
        if node.is_recognized() {
            return Ok(());
        }
        let connected = node.link().connected(patience).await;
        let epoch = connected
            .map_err(|fault| self.unreached(node, fault))?
            .epoch;
        let address = self.nodes.address_of(node);
        let map = match (ask_for_map(node, patience).await, &address) {
            (Ok(answer), Some(address)) => cluster_map(&answer, address),
            // Nothing of the command was sent yet. Another node may have the slots of one that loads its data, or does not answer.
            (Err(Failed::With(Fault::Unknown(why) | Fault::NotNow(why))), _) => {
                self.want_map();
                return Err(Fault::NotNow(why));
            }
            // It does not say so, or the client has forgotten it meanwhile.
            _ => None,
        };
        if map.is_some_and(|map| self.nodes.is_other_cluster(&map)) {
            self.want_map();
            let text = format!("{} is a node of another cluster by now", node.name());
            return Err(Fault::NotNow(cause(text)));
        }
        node.recognized(epoch);
        Ok(())
    }
}
