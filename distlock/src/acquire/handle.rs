//! The part that all primitives share: a kind and a key of one client, and the questions about them to the server.

use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Change, Forced, Inspected};
use crate::config::{Backoff, check_expire_after, checked_wait};
use crate::error::Error;
use crate::local::{Lives, Registry, watching};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::{Family, Kind};
use crate::resource::owner::Holder;
use crate::scope::{Frame, frames};
use crate::session::Session;
use crate::wait;

/// Why a wait until a key is free does not begin inside a scope that holds the key.
const HELD_BY_SCOPE: &str =
    "an enclosing scope holds the key, which is not free before the scope has ended";

/// A kind and a key of one client. If the key is invalid, each use of the handle returns the error.
#[derive(Clone)]
pub(crate) struct Handle {
    lives: Arc<Lives>,
    pub(crate) kind: Kind,
    /// The error is boxed, because every acquisition contains a handle and few handles have an error.
    key: Result<Key, Box<Unusable>>,
    /// The pauses of a spin lock, if they are not the default. Boxed, because few handles have them.
    backoff: Option<Box<Backoff>>,
}

/// A key that cannot be used, as the user wrote it, and why.
#[derive(Clone, Debug)]
struct Unusable {
    key: String,
    error: Error,
}

impl Handle {
    /// `key`: the key as the user wrote it. `checked`: the key, or why it cannot be used.
    pub(crate) fn new(
        lives: &Arc<Lives>,
        kind: Kind,
        key: String,
        checked: Result<Key, Error>,
    ) -> Self {
        Self {
            lives: Arc::clone(lives),
            kind,
            key: checked.map_err(|error| Box::new(Unusable { key, error })),
            backoff: None,
        }
    }

