//! A lock as the console shows it, with its holders and waiters, and what the console remembers of it.

use std::borrow::Cow;

use distlock::{ClientReport, KeyReport, Primitive, visible};
use serde::Serialize;

use super::clock::Millis;

/// How many holders, and how many waiters, the list has of one lock. The page of the lock has all.
const LISTED: usize = 5;

/// A lock, a semaphore or a latch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Lock {
    pub(super) key: String,
    /// The key as people can see it.
    pub(super) shown: String,
    pub(super) primitive: String,
    pub(super) holders: Vec<Holder>,
    pub(super) holder_total: u64,
    pub(super) waiters: Vec<Waiter>,
    pub(super) waiter_total: u64,
    /// How many wait: owners in the server's queue, or processes that listen and the acquisitions of this process.
    pub(super) waiting: u64,
    /// How many connections listen to its messages; `null` if the user may not ask.
    pub(super) listening: Option<u64>,
    pub(super) permits: Option<Permits>,
    pub(super) count: Option<i64>,
    pub(super) fencing_token: Option<u64>,
    /// Why nothing is known of a key that cannot be read.
    pub(super) fault: Option<String>,
    pub(super) expires_at: Option<Millis>,
    pub(super) can_be_released: bool,
    /// The most that waited in each 10 s of the last minutes, the oldest first. Empty if nobody has waited.
    pub(super) contention: Vec<u64>,
    /// The look at which something other than the time has changed.
    #[serde(skip)]
    pub(super) changed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Holder {
    pub(super) owner: String,
    pub(super) client: Option<Named>,
    pub(super) count: u64,
    /// When the console saw it first, or when this process acquired it.
    pub(super) since: Millis,
    /// Whether the hold began at `since` or shortly before.
    pub(super) is_since_exact: bool,
    pub(super) lease_ends: Option<Millis>,
    /// The longest lease that was left to it at any look.
    pub(super) lease_millis: Option<Millis>,
    pub(super) is_released: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Waiter {
    pub(super) owner: String,
    pub(super) client: Option<Named>,
    pub(super) since: Millis,
    pub(super) place_ends: Millis,
}

/// A client, as the server knows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) address: String,
}

impl Named {
    pub(super) fn new(client: &ClientReport) -> Self {
        Self {
            name: visible(&client.name).into_owned(),
            address: visible(&client.address).into_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Permits {
    pub(super) free: i64,
    pub(super) taken: u64,
}

/// How much contention there was at a look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Sample {
    pub(super) at: Millis,
    /// How many keys were held.
    pub(super) held: u64,
    /// How many waited, for all keys together.
    pub(super) waiting: u64,
    /// How many connections listened, for all keys together.
    pub(super) listening: u64,
}

impl Lock {
    pub(super) fn has_holder(&self, owner: &str) -> bool {
        self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// The lock with the first of its holders and waiters.
    pub(super) fn listed(&self) -> Cow<'_, Self> {
        if self.holders.len() <= LISTED && self.waiters.len() <= LISTED {
            return Cow::Borrowed(self);
        }
        let mut listed = self.clone();
        listed.holders.truncate(LISTED);
        listed.waiters.truncate(LISTED);
        Cow::Owned(listed)
    }
}

/// A hold that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PastHold {
    pub(super) owner: String,
    pub(super) client: Option<Named>,
    pub(super) since: Millis,
    /// The beginning of the last look that saw it. It ended between then and `until`.
    pub(super) last_seen: Millis,
    /// The end of the first look that did not see it, or the moment at which this console freed it.
    pub(super) until: Millis,
    /// Whether it began shortly before `since`, and ended shortly before `until`.
    pub(super) is_exact: bool,
    /// The most that waited at one look while it was held.
    pub(super) most_waiting: u64,
    pub(super) end: End,
    /// Who freed it by force.
    pub(super) by: Option<String>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Released,
    /// Its lease was over before it was gone.
    LeaseRanOut,
    ForceReleased,
    /// Its lease was over before it was gone, or was renewed while no look went to the key.
    Unknown,
}

/// Whether what lives here can be freed by force: a lock that is held, and a semaphore or a latch, which is deleted.
pub(super) fn can_be_released(report: &KeyReport) -> bool {
    match report.primitive {
        Primitive::Nothing | Primitive::OtherData | Primitive::Unreadable => false,
        _ => report.is_held() || number(report).is_some(),
    }
}

/// The number in the server of a semaphore or a latch; `None` for a lock.
pub(super) fn number(report: &KeyReport) -> Option<i64> {
    report.permits.map(|permits| permits.free).or(report.count)
}
