//! The first connection to a cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::backend::redis::connection::{Address, Connected, Expected, Locate, handshake};
use crate::backend::redis::messages::PubSubMode;
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::failed::{NodeFault, NodeFaults};
use crate::backend::redis::servers::node::Node;
use crate::backend::redis::servers::shared::Shared;
use crate::backend::{Fault, cause};
use crate::config::PubSub;
use crate::error::show;

/// Finds out how the first node that can say so publishes, and whether it has all that locks need.
pub(super) async fn greet(
    seeds: &[Address],
    shared: &Shared,
    pub_sub: PubSub,
    patience: Duration,
) -> Result<Publish, NodeFault> {
    // Each seed has an equal part of the time, so that one that hangs leaves some for the others.
    let patience = patience / u32::try_from(seeds.len()).unwrap_or(u32::MAX);
    let mut failures = NodeFaults::default();
    for seed in seeds {
        let located: Arc<dyn Locate> = Arc::new(seed.clone());
        let messages = Arc::clone(&located);
        let node = Node::new(
            located,
            messages,
            Expected::Node,
            shared,
            0,
            PubSubMode::Plain,
        );
        match publish_of(&node, pub_sub, patience).await {
            Ok(publish) => return Ok(publish),
            // Users and passwords are each node's own, so the others may not refuse.
            Err(fault) => failures.add(NodeFault {
                node: seed.to_string(),
                fault,
            }),
        }
    }
    let none = || NodeFault {
        node: String::new(),
        fault: Fault::NotNow(cause("no node to connect to")),
    };
    Err(failures.fault().unwrap_or_else(none))
}

/// How a client publishes at the cluster of this node, by what the node says. A node that is busy or loads its data does not say it.
pub(super) async fn publish_of(
    node: &Node,
    pub_sub: PubSub,
    patience: Duration,
) -> Result<Publish, Fault> {
    let Connected { mut connection, .. } = node.link().connected(patience).await?;
    if pub_sub == PubSub::Plain {
        return Ok(Publish::Plain);
    }
    let patience = node.response_timeout().min(patience);
    let asked = timeout(patience, handshake::has_sharded_messages(&mut connection));
    let is_late = |_| Fault::NotNow(cause(format!("no answer within {}", show(patience))));
    let has_sharded_messages = asked.await.map_err(is_late)??;
    Ok(Publish::by(pub_sub, has_sharded_messages))
}
