//! How a scan goes from one master to the next.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::node::Node;
use super::{Layout, Servers};
use crate::backend::redis::script::Publish;
use crate::backend::{Fault, ScanCursor, ScanPosition};

/// Where the scan of a server begins, and what the server answers when it is over.
const BEGIN: &str = "0";

/// A server that has answered, and whether what it answered continues an earlier page.
pub(crate) struct ScannedServer {
    name: String,
    epoch: u64,
    /// The connection was replaced in between. Another server may have answered, or the same one after a restart, and where
    /// the next page begins means nothing there.
    is_replaced: bool,
    /// The masters that have not been read, this one included.
    others: Vec<String>,
}

/// A page of keys.
pub(crate) struct ScannedPage {
    /// What the server has answered.
    pub(crate) value: Value,
    pub(crate) server: ScannedServer,
}

impl Servers {
    /// How the scripts publish.
    pub(crate) fn publishes(&self) -> Publish {
        match &self.layout {
            Layout::Single { .. } => Publish::Plain,
            Layout::Cluster(cluster) => cluster.nodes.publishes(),
        }
    }

    /// Asks the server of a position for its next page, or the first one that was not read yet.
    pub(crate) async fn scan(
        &self,
        position: &ScanPosition,
        page: impl Fn(&str) -> Cmd,
    ) -> Result<ScannedPage, Fault> {
        self.are_known().await?;
        if let Layout::Cluster(cluster) = &self.layout
            && *position == ScanPosition::default()
        {
            // Without commands for their slots, this client may not have heard of new masters.
            cluster.refresh().await?;
        }
        let masters = self.masters();
        let current = position.at.as_ref();
        // A master that was replaced is not read to its end: the new one is another server.
        let current = current.filter(|at| masters.iter().any(|master| master.name() == at.server));
        let is_new = |name: &String| !position.done.contains(name);
        let others: Vec<String> = masters
            .iter()
            .map(|master| master.name().to_owned())
            .filter(is_new)
            .collect();
        let first = current.map(|at| at.server.as_str());
        let mut failed = None;
        for master in in_order(&masters, &others, first) {
            let from = current.filter(|at| at.server == master.name());
            match self.read_page(master, from, &page).await {
                Ok((value, epoch)) => {
                    let server = ScannedServer {
                        name: master.name().to_owned(),
                        epoch,
                        is_replaced: master.link().epoch() != epoch,
                        others,
                    };
                    return Ok(ScannedPage { value, server });
                }
                // All of them would say the same.
                Err(fault @ Fault::Denied(..)) => return Err(fault),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        if let Layout::Cluster(cluster) = &self.layout {
            cluster.want_map();
        }
        Err(failed.unwrap_or_else(super::cluster::no_map))
    }

    /// A page of one server, and the number of the connection that it came over.
    async fn read_page(
        &self,
        node: &Node,
        from: Option<&ScanCursor>,
        page: impl Fn(&str) -> Cmd,
    ) -> Result<(Value, u64), Fault> {
        // Connects, so that the number is that of the connection that is used.
        let epoch = self.connected_epoch(node).await?;
        let from = from.filter(|at| at.epoch == epoch);
        let from = from.map_or(BEGIN, |at| &at.next);
        let value = node.send(page(from)).await?;
        Ok((value, epoch))
    }

    /// Asks the server that has told the last page, in one go. `None` in place of what it refuses, which may lie elsewhere by now.
    pub(crate) async fn ask_scanned(
        &self,
        server: &ScannedServer,
        commands: &[Cmd],
    ) -> Result<Vec<Option<Value>>, Fault> {
        let masters = self.masters();
        let found = masters.iter().find(|master| master.name() == server.name);
        match found {
            Some(master) => master.send_all(commands).await,
            // It has gone meanwhile, and others have its keys.
            None => Ok(Vec::new()),
        }
    }

    /// Where the page after this one begins. `next` is what the server has answered.
    pub(crate) fn after(
        &self,
        position: &ScanPosition,
        server: ScannedServer,
        next: String,
    ) -> Option<ScanPosition> {
        let mut done = position.done.clone();
        if next == BEGIN && !server.is_replaced {
            let is_last = server.others.iter().all(|other| *other == server.name);
            done.push(server.name);
            return (!is_last).then_some(ScanPosition { done, at: None });
        }
        let at = Some(ScanCursor {
            server: server.name,
            epoch: server.epoch,
            next,
        });
        Some(ScanPosition { done, at })
    }
}

/// The masters to ask for a page, in this order: those of `unread`, `first` before the others. If all are read, any of them.
fn in_order<'a>(
    masters: &'a [Arc<Node>],
    unread: &[String],
    first: Option<&str>,
) -> Vec<&'a Arc<Node>> {
    let is_unread = |master: &&Arc<Node>| unread.iter().any(|other| other == master.name());
    let mut wanted: Vec<_> = masters.iter().filter(is_unread).collect();
    if wanted.is_empty() {
        wanted.extend(masters.first());
    }
    // Those that are away come last: what the others have is read before the scan fails.
    wanted.sort_by_key(|master| {
        let is_first = Some(master.name()) == first;
        (!is_first, master.link().fails_to_connect())
    });
    wanted
}