    /// The same key under another kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        Self {
            kind,
            ..self.clone()
        }
    }

    /// The pauses of a spin lock, if they are not the default.
    pub(crate) fn backoff(&self) -> Option<&Backoff> {
        self.backoff.as_deref()
    }

    pub(crate) fn set_backoff(&mut self, backoff: Backoff) {
        self.backoff = Some(Box::new(backoff));
    }

    /// Has the number under the key expire so long after each use. Each use of the handle fails if the time is invalid.
    pub(crate) fn set_expire_after(&mut self, time: Duration) {
        let Ok(key) = &self.key else {
            return;
        };
        self.key = match check_expire_after(time) {
            Ok(()) => Ok(key.clone().expiring(time)),
            Err(error) => Err(Box::new(Unusable {
                key: key.text().to_owned(),
                error,
            })),
        };
    }

    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.registry().session)
    }

    /// The registry of the client in this process.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.lives.current()
    }

    /// The registry, without another check whether this process is a copy; see [`look`](Handle::look).
    pub(crate) fn latest_registry(&self) -> Arc<Registry> {
        self.lives.latest()
    }

    /// Gives the client a new identity if this process is a copy of the one that made it.
    pub(crate) fn look(&self) {
        self.lives.look();
    }

    /// Whether the client is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.session().closed.is_set()
    }

    /// Whether both are of one client.
    pub(crate) fn is_of_client_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.lives, &other.lives)
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        let key = self.key.as_ref();
        key.map_err(|unusable| unusable.error.clone())
    }

    /// The key as the user wrote it, also if it cannot be used.
    pub(crate) fn key_text(&self) -> &str {
        match &self.key {
            Ok(key) => key.text(),
            Err(unusable) => &unusable.key,
        }
    }

    pub(crate) fn resource(&self) -> Result<Resource, Error> {
        Ok(Resource {
            kind: self.kind,
            key: self.key()?.clone(),
        })
    }

    pub(crate) async fn inspect(&self) -> Result<Inspected, Error> {
        let session = self.session();
        session.tend_tasks();
        let key = self.key()?;
        let since = session.now();
        let inspected = session.backend.inspect(&self.resource()?).await;
        inspected.map_err(|fault| fault.into_error(key, session.now().since(since)))
    }

    pub(crate) async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.inspect().await?.holders.is_empty())
    }

    pub(crate) async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        Ok(self.inspect().await?.ttl)
    }

    /// The owners that hold the lock. The counts of this client's own holds are exact. The server learns of a changed
    /// count a moment later.
    pub(crate) async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let inspected = self.inspect().await?;
        let session = self.session();
        let named = inspected.holders.into_iter().map(|(owner, count)| {
            let owner = String::from_utf8_lossy(&owner).into_owned();
            let count = session.own_count(&owner).map_or(count, u64::from);
            Holder { owner, count }
        });
        Ok(named.collect())
    }

    pub(crate) async fn hold_count(&self) -> Result<u64, Error> {
        let holders = self.holders().await?;
        let counts = holders.iter().map(|holder| holder.count);
        // Data of another program may have counts of any size.
        Ok(counts.fold(0, u64::saturating_add))
    }

    pub(crate) async fn force_release(&self) -> Result<bool, Error> {
        let registry = self.registry();
        let key = self.key()?;
        let resource = self.resource()?;
        let session = &registry.session;
        session.tend_tasks();
        let since = session.now();
        let freed = session.backend.force_release(&resource, None).await;
        // Also after an error: the server may have freed the key, and only its answer was lost.
        registry.freed_by_force(&resource);
        let freed = freed.map_err(|fault| fault.into_error(key, session.now().since(since)))?;
        if freed == Forced::Freed {
            session.numbers.is_gone(key, since);
        }
        Ok(freed == Forced::Freed)
    }

    /// Changes the number under the key, or answers a question about it.
    pub(crate) async fn adjust(&self, change: impl Into<Change>) -> Result<i64, Error> {
        wait::adjust(&self.session(), &self.resource()?, change.into()).await
    }

    /// Completes when the number under the key is 0. Fails after `wait`, or after the client's default wait if that is
    /// `None`.
    pub(crate) async fn until_zero(&self, wait: Option<Duration>) -> Result<(), Error> {
        let wait = checked_wait(wait.or(self.session().config.default_wait))?;
        let resource = &self.resource()?;
        let until_zero = |registry: Arc<Registry>| async move {
            wait::until_zero(&registry.session, resource, wait).await
        };
        self.under_each_identity(until_zero).await
    }

    /// Completes when nobody holds the key, or has held it at one moment since. Fails after `wait`, or after the client's default
    /// wait if that is `None`.
    pub(crate) async fn until_free(
        &self,
        wait: Option<Duration>,
        call_site: &'static Location<'static>,
    ) -> Result<(), Error> {
        let wait = checked_wait(wait.or(self.session().config.default_wait))?;
        let own = self.resource()?;
        if Frame::find(&frames(), self.session().id, &own).is_some() {
            return Err(Error::deadlock(own.key.text(), HELD_BY_SCOPE));
        }
        // All kinds with the same data are waited for together.
        let kind = match self.kind.family() {
            Family::ReadWrite => Kind::Write,
            _ => Kind::Reentrant,
        };
        let data = &Resource { kind, ..own };
        let until_free = |registry: Arc<Registry>| async move {
            wait::until_free(&registry.session, data, wait, call_site).await
        };
        self.under_each_identity(until_free).await
    }

    /// Waits, and starts again if the client takes another identity meanwhile.
    async fn under_each_identity<F: Future<Output = Result<(), Error>>>(
        &self,
        wait: impl Fn(Arc<Registry>) -> F,
    ) -> Result<(), Error> {
        // Made where it stays: a future that is moved is copied.
        let waiting = pin!(async {
            loop {
                let registry = self.latest_registry();
                let session = &registry.session;
                crate::sync::select! {
                    // In this order: an answer of the former identity that has arrived still counts.
                    biased;
                    ended = wait(Arc::clone(&registry)) => match ended {
                        // The former identity asks no more.
                        Err(Error::Closed { .. } | Error::Unavailable { .. }) if session.identity.is_given_up() => {
                            session.given_up.wait().await;
                        }
                        ended => return ended,
                    },
                    () = session.given_up.wait() => {}
                }
                // As long as the client cannot be made again, it is closed.
                if self.session().identity.is_given_up() {
                    return Err(Error::closed(self.key_text()));
                }
            }
        });
        watching(|| self.look(), waiting).await
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
