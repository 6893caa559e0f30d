//! The first connection to a cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::redis::connection::{Address, Connected, Expected, Locate, handshake};
use crate::backend::redis::messages::PubSubMode;
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::failed::{NodeFault, NodeFaults};
use crate::backend::redis::servers::node::Node;
use crate::backend::redis::servers::shared::Shared;
use crate::backend::{Fault, cause};
use crate::config::PubSub;
use crate::error::show;
use crate::sync::Unordered;

/// Finds out how the first node that can say so publishes, and whether it has all that locks need.
pub(super) async fn greet(
    seeds: &[Address],
    shared: &Shared,
    pub_sub: PubSub,
    patience: Duration,
) -> Result<Publish, NodeFault> {
    // One that hangs leaves time for the others: the next one is asked beside it.
    let others_after = patience / u32::try_from(seeds.len()).unwrap_or(u32::MAX);
    let give_up = Instant::now() + patience;
    let mut failures = NodeFaults::default();
    let mut next = seeds.iter();
    let mut asked = Unordered::default();
    loop {
        if let Some(seed) = next.next() {
            let left = give_up.duration_since(Instant::now());
            asked.push(publish_of_seed(seed, shared, pub_sub, left));
        }
        let answer = tokio::select! {
            answer = asked.next() => answer,
            () = sleep(others_after), if next.len() > 0 => continue,
        };
        match answer {
            Some(Ok(publish)) => return Ok(publish),
            // Users and passwords are each node's own, so the others may not refuse.
            Some(Err(failed)) => failures.add(failed),
            None => break,
        }
    }
    let none = || NodeFault {
        node: String::new(),
        fault: Fault::NotNow(cause("no node to connect to")),
    };
    Err(failures.fault().unwrap_or_else(none))
}

/// How a client publishes at the cluster of this seed.
async fn publish_of_seed(
    seed: &Address,
    shared: &Shared,
    pub_sub: PubSub,
    patience: Duration,
) -> Result<Publish, NodeFault> {
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
    let publish = timeout(patience, publish_of(&node, pub_sub, patience)).await;
    publish
        .unwrap_or_else(is_late(patience))
        .map_err(|fault| NodeFault {
            node: seed.to_string(),
            fault,
        })
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
    let has_sharded_messages = asked.await.unwrap_or_else(is_late(patience))?;
    Ok(Publish::by(pub_sub, has_sharded_messages))
}

fn is_late<T>(patience: Duration) -> impl FnOnce(Elapsed) -> Result<T, Fault> {
    move |_| {
        Err(Fault::NotNow(cause(format!(
            "no answer within {}",
            show(patience)
        ))))
    }
}
