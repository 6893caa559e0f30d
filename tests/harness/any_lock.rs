//! Every lock behind one face, for what all of them promise.

use std::slice;
use std::time::Duration;

use distlock::{
    Acquire, Client, Error, ExpirableSemaphore, FairLock, FencedLock, Guard, Holder, Leased, Lock,
    MultiLock, NonReentrantFairLock, NonReentrantLock, Quorum, ReadLock, RedLock, Semaphore,
    SpinLock, WriteLock,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

/// How many permits the semaphores of tests have.
pub const PERMITS: u32 = 2;

/// What the count-down latches of tests are set to.
pub const COUNT: u32 = 4;

/// How many servers a Redlock of tests lies on.
pub const SERVERS: usize = 3;

/// How long an acquisition of a free lock may take on a busy machine, also while a connection is made again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Acquires the lock of a key and releases it, which shows that the client and its server work.
///
/// # Panics
/// If one of the two fails.
pub async fn lock_once(client: &Client, key: &str) {
    let guard = client.lock(key).acquire().wait(PATIENCE).await;
    let guard = guard.unwrap_or_else(|error| panic!("{key}: {error}"));
    let released = guard.release().await;
    released.unwrap_or_else(|error| panic!("{key}: {error}"));
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum LockKind {
    /// The reentrant lock.
    Reentrant,
    /// The non-reentrant lock.
    NonReentrant,
    /// The spin lock.
    Spin,
    /// The fenced lock.
    Fenced,
    /// The fair lock.
    Fair,
    /// The non-reentrant fair lock.
    NonReentrantFair,
    /// The write lock of a read/write lock.
    Write,
    /// Its read lock: many at once.
    Read,
    /// A permit-expirable semaphore with [`PERMITS`] permits.
    Permit,
    /// A plain semaphore with as many, which have no lease.
    Semaphore,
    /// A multi-lock of the key and another one.
    Multi,
    /// A Redlock of the key on several servers.
    Red,
    /// A count-down latch of [`COUNT`]. It is not a lock: tasks count it down and wait for it.
    Latch,
}

/// Asks a lock of one key, of any kind. The other arms are for locks that are not a `Lock<K>`.
macro_rules! of_one_key {
    ($any:expr, $lock:ident => $asked:expr, { $($others:tt)* }) => {
        match $any {
            AnyLock::Reentrant($lock) => $asked,
            AnyLock::NonReentrant($lock) => $asked,
            AnyLock::Spin($lock) => $asked,
            AnyLock::Fenced($lock) => $asked,
            AnyLock::Fair($lock) => $asked,
            AnyLock::NonReentrantFair($lock) => $asked,
            AnyLock::Write($lock) => $asked,
            AnyLock::Read($lock) => $asked,
            $($others)*
        }
    };
}

/// A lock of any kind.
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
    /// The fair lock.
    Fair(FairLock),
    /// The non-reentrant fair lock.
    NonReentrantFair(NonReentrantFairLock),
    /// The write lock.
    Write(WriteLock),
    /// The read lock.
    Read(ReadLock),
    /// The semaphore whose permits have leases.
    Permit(ExpirableSemaphore),
    /// The one whose have none.
    Semaphore(Semaphore),
    /// A multi-lock.
    Multi(MultiLock),
    /// A Redlock.
    Red(RedLock),
}

impl LockKind {
    /// The kinds that one server grants. A latch is not a lock.
    pub const ON_ONE_SERVER: [Self; 11] = [
        Self::Reentrant,
        Self::NonReentrant,
        Self::Spin,
        Self::Fenced,
        Self::Fair,
        Self::NonReentrantFair,
        Self::Write,
        Self::Read,
        Self::Permit,
        Self::Semaphore,
        Self::Multi,
    ];

    /// A lock of this kind.
    ///
    /// # Panics
    /// If it is not a lock.
    #[must_use]
    pub fn lock(self, client: &Client, key: &str) -> AnyLock {
        match self {
            Self::Reentrant => AnyLock::Reentrant(client.lock(key)),
            Self::NonReentrant => AnyLock::NonReentrant(client.non_reentrant_lock(key)),
            Self::Spin => AnyLock::Spin(client.spin_lock(key)),
            Self::Fenced => AnyLock::Fenced(client.fenced_lock(key)),
            Self::Fair => AnyLock::Fair(client.fair_lock(key)),
            Self::NonReentrantFair => {
                AnyLock::NonReentrantFair(client.non_reentrant_fair_lock(key))
            }
            Self::Write => AnyLock::Write(client.rw_lock(key).write()),
            Self::Read => AnyLock::Read(client.rw_lock(key).read()),
            Self::Permit => AnyLock::Permit(client.expirable_semaphore(key)),
            Self::Semaphore => AnyLock::Semaphore(client.semaphore(key)),
            Self::Multi => {
                let other = format!("{key}:other");
                AnyLock::Multi(client.multi_lock([other.as_str(), key]))
            }
            Self::Red => self.lock_on(slice::from_ref(client), key),
            Self::Latch => panic!("a latch is no lock"),
        }
    }

    /// A lock of this kind, of a program with a client for each server.
    #[must_use]
    pub fn lock_on(self, program: &[Client], key: &str) -> AnyLock {
        match self {
            Self::Red => AnyLock::Red(Quorum::new(program.iter().cloned()).lock(key)),
            _ => self.lock(&program[0], key),
        }
    }

    /// On how many servers it lies.
    #[must_use]
    pub fn servers(self) -> usize {
        if self == Self::Red { SERVERS } else { 1 }
    }

    /// How many may have it at once.
    #[must_use]
    pub fn capacity(self) -> u32 {
        match self {
            Self::Permit | Self::Semaphore => PERMITS,
            Self::Read => u32::MAX,
            _ => 1,
        }
    }

    /// Does it end with a lease?
    #[must_use]
    pub fn has_lease(self) -> bool {
        self != Self::Semaphore
    }

    /// Is it a lock of one key that one owner has at a time, without readers?
    #[must_use]
    pub fn is_lock_of_one_key(self) -> bool {
        matches!(
            self,
            Self::Reentrant
                | Self::NonReentrant
                | Self::Spin
                | Self::Fenced
                | Self::Fair
                | Self::NonReentrantFair
        )
    }

    /// Is it granted in the order of arrival?
    #[must_use]
    pub fn is_fair(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair)
    }

    /// May it be entered again inside its own scope?
    #[must_use]
    pub fn is_reentrant(self) -> bool {
        !matches!(
            self,
            Self::NonReentrant | Self::NonReentrantFair | Self::Permit | Self::Semaphore
        )
    }
}

