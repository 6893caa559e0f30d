//! What a node says of its cluster, at an address that the name of a seed stands for.

use std::net::SocketAddr;

use super::map::no_map;
use super::topology::{ClusterMap, cluster_map};
use crate::backend::Fault;
use crate::backend::redis::connection::{Address, Connector, NodeAnswer, ask_node_at};

/// A cluster, and how its nodes publish.
pub(super) struct OtherCluster {
    pub(super) map: ClusterMap,
    pub(super) has_sharded_messages: bool,
}

/// The cluster of the node at this address, which a name stands for.
pub(super) async fn cluster_at(
    connector: &Connector,
    name: &Address,
    at: SocketAddr,
) -> Result<OtherCluster, Fault> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let NodeAnswer {
        answer,
        has_sharded_messages,
    } = ask_node_at(connector, name, at, &question).await?;
    let asked = Address::Tcp {
        host: at.ip().to_string(),
        port: at.port(),
    };
    Ok(OtherCluster {
        map: cluster_map(&answer, &asked).ok_or_else(no_map)?,
        has_sharded_messages,
    })
}
