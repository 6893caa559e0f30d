//! The names of other clients, as the last reports of servers told them.

use lru::LruCache;
use uuid::Uuid;

use crate::backend::reports::client_id;
use crate::config::{ClientName, NAMES_KEPT};
use crate::error::HeldBy;
use crate::sync::Mutex;

/// The names of the clients that were reported last, by their ids.
#[derive(Debug)]
pub(crate) struct SeenNames {
    own: Uuid,
    own_name: ClientName,
    /// Unbounded, because a bounded one allocates memory for all its entries at once, and few clients ask for reports.
    by_client: Mutex<LruCache<Uuid, String>>,
}

impl SeenNames {
    pub(super) fn new(own: Uuid, own_name: ClientName) -> Self {
        Self {
            own,
            own_name,
            by_client: Mutex::new(LruCache::unbounded()),
        }
    }

    /// A server has reported the name of a client.
    pub(crate) fn saw(&self, client: Uuid, name: &str) {
        let mut by_client = self.by_client.lock();
        by_client.put(client, name.to_owned());
        if by_client.len() > NAMES_KEPT {
            by_client.pop_lru();
        }
    }

    /// Adds to a holder what its client is called, if that is known without asking.
    pub(crate) fn add_to(&self, holder: &mut HeldBy) {
        let owner = holder.owner.as_deref();
        let Some(client) = owner.and_then(|owner| client_id(owner.as_bytes())) else {
            return;
        };
        if client == self.own {
            holder.name_client(self.own_name.text().into_owned(), true);
        } else if let Some(name) = self.of(client) {
            holder.name_client(name, false);
        }
    }

    fn of(&self, client: Uuid) -> Option<String> {
        self.by_client.lock().get(&client).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_clients_reported_last_are_kept() {
        let seen = SeenNames::new(Uuid::nil(), ClientName::default());
        for n in 0..=NAMES_KEPT as u128 {
            seen.saw(Uuid::from_u128(n), "web");
            seen.saw(Uuid::from_u128(0), "db");
        }
        assert_eq!(seen.by_client.lock().len(), NAMES_KEPT);
        assert_eq!(seen.of(Uuid::from_u128(0)).as_deref(), Some("db"));
        assert_eq!(seen.of(Uuid::from_u128(1)), None);
    }
}
