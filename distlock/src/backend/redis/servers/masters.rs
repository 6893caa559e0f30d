//! The servers that have keys: all of them are asked, or whether all are there.

use std::sync::Arc;

use super::node::Node;
use super::{Layout, Servers};
use crate::backend::redis::connection::Link;
use crate::backend::{Disconnection, Fault};
use crate::sync::try_all;

impl Servers {
    /// The servers that have keys.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        match &self.layout {
            Layout::Single { node, .. } => vec![Arc::clone(node)],
            Layout::Cluster(cluster) => cluster.nodes.masters(),
        }
    }

    /// Asks each of them for a sign of life.
    pub(crate) async fn ping(&self) -> Result<(), Fault> {
        self.are_known().await?;
        let masters = self.masters();
        let pings = masters.iter().map(|master| async {
            self.connected_epoch(master).await?;
            master.send(redis::cmd("PING")).await
        });
        let pinged = try_all(pings).await;
        if let (Err(_), Layout::Cluster(cluster)) = (&pinged, &self.layout) {
            cluster.want_map();
        }
        pinged.map(drop)
    }

    /// The number of the connection to one of them, once there is one.
    pub(super) async fn connected_epoch(&self, node: &Node) -> Result<u64, Fault> {
        let connected = node.connected_epoch().await;
        connected.map_err(|fault| match &self.layout {
            Layout::Single { .. } => fault,
            Layout::Cluster(cluster) => cluster.unreached(node, fault),
        })
    }

    /// The one that has been disconnected for the longest time, of those that were used. A node of a cluster is connected to
    /// when it is first used. `None` if there is a connection to each.
    pub(crate) fn longest_disconnection(&self) -> Option<Disconnection> {
        if let Layout::Cluster(cluster) = &self.layout
            && let Some(disconnection) = cluster.is_not_opened_for()
        {
            return Some(disconnection);
        }
        let masters = self.masters();
        let links = masters.iter().map(|master| master.link());
        // A link that was never up has no number yet. If there was no connection at all, each of them is waited for.
        let was_any_up = links.clone().any(|link| link.epoch() != 0);
        let is_used = |link: &Link| link.epoch() != 0 || link.fails_to_connect() || !was_any_up;
        let disconnections = masters.iter().filter_map(|master| {
            let link = master.link();
            link.disconnection().filter(|_| is_used(link))
        });
        disconnections.max_by_key(|one| one.lasted)
    }

    /// What errors and logs call them.
    pub(crate) fn name(&self) -> String {
        match &self.layout {
            Layout::Single { node, .. } => node.name().to_owned(),
            Layout::Cluster(cluster) => cluster.nodes.name(),
        }
    }
}
