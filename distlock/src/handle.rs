//! What every primitive is behind its own words: a kind and a key of one client, and what can be asked about them.

use std::fmt;
use std::sync::Arc;

use crate::backend::{Change, Inspected, Target};
use crate::config::RETRY_PAUSE;
use crate::error::Error;
use crate::hold::Keeper;
use crate::key::Key;
use crate::kind::Kind;
use crate::wait::Registry;

/// A kind and a key of one client. A key that is refused says so at the first use.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) registry: Arc<Registry>,
    pub(crate) kind: Kind,
    pub(crate) key: Result<Key, Error>,
}

/// Who holds a lock, and how often it was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as it stands in the server, `<client uuid>:<number>`; bytes that are no UTF-8 are replaced.
    pub owner: String,
    /// How often the owner has entered the lock.
    pub count: u64,
}

impl Handle {
    /// The same key under another kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        Self {
            kind,
            ..self.clone()
        }
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.registry.keeper
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.key.as_ref().map_err(Clone::clone)
    }

    pub(crate) async fn inspect(&self) -> Result<Inspected, Error> {
        let (keeper, key) = (self.keeper(), self.key()?);
        let since = keeper.now();
        let inspected = keeper.backend.inspect(self.kind, key).await;
        inspected.map_err(|fault| fault.into_error(key, keeper.now().since(since)))
    }

    /// Counts of this client's own holds are exact; the server learns of a changed count a moment later.
    pub(crate) async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let inspected = self.inspect().await?;
        let named = inspected.holders.into_iter().map(|(owner, count)| {
            let owner = String::from_utf8_lossy(&owner).into_owned();
            let count = self.own_count(&owner).map_or(count, u64::from);
            Holder { owner, count }
        });
        Ok(named.collect())
    }

    pub(crate) async fn hold_count(&self) -> Result<u64, Error> {
        let holders = self.holders().await?;
        Ok(holders.iter().map(|holder| holder.count).sum())
    }

    pub(crate) async fn force_release(&self) -> Result<bool, Error> {
        let (keeper, key) = (self.keeper(), self.key()?);
        let since = keeper.now();
        let freed = keeper.backend.force_release(self.kind, key).await;
        freed.map_err(|fault| fault.into_error(key, keeper.now().since(since)))
    }

    /// Changes a number, or looks at it. It is sent until it is answered, under one owner: so it counts once.
    pub(crate) async fn adjust(&self, change: Change) -> Result<i64, Error> {
        let (keeper, key) = (self.keeper(), self.key()?);
        let target = Target::of(self.kind, key, keeper.new_owner());
        let since = keeper.now();
        let give_up = since.after(keeper.config.unavailable_after);
        let longest = keeper.config.longest_pause();
        let mut pause = RETRY_PAUSE.0.min(longest);
        loop {
            let fault = match keeper.backend.adjust(&target, change).await {
                Ok(number) => return Ok(number),
                Err(fault) => fault,
            };
            let now = keeper.now();
            if fault.is_final() || now >= give_up {
                return Err(fault.into_error(key, now.since(since)));
            }
            let until = now.after(pause).min(give_up);
            keeper.clock.sleep_until(until).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// The count of a hold of this client, which the server may not have heard of yet.
    fn own_count(&self, owner: &str) -> Option<u32> {
        let keeper = self.keeper();
        let number = owner.strip_prefix(keeper.id.as_hyphenated().to_string().as_str())?;
        // A writer's name has its mode behind the number.
        let number = number.strip_prefix(':')?.split(':').next()?;
        keeper.count_of(number.parse().ok()?)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("kind", &self.kind)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
