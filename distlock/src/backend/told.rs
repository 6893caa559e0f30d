//! What a server tells of the keys that it tracks for a client.

use std::collections::HashSet;

/// The keys that a server has told of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The server has told that all keys may have changed, or of more keys than are kept.
    pub all: bool,
    /// The names of keys that have changed, with their prefix. There may be some that are no key of any hold.
    pub names: HashSet<String>,
}
