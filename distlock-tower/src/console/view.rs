//! What the console shows, as JSON. Times are milliseconds since 1970.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use distlock::Error;
use serde::Serialize;

use super::clock::Millis;
use super::lock::{Lock, PastHold, Sample};
use super::own::{Own, OwnHold, OwnWait};
use super::problems::Problem;

/// The state of the server at one look, with what the console remembers.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The number of the look; 0 before the first one.
    pub(super) look: u64,
    pub(super) locks: BTreeMap<String, Arc<Lock>>,
    /// There may be more locks than these.
    pub(super) is_cut: bool,
    pub(super) trouble: Option<Trouble>,
    pub(super) missing_rights: BTreeSet<&'static str>,
    pub(super) contention: Vec<Sample>,
    pub(super) problems: Vec<Problem>,
    pub(super) own: Own,
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

    /// The same, if a part was seen nevertheless.
    pub(super) fn of_a_part(error: &Error) -> Self {
        Self {
            kind: "partial",
            text: error.to_string(),
        }
    }
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
    /// Where the locks are, in which environment, and which version of the console shows them.
    server: String,
    prefix: String,
    environment: Option<&'a str>,
    version: &'static str,
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
#[derive(Clone, Debug)]
pub(super) struct Shown<'a> {
    pub(super) now: Millis,
    pub(super) server: String,
    pub(super) prefix: String,
    pub(super) environment: Option<&'a str>,
    pub(super) pattern: &'a str,
    pub(super) max_keys: u32,
    pub(super) may_force_release: bool,
    pub(super) is_closed: bool,
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
            server: shown.server,
            prefix: shown.prefix,
            environment: shown.environment,
            version: env!("CARGO_PKG_VERSION"),
            pattern: shown.pattern,
            max_keys: shown.max_keys,
            is_cut: self.is_cut,
            is_closed: shown.is_closed,
            trouble: self.trouble.as_ref(),
            missing_rights: &self.missing_rights,
            problems: &self.problems,
            own: &self.own,
            contention: &self.contention,
            may_force_release: shown.may_force_release,
        }
    }
}

/// The answer of `api/locks/{key}`.
#[derive(Serialize)]
pub(super) struct Detail<'a> {
    pub(super) now: Millis,
    pub(super) key: &'a str,
    /// The key as people can see it.
    pub(super) shown: String,
    /// `null` if there is no lock under the key.
    pub(super) lock: Option<&'a Lock>,
    /// Whether the key has data that is no lock.
    pub(super) has_other_data: bool,
    /// The holds that have ended, the last one first.
    pub(super) past: Vec<PastHold>,
    /// How many waited, and since when that number.
    pub(super) waiting: Vec<(Millis, u64)>,
    /// The holds and the waits of this process for the key, and how many there are, as in [`Own`].
    pub(super) own_holds: Vec<OwnHold>,
    pub(super) own_hold_total: usize,
    pub(super) own_waits: Vec<OwnWait>,
    pub(super) own_wait_total: usize,
    pub(super) is_closed: bool,
    pub(super) trouble: Option<Trouble>,
    pub(super) may_force_release: bool,
}
