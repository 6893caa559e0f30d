//! Every exclusive lock behind one face, for what all of them promise.

use std::time::Duration;

use distlock::{
    Acquire, Client, Error, FencedLock, Guard, Holder, Lock, MultiLock, NonReentrantLock, SpinLock,
};
use serde::{Deserialize, Serialize};

/// A kind of exclusive lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Of {
    /// The reentrant lock.
    Reentrant,
    /// The non-reentrant lock.
    NonReentrant,
    /// The spin lock.
    Spin,
    /// The fenced lock.
    Fenced,
    /// A multi-lock of the key and another one.
    Multi,
}

/// A lock of any exclusive kind.
#[derive(Clone, Debug)]
pub enum AnyLock {
    /// The reentrant lock.
    Reentrant(Lock),
    /// The non-reentrant lock.
    NonReentrant(NonReentrantLock),
    /// The spin lock.
    Spin(SpinLock),
    /// The fenced lock.
    Fenced(FencedLock),
    /// A multi-lock.
    Multi(MultiLock),
}

impl Of {
    /// A lock of this kind.
    #[must_use]
    pub fn lock(self, client: &Client, key: &str) -> AnyLock {
        match self {
            Self::Reentrant => AnyLock::Reentrant(client.lock(key)),
            Self::NonReentrant => AnyLock::NonReentrant(client.non_reentrant_lock(key)),
            Self::Spin => AnyLock::Spin(client.spin_lock(key)),
            Self::Fenced => AnyLock::Fenced(client.fenced_lock(key)),
            Self::Multi => {
                let other = format!("{key}:other");
                AnyLock::Multi(client.multi_lock([other.as_str(), key]))
            }
        }
    }

    /// May it be entered again inside its own scope?
    #[must_use]
    pub fn is_reentrant(self) -> bool {
        self != Self::NonReentrant
    }
}

fn set<G>(mut acquire: Acquire<G>, wait: Option<Duration>, lease: Option<Duration>) -> Acquire<G>
where
    G: From<Guard> + 'static,
{
    if let Some(wait) = wait {
        acquire = acquire.wait(wait);
    }
    if let Some(lease) = lease {
        acquire = acquire.lease(lease);
    }
    acquire
}

impl AnyLock {
    /// Acquires it, with this wait and lease where they are given.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn acquire(
        &self,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> Result<Guard, Error> {
        match self {
            Self::Reentrant(lock) => set(lock.acquire(), wait, lease).await,
            Self::NonReentrant(lock) => set(lock.acquire(), wait, lease).await,
            Self::Spin(lock) => set(lock.acquire(), wait, lease).await,
            Self::Fenced(lock) => set(lock.acquire(), wait, lease).await.map(Guard::from),
            Self::Multi(lock) => set(lock.acquire(), wait, lease).await,
        }
    }

    /// Acquires it if it is free.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        match self {
            Self::Reentrant(lock) => lock.try_acquire().await,
            Self::NonReentrant(lock) => lock.try_acquire().await,
            Self::Spin(lock) => lock.try_acquire().await,
            Self::Fenced(lock) => Ok(lock.try_acquire().await?.map(Guard::from)),
            Self::Multi(lock) => lock.try_acquire().await,
        }
    }

    /// Who holds it.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        match self {
            Self::Reentrant(lock) => lock.holders().await,
            Self::NonReentrant(lock) => lock.holders().await,
            Self::Spin(lock) => lock.holders().await,
            Self::Fenced(lock) => lock.holders().await,
            Self::Multi(lock) => lock.holders().await,
        }
    }

    /// What is left of its lease.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        match self {
            Self::Reentrant(lock) => lock.remaining_lease().await,
            Self::NonReentrant(lock) => lock.remaining_lease().await,
            Self::Spin(lock) => lock.remaining_lease().await,
            Self::Fenced(lock) => lock.remaining_lease().await,
            Self::Multi(lock) => lock.remaining_lease().await,
        }
    }

    /// Frees it, whoever holds it.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn force_release(&self) -> Result<bool, Error> {
        match self {
            Self::Reentrant(lock) => lock.force_release().await,
            Self::NonReentrant(lock) => lock.force_release().await,
            Self::Spin(lock) => lock.force_release().await,
            Self::Fenced(lock) => lock.force_release().await,
            Self::Multi(lock) => lock.force_release().await,
        }
    }
}
