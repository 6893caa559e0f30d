//! Where a key lives, and what is known of the connections to that server.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::fault::Fault;

/// Where a key lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// The server, as a number. Keys of one server are answered or lost together.
    pub server: u32,
    /// The part of the server's keys. One command can name only keys of one part.
    pub slot: u16,
}

impl Home {
    /// The items of each home together. The homes are in the order of their first items.
    pub(crate) fn group<T>(items: impl IntoIterator<Item = (Self, T)>) -> Vec<(Self, Vec<T>)> {
        let mut places = BTreeMap::new();
        let mut groups = Vec::new();
        for (home, item) in items {
            let place: usize = *places.entry(home).or_insert(groups.len());
            if place == groups.len() {
                groups.push((home, Vec::new()));
            }
            groups[place].1.push(item);
        }
        groups
    }

    /// The same for all keys of this server.
    pub(crate) fn of_server(self) -> Self {
        Self { slot: 0, ..self }
    }
}

/// A connection of a client, as the client itself sees it.
#[cfg(feature = "test-util")]
#[derive(Clone, Debug)]
pub struct ConnectionSeen {
    /// What it is for, and the server.
    pub name: String,
    /// The number of the connection, or of the last one, by which the client tells what was sent over it.
    pub epoch: u64,
    /// The number of the connection that is used; `None` if there is none. Any other number than `epoch` is a mistake.
    pub in_use: Option<u64>,
}

/// A server that the client is not connected to.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(any(feature = "redis", feature = "testing")),
    allow(dead_code, reason = "a memory server is down only in tests")
)]
pub struct Disconnection {
    /// What errors call the server.
    pub server: String,
    /// How long there has been no connection.
    pub lasted: Duration,
    /// Why there is none.
    pub fault: Fault,
}

/// The time between two connections to the server of a key. No two gaps of a key are equal, and the one before the first
/// connection is a gap as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionGap {
    /// How many connections to the server were lost before it.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "a memory server has no connection")
    )]
    pub(crate) lost: u64,
    /// The number of the last change of the server that has the key.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "a memory server has no connection")
    )]
    pub(crate) changed: u64,
}

/// The keys that a server has told of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The server has told that all keys may have changed, or of more keys than are kept.
    pub all: bool,
    /// The names of keys that have changed, with their prefix. There may be some that are no key of any hold.
    pub names: HashSet<String>,
}
