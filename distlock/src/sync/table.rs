//! Tables whose entries come and go.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Gives the memory of a rush of entries back. Called after entries were removed. The two bounds are far apart, so that this
/// is rare.
pub(crate) fn shrink<K, V, S>(table: &mut HashMap<K, V, S>)
where
    K: Eq + Hash,
    S: BuildHasher,
{
    if table.capacity() > 64 + 4 * table.len() {
        table.shrink_to(2 * table.len());
    }
}
