//! The first connection to a cluster.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::redis::connection::{Address, Connected, Expected, Locate, handshake};
use crate::backend::redis::messages::PubSubMode;
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::failed::{NodeFault, NodeFaults};
use crate::backend::redis::servers::node::Node;
use crate::backend::redis::servers::shared::Shared;
use crate::backend::{Fault, cause};
use crate::config::PubSub;

/// Finds out how the first node that answers publishes, and whether it has all that locks need.
pub(super) async fn greet(
    seeds: &[Address],
    shared: &Shared,
    pub_sub: PubSub,
    patience: Duration,
) -> Result<Publish, NodeFault> {
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
        // Each seed has an equal part of the time, so that one that hangs leaves some for the others.
        let patience = patience / u32::try_from(seeds.len()).unwrap_or(u32::MAX);
        match node.link().connected(patience).await {
            Ok(Connected { mut connection, .. }) => {
                return Ok(match pub_sub {
                    PubSub::Plain => Publish::Plain,
                    _ if !handshake::has_sharded_messages(&mut connection).await => Publish::Plain,
                    PubSub::Auto => Publish::Sharded,
                    PubSub::Both => Publish::Both,
                });
            }
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