fn set<G: Leased>(
    mut acquire: Acquire<G>,
    wait: Option<Duration>,
    lease: Option<Duration>,
) -> Acquire<G> {
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
            Self::Fair(lock) => set(lock.acquire(), wait, lease).await,
            Self::NonReentrantFair(lock) => set(lock.acquire(), wait, lease).await,
            Self::Write(lock) => set(lock.acquire(), wait, lease).await,
            Self::Read(lock) => set(lock.acquire(), wait, lease).await,
            Self::Permit(semaphore) => {
                // The first one sets the number of permits, also after it was deleted.
                let setting = semaphore.try_set_permits(PERMITS);
                let _set = timeout(Duration::from_millis(50), setting).await;
                set(semaphore.acquire(), wait, lease).await.map(Guard::from)
            }
            Self::Semaphore(semaphore) => {
                let acquire = semaphore.acquire();
                let permit = match wait {
                    Some(wait) => acquire.wait(wait).await?,
                    None => acquire.await?,
                };
                Ok(permit.into())
            }
            Self::Multi(lock) => set(lock.acquire(), wait, lease).await,
            Self::Red(lock) => set(lock.acquire(), wait, lease).await,
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
            Self::Fair(lock) => lock.try_acquire().await,
            Self::NonReentrantFair(lock) => lock.try_acquire().await,
            Self::Write(lock) => lock.try_acquire().await,
            Self::Read(lock) => lock.try_acquire().await,
            Self::Permit(semaphore) => Ok(semaphore.try_acquire().await?.map(Guard::from)),
            Self::Semaphore(semaphore) => Ok(semaphore.try_acquire().await?.map(Guard::from)),
            Self::Multi(lock) => lock.try_acquire().await,
            Self::Red(lock) => lock.try_acquire().await,
        }
    }

    /// Waits until nobody holds it.
    ///
    /// # Errors
    /// Those of the lock.
    ///
    /// # Panics
    /// If it is not a lock of one key.
    pub async fn until_free(&self, wait: Option<Duration>) -> Result<(), Error> {
        let until_free = of_one_key!(self, lock => lock.until_free(), {
            AnyLock::Permit(_) | AnyLock::Semaphore(_) | AnyLock::Multi(_) | AnyLock::Red(_) => {
                panic!("no lock of one key")
            }
        });
        match wait {
            Some(wait) => until_free.wait(wait).await,
            None => until_free.await,
        }
    }

    /// The holders.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        of_one_key!(self, lock => lock.holders().await, {
            AnyLock::Permit(_) | AnyLock::Semaphore(_) => Ok(Vec::new()),
            AnyLock::Multi(lock) => lock.holders().await,
            AnyLock::Red(lock) => lock.holders().await,
        })
    }

    /// How often those who hold it have entered it; of locks that do not tell, 0.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn hold_count(&self) -> Result<u64, Error> {
        of_one_key!(self, lock => lock.hold_count().await, {
            AnyLock::Permit(_) | AnyLock::Semaphore(_) | AnyLock::Multi(_) | AnyLock::Red(_) => Ok(0),
        })
    }

    /// What is left of its lease.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        of_one_key!(self, lock => lock.remaining_lease().await, {
            AnyLock::Permit(_) | AnyLock::Semaphore(_) => Ok(None),
            AnyLock::Multi(lock) => lock.remaining_lease().await,
            AnyLock::Red(lock) => lock.remaining_lease().await,
        })
    }

    /// Frees it, no matter which owner holds it.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn force_release(&self) -> Result<bool, Error> {
        of_one_key!(self, lock => lock.force_release().await, {
            AnyLock::Permit(semaphore) => semaphore.delete().await,
            AnyLock::Semaphore(semaphore) => semaphore.delete().await,
            AnyLock::Multi(lock) => lock.force_release().await,
            AnyLock::Red(lock) => lock.force_release().await,
        })
    }
}
