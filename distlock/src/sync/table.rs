//! Tables whose entries come and go.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The room that a table keeps, if it has far more since a rush of entries has gone. The two bounds are far apart, so that a table
/// seldom shrinks.
pub(crate) fn room(capacity: usize, entries: usize) -> Option<usize> {
    (capacity > 64 + 4 * entries).then_some(2 * entries)
}

/// Gives the memory of a rush of entries back. Called after entries were removed.
pub(crate) fn shrink<K, V, S>(table: &mut HashMap<K, V, S>)
where
    K: Eq + Hash,
    S: BuildHasher,
{
    if let Some(room) = room(table.capacity(), table.len()) {
        table.shrink_to(room);
    }
}
