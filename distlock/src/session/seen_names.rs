//! The names of other clients, as the last reports of servers told them.

use lru::LruCache;
use uuid::Uuid;

use crate::config::NAMES_KEPT;

/// The names of the clients that were reported last, by their ids.
#[derive(Debug)]
pub(super) struct SeenNames {
    /// Unbounded, because a bounded one allocates memory for all its entries at once, and few clients ask for reports.
    by_client: LruCache<Uuid, String>,
}

impl Default for SeenNames {
    fn default() -> Self {
        Self {
            by_client: LruCache::unbounded(),
        }
    }
}

impl SeenNames {
    pub(super) fn saw(&mut self, client: Uuid, name: &str) {
        self.by_client.put(client, name.to_owned());
        if self.by_client.len() > NAMES_KEPT {
            self.by_client.pop_lru();
        }
    }

    pub(super) fn of(&mut self, client: Uuid) -> Option<String> {
        self.by_client.get(&client).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_clients_reported_last_are_kept() {
        let mut seen = SeenNames::default();
        for n in 0..=NAMES_KEPT as u128 {
            seen.saw(Uuid::from_u128(n), "web");
            seen.saw(Uuid::from_u128(0), "db");
        }
        assert_eq!(seen.by_client.len(), NAMES_KEPT);
        assert_eq!(seen.of(Uuid::from_u128(0)).as_deref(), Some("db"));
        assert_eq!(seen.of(Uuid::from_u128(1)), None);
    }
}
