//! What a node says of the slots, at an address that the name of a seed stands for.

use std::net::SocketAddr;

use super::map::no_map;
use super::slots::OwnedSlots;
use super::topology::owned_slots;
use crate::backend::Fault;
use crate::backend::redis::connection::{Address, Connector, ask_node_at};

/// The slots and their owners, as the node at this address says that a name stands for.
pub(super) async fn map_at(
    connector: &Connector,
    name: &Address,
    at: SocketAddr,
) -> Result<Vec<OwnedSlots>, Fault> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let answer = ask_node_at(connector, name, at, &question).await?;
    let asked = Address::Tcp {
        host: at.ip().to_string(),
        port: at.port(),
    };
    owned_slots(&answer, &asked).ok_or_else(no_map)
}
