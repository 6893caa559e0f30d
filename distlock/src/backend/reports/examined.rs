//! What a server has under a key, whichever primitive that is, and the report that follows from it. Clients that the server
//! knows by name.

use std::time::Duration;

use uuid::Uuid;

use super::{HolderReport, KeyReport, PermitsReport, Primitive, WaiterReport};
use crate::resource::key::Key;

/// What is under a key, and under the keys that belong to it, at one moment. The stored form of a primitive does not say which
/// one it is, so [`Examined::into_report`] decides that for all backends.
#[derive(Debug)]
pub(crate) struct Examined {
    /// The value under the key itself.
    pub(crate) value: ValueSeen,
    /// The time until the key expires; `None` if it does not, or does not exist.
    pub(crate) ttl: Option<Duration>,
    /// The live waiters of a fair lock, in order.
    pub(crate) queue: Listed<WaiterReport>,
    /// The acquired permits of an expirable semaphore.
    pub(crate) permits: Listed<HolderReport>,
    /// How many permits of an expirable semaphore have ended and were not yet taken back.
    pub(crate) ended_permits: u64,
    /// The owners that have permits of a plain semaphore.
    pub(crate) permit_owners: Listed<HolderReport>,
    /// The last fencing token.
    pub(crate) token: Option<u64>,
    /// Who listens, or the right without which the user may not ask.
    pub(crate) listeners: Result<Listeners, &'static str>,
}

/// The value under a key.
#[derive(Debug)]
pub(crate) enum ValueSeen {
    /// There is none.
    Nothing,
    /// The owners of a lock.
    Lock(Listed<HolderReport>),
    /// The owners of a read/write lock.
    ReadWrite {
        /// Whether its mode is that of a writer.
        is_written: bool,
        /// The owners.
        holders: Listed<HolderReport>,
    },
    /// A number.
    Number(i64),
    /// A value that no primitive has.
    Other,
}

/// The first items of a list, and the number of all.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    /// At most [`KeyReport::MAX_LISTED`](KeyReport::MAX_LISTED), or a few more.
    pub(crate) items: Vec<T>,
    /// The number of all items.
    pub(crate) total: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            total: 0,
        }
    }
}

impl<T> Listed<T> {
    pub(crate) fn first(items: impl ExactSizeIterator<Item = T>, most: usize) -> Self {
        Self {
            total: items.len() as u64,
            items: items.take(most).collect(),
        }
    }
}

/// How many connections listen to each of the channels that a key may have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listeners {
    /// To that of a lock.
    pub(crate) lock: u64,
    /// To that of a read/write lock.
    pub(crate) read_write: u64,
    /// To that of a semaphore.
    pub(crate) semaphore: u64,
    /// To that of a latch.
    pub(crate) latch: u64,
}

impl Examined {
    /// The report on a key. The names of clients are not known here, and of the holds of this client the server may not have
    /// heard the last counts.
    pub(crate) fn into_report(self, key: &Key) -> KeyReport {
        let primitive = self.primitive();
        let permits = self.number_of_permits(primitive);
        let count = match self.value {
            ValueSeen::Number(number) => Some(number),
            _ => None,
        };
        let is_count = matches!(primitive, Primitive::CountDownLatch | Primitive::Number);
        let waiters = self.queue.items;
        let listeners = self
            .listeners
            .map(|listeners| listening(&listeners, primitive, &waiters));
        let mut holders = match self.value {
            ValueSeen::Lock(holders) | ValueSeen::ReadWrite { holders, .. } => holders,
            _ if primitive == Primitive::ExpirableSemaphore => self.permits,
            _ if primitive == Primitive::Semaphore => self.permit_owners,
            _ => Listed::default(),
        };
        holders
            .items
            .sort_unstable_by(|one, two| one.owner.cmp(&two.owner));
        // A page of `HSCAN` may have some fields more than were asked for.
        holders.items.truncate(KeyReport::MAX_LISTED);
        KeyReport {
            key: key.text().to_owned(),
            primitive,
            holders: holders.items,
            holder_total: holders.total,
            waiter_total: self.queue.total,
            waiters,
            expires_in: self.ttl,
            permits,
            count: count.filter(|_| is_count),
            fencing_token: self.token,
            listeners: listeners.ok(),
            missing_rights: listeners.err().into_iter().collect(),
            fault: None,
        }
    }

    /// Which primitive lives under the key.
    fn primitive(&self) -> Primitive {
        let is_waited_for = self.queue.total > 0;
        match &self.value {
            ValueSeen::Nothing | ValueSeen::Lock(_) if is_waited_for => Primitive::FairLock,
            ValueSeen::Nothing | ValueSeen::Lock(_) if self.token.is_some() => {
                Primitive::FencedLock
            }
            ValueSeen::Nothing => Primitive::Nothing,
            ValueSeen::Lock(_) => Primitive::Lock,
            ValueSeen::ReadWrite {
                is_written: true, ..
            } => Primitive::WriteLock,
            ValueSeen::ReadWrite { .. } => Primitive::ReadLock,
            ValueSeen::Number(_) => self.primitive_of_a_number(),
            ValueSeen::Other => Primitive::OtherData,
        }
    }

    /// A semaphore and a latch are a number each. What is stored beside it, or who listens, tells them apart.
    fn primitive_of_a_number(&self) -> Primitive {
        let listeners = self.listeners.unwrap_or_default();
        // What is stored comes first: anybody can listen to a channel.
        if self.permits.total + self.ended_permits > 0 {
            Primitive::ExpirableSemaphore
        } else if self.permit_owners.total > 0 {
            Primitive::Semaphore
        } else if listeners.latch > 0 {
            Primitive::CountDownLatch
        } else if listeners.semaphore > 0 {
            Primitive::Semaphore
        } else {
            Primitive::Number
        }
    }

    fn number_of_permits(&self, primitive: Primitive) -> Option<PermitsReport> {
        let ValueSeen::Number(number) = self.value else {
            return None;
        };
        match primitive {
            Primitive::ExpirableSemaphore => Some(PermitsReport {
                // Permits that have ended are free, and are taken back by the next change.
                free: number.saturating_add_unsigned(self.ended_permits),
                taken: self.permits.total,
            }),
            Primitive::Semaphore => {
                let owners = self.permit_owners.items.iter();
                Some(PermitsReport {
                    free: number,
                    taken: owners.map(|owner| owner.count).sum(),
                })
            }
            _ => None,
        }
    }
}

/// How many listen to the messages of a key. Where nothing lives, somebody may still listen to any of the channels.
fn listening(listeners: &Listeners, primitive: Primitive, waiters: &[WaiterReport]) -> u64 {
    let Listeners {
        lock,
        read_write,
        semaphore,
        latch,
    } = *listeners;
    match primitive {
        Primitive::Lock | Primitive::FencedLock => lock,
        Primitive::FairLock => {
            // Each of them listens to a separate channel.
            let mut clients: Vec<_> = waiters.iter().map(WaiterReport::client_id).collect();
            clients.sort_unstable();
            clients.dedup();
            lock + clients.len() as u64
        }
        Primitive::ReadLock | Primitive::WriteLock => read_write,
        Primitive::Semaphore | Primitive::ExpirableSemaphore => semaphore,
        Primitive::CountDownLatch => latch,
        Primitive::Nothing | Primitive::Number => lock + read_write + semaphore + latch,
        Primitive::OtherData | Primitive::Unreadable => 0,
    }
}

/// A client that a server knows by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClient {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The address from which it is connected.
    pub address: String,
}
