//! Values that each server of a client has for itself, so that a server that does not answer costs only what lives there.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::sync::RwLock;

/// One value for each server of a client.
pub(super) struct PerServer<T> {
    make: fn() -> T,
    /// That of the server with number 0, which is the only one except in a cluster. It takes no mutex.
    first: Arc<T>,
    others: RwLock<HashMap<u32, Arc<T>>>,
}

impl<T> PerServer<T> {
    pub(super) fn new(make: fn() -> T) -> Self {
        Self {
            make,
            first: Arc::new(make()),
            others: RwLock::default(),
        }
    }

    /// Runs a function on the value of the server with this number.
    pub(super) fn with<R>(&self, server: u32, with: impl FnOnce(&T) -> R) -> R {
        // Not another reference to it: nearly always it is the first one.
        if server == 0 {
            with(&self.first)
        } else {
            with(&self.of(server))
        }
    }

    /// The value of the server with this number. It is made when it is first asked for.
    pub(super) fn of(&self, server: u32) -> Arc<T> {
        if server == 0 {
            return Arc::clone(&self.first);
        }
        if let Some(value) = self.others.read().get(&server) {
            return Arc::clone(value);
        }
        // Another thread may have made it since the look above, so `entry` looks again.
        let mut others = self.others.write();
        Arc::clone(
            others
                .entry(server)
                .or_insert_with(|| Arc::new((self.make)())),
        )
    }
}

impl<T: Default> Default for PerServer<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug> fmt::Debug for PerServer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others.read();
        f.debug_map()
            .entry(&0, &self.first)
            .entries(others.iter())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn each_server_has_a_value_of_its_own() {
        let values: PerServer<AtomicU32> = PerServer::default();
        for server in [0, 7, 9, 7] {
            values.of(server).fetch_add(1, Ordering::Relaxed);
        }
        let counts = [0, 7, 9].map(|server| values.of(server).load(Ordering::Relaxed));
        assert_eq!(counts, [1, 2, 1]);
        let counts = [0, 7, 9]
            .map(|server| values.with(server, |value: &AtomicU32| value.load(Ordering::Relaxed)));
        assert_eq!(counts, [1, 2, 1]);
    }
}
