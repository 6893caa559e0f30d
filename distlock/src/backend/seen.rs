//! What somebody has seen of a key, who wants to free it by force from those holders and from nobody else.

use std::collections::HashSet;

/// The holders that somebody has seen. A server frees the key if nobody else holds it, and decides that in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The owners as the server stores them, or the ids of permits as text.
    pub owners: Vec<String>,
    /// How many more owners there were, whose names are not known.
    pub unnamed: u64,
    /// The number of a semaphore or a latch, or the last fencing token of a lock; `None` where the owners say all.
    pub number: Option<i64>,
}

impl Seen {
    /// Whether these are all owners that hold the key.
    pub(crate) fn are<T: AsRef<[u8]>>(&self, owners: impl IntoIterator<Item = T>) -> bool {
        let seen: HashSet<&[u8]> = self.owners.iter().map(|owner| owner.as_bytes()).collect();
        let others = owners
            .into_iter()
            .filter(|owner| !seen.contains(owner.as_ref()));
        others.count() as u64 <= self.unnamed
    }
}

/// What has come of freeing a key by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// It was held, and is free now.
    Freed,
    /// Nobody held it.
    WasFree,
    /// Another owner holds it than those that were [seen](Seen), or its number is another one. Nothing was changed.
    Unseen,
}

impl Forced {
    /// Whether there was something to free, which is gone now.
    pub(crate) fn freed(was_held: bool) -> Self {
        if was_held { Self::Freed } else { Self::WasFree }
    }
}
