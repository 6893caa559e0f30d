//! What the workspace's tests may see and change of a server in this process.

use std::collections::BTreeMap;

use crate::backend::memory::families::fair;
use crate::backend::memory::server::MemoryServer;
use crate::backend::memory::store::{Entry, Name, Value};

impl MemoryServer {
    /// The number of stored keys and of subscribed channels. That a latch was opened, which is remembered for some seconds, does
    /// not count.
    pub(crate) fn stored(&self) -> (usize, usize) {
        let now = self.store.clock.now();
        let mut state = self.store.state.lock();
        state.sweep(now);
        let is_kept = |entry: &&Entry| !matches!(entry.value, Value::Opened(_));
        let values = state.values.values().filter(is_kept).count();
        (values + state.queues.len(), state.channels.len())
    }

    /// The number of waiters in the server's queue for a fair lock.
    pub(crate) fn places(&self, key: &str) -> usize {
        let state = self.store.state.lock();
        state.queues.get(key).map_or(0, fair::Places::len)
    }

    /// Removes the last fencing token of a key.
    pub(crate) fn lose_token(&self, key: &str) {
        self.store.state.lock().tokens.lose(key);
    }

    /// The last fencing token of each key for which the server keeps one.
    pub(crate) fn tokens(&self) -> BTreeMap<String, u64> {
        let state = self.store.state.lock();
        let text = |(key, token): (&Name, u64)| (key.to_string(), token);
        state.tokens.kept().map(text).collect()
    }

    /// The holders and their counts, for each key that holds a lock.
    pub(crate) fn locks(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let now = self.store.clock.now();
        let mut state = self.store.state.lock();
        state.sweep(now);
        let lock = |(key, entry): (&Name, &Entry)| match &entry.value {
            Value::Lock(held) => Some((key.to_string(), BTreeMap::from([held.shown()]))),
            _ => None,
        };
        state.values.iter().filter_map(lock).collect()
    }
}
