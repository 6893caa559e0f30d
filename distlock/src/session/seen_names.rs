//! The names of other clients, as the last reports of servers told them.

use lru::LruCache;
use uuid::Uuid;

use crate::config::NAMES_KEPT;
use crate::mutex::Mutex;

/// The names of the clients that were reported last, by their ids.
/// The names by the ids of the clients.
// Unbounded, because a bounded one allocates memory for all its entries at once, and few clients ask for reports.
#[derive(Debug)]
pub(crate) struct SeenNames(Mutex<LruCache<Uuid, String>>);

impl Default for SeenNames {
    fn default() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl SeenNames {
    /// A server has reported the name of a client.
    pub(crate) fn saw(&self, client: Uuid, name: &str) {
        let mut by_client = self.0.lock();
        by_client.put(client, name.to_owned());
        if by_client.len() > NAMES_KEPT {
            by_client.pop_lru();
        }
    }

    pub(super) fn of(&self, client: Uuid) -> Option<String> {
        self.0.lock().get(&client).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_clients_reported_last_are_kept() {
        let seen = SeenNames::default();
        for n in 0..=NAMES_KEPT as u128 {
            seen.saw(Uuid::from_u128(n), "web");
            seen.saw(Uuid::from_u128(0), "db");
        }
        assert_eq!(seen.0.lock().len(), NAMES_KEPT);
        assert_eq!(seen.of(Uuid::from_u128(0)).as_deref(), Some("db"));
        assert_eq!(seen.of(Uuid::from_u128(1)), None);
    }
}
