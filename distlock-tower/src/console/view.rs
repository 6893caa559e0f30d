//! What the console shows, as JSON. Times are milliseconds since 1970.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use distlock::{ClientReport, Error, KeyReport, Primitive};
use serde::Serialize;
use tokio::time::Instant;

use super::own::{Own, OwnHold, OwnWait};
use super::problems::Problem;

/// How many holders, and how many waiters, the list has of one lock. The page of the lock has all.
const LISTED: usize = 5;

/// Milliseconds since 1970.
pub(super) type Millis = u64;

/// The time of day, counted on from the start of the console. It does not jump when somebody sets the clock of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    start_millis: Millis,
}

impl Clock {
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            start: Instant::now(),
            start_millis: since.map_or(0, |since| millis(since.as_millis())),
        }
    }

    pub(super) fn now(&self) -> Millis {
        self.start_millis
            .saturating_add(millis(self.start.elapsed().as_millis()))
    }
}

pub(super) fn millis(millis: u128) -> Millis {
    millis.try_into().unwrap_or(Millis::MAX)
}

/// The state of the server at one look, with what the console remembers.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The number of the look; 0 before the first one.
    pub(super) look: u64,
    pub(super) locks: BTreeMap<String, Arc<Lock>>,
    /// There may be more locks than these.
    pub(super) is_cut: bool,
    pub(super) trouble: Option<Trouble>,
    pub(super) is_closed: bool,
    pub(super) missing_rights: BTreeSet<&'static str>,
    pub(super) contention: Vec<Sample>,
    pub(super) problems: Vec<Problem>,
    pub(super) own: Own,
}

/// A lock, a semaphore or a latch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Lock {
    pub(super) key: String,
    pub(super) primitive: String,
    pub(super) holders: Vec<Holder>,
    pub(super) holder_total: u64,
    pub(super) waiters: Vec<Waiter>,
    pub(super) waiter_total: u64,
    /// How many wait, as far as the server knows: owners in its queue, or processes that listen.
    pub(super) waiting: u64,
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
    /// When the console saw it first.
    pub(super) since: Millis,
    /// Whether the hold began at `since`, and not before somebody watched.
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
            name: client.name.clone(),
            address: client.address.clone(),
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
}

/// Why the console could not look.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Trouble {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

impl Trouble {
    pub(super) fn new(error: &Error) -> Self {
        let kind = match error {
            Error::Denied { .. } | Error::LoginDenied { .. } => "denied",
            error if error.is_unavailable() => "unavailable",
            _ => "failed",
        };
        let text = error.to_string();
        Self { kind, text }
    }
}

/// Whether a lock of this form can be freed by force.
pub(super) fn can_be_released(report: &KeyReport) -> bool {
    let is_lock = matches!(
        report.primitive,
        Primitive::Lock
            | Primitive::FairLock
            | Primitive::FencedLock
            | Primitive::ReadLock
            | Primitive::WriteLock
    );
    is_lock && report.is_held()
}

/// What an answer of `api/locks` and an event contain.
#[derive(Serialize)]
pub(super) struct Update<'a> {
    now: Millis,
    look: u64,
    /// Whether `locks` are all locks, and not only those that have changed since the event before.
    is_whole: bool,
    locks: Vec<Cow<'a, Lock>>,
    /// The keys that were in the events before, and have gone.
    gone: Vec<&'a str>,
    pattern: &'a str,
    max_keys: u32,
    is_cut: bool,
    is_closed: bool,
    trouble: Option<&'a Trouble>,
    missing_rights: &'a BTreeSet<&'static str>,
    problems: &'a [Problem],
    /// What this process holds and waits for itself.
    own: &'a Own,
    contention: &'a [Sample],
    may_force_release: bool,
}

/// The time, and the settings that a page has to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) now: Millis,
    pub(super) pattern: &'a str,
    pub(super) max_keys: u32,
    pub(super) may_force_release: bool,
}

impl View {
    /// All locks, or those that have changed since an earlier view.
    pub(super) fn update<'a>(&'a self, earlier: Option<&'a View>, shown: Shown<'a>) -> Update<'a> {
        let known = earlier.map_or(0, |earlier| earlier.look);
        let changed = self.locks.values().filter(|lock| lock.changed > known);
        let gone = earlier.into_iter().flat_map(|earlier| earlier.locks.keys());
        let gone = gone.filter(|key| !self.locks.contains_key(*key));
        Update {
            now: shown.now,
            look: self.look,
            is_whole: earlier.is_none(),
            locks: changed.map(|lock| lock.listed()).collect(),
            gone: gone.map(String::as_str).collect(),
            pattern: shown.pattern,
            max_keys: shown.max_keys,
            is_cut: self.is_cut,
            is_closed: self.is_closed,
            trouble: self.trouble.as_ref(),
            missing_rights: &self.missing_rights,
            problems: &self.problems,
            own: &self.own,
            contention: &self.contention,
            may_force_release: shown.may_force_release,
        }
    }
}

impl Lock {
    /// The lock with the first of its holders and waiters.
    fn listed(&self) -> Cow<'_, Self> {
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
    pub(super) until: Millis,
    /// Whether somebody watched when it began and when it ended.
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
    /// Nobody watched when it ended.
    Unknown,
}

/// The answer of `api/locks/{key}`.
#[derive(Serialize)]
pub(super) struct Detail<'a> {
    pub(super) now: Millis,
    pub(super) key: &'a str,
    /// `null` if there is no lock under the key.
    pub(super) lock: Option<&'a Lock>,
    /// Whether the key has data that is no lock.
    pub(super) has_other_data: bool,
    /// The holds that have ended, the last one first.
    pub(super) past: Vec<PastHold>,
    /// How many waited, and since when so many.
    pub(super) waiting: Vec<(Millis, u64)>,
    /// The holds and the waits of this process for the key.
    pub(super) own_holds: Vec<&'a OwnHold>,
    pub(super) own_waits: Vec<&'a OwnWait>,
    pub(super) is_closed: bool,
    pub(super) trouble: Option<Trouble>,
    pub(super) may_force_release: bool,
}
