//! What the process that has the console holds and waits for itself, with the lines of its code.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{BlockedBy, HoldSnapshot, Kind, Snapshot, WaitSnapshot, visible};
use serde::Serialize;

use super::clock::{Millis, millis};

/// How many holds, and how many waits, are shown at most.
pub(super) const MOST: usize = 100;

/// Two snapshots show the same moment with so much difference at most.
const TOLERANCE: Millis = 1_000;

/// The holds and waits of this process's client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Own {
    /// The oldest first, at most [`MOST`].
    pub(super) holds: Vec<OwnHold>,
    pub(super) hold_total: usize,
    /// Those that have waited longest first, at most [`MOST`].
    pub(super) waits: Vec<OwnWait>,
    pub(super) wait_total: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OwnHold {
    pub(super) key: String,
    /// The key as people can see it.
    pub(super) shown: String,
    pub(super) kind: String,
    pub(super) owner: String,
    pub(super) since: Millis,
    /// `null` for permits without a lease.
    pub(super) lease_ends: Option<Millis>,
    /// How many guards it has.
    pub(super) count: u32,
    /// The file and the line where it was acquired.
    pub(super) call_site: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OwnWait {
    pub(super) key: String,
    /// The key as people can see it.
    pub(super) shown: String,
    pub(super) kind: String,
    pub(super) since: Millis,
    /// When it gives up; `null` if it waits without limit.
    pub(super) gives_up: Option<Millis>,
    /// How many of this client are before it in the queue of the key.
    pub(super) ahead: usize,
    pub(super) blocked_by: Blocker,
    /// The keys that are held around it, as people can see them.
    pub(super) inside: Vec<String>,
    /// The file and the line that waits.
    pub(super) call_site: String,
}

/// What a wait waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub(super) enum Blocker {
    /// A hold of this process.
    OwnHold {
        owner: String,
        call_site: String,
    },
    /// Another client, in this process or in another one.
    OtherClient {
        lease_ends: Millis,
    },
    Unknown,
}

/// How many wait for a key in this process. The server knows at most one of them, unless it keeps them in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnWaiters {
    count: u64,
    /// Whether the server counts this process among those that listen. Only spin locks do not. A process that has waited for
    /// milliseconds behind one of its own holds may not listen yet; the sum may then be too small by one.
    is_listening: bool,
}

impl OwnWaiters {
    /// Those of all keys.
    pub(super) fn of(snapshot: &Snapshot) -> HashMap<String, Self> {
        let mut all: HashMap<String, Self> = HashMap::new();
        for wait in &snapshot.waits {
            let own = all.entry(wait.key.clone()).or_default();
            own.count += 1;
            own.is_listening |= wait.kind != Kind::Spin;
        }
        all
    }

    /// How many wait in all processes together, as far as it is known.
    pub(super) fn with(self, in_queue: u64, listeners: u64) -> u64 {
        let others = listeners.saturating_sub(u64::from(self.is_listening));
        in_queue.max(others + self.count)
    }
}

/// The owner of a hold, by the name that the server has for the holder: a writer's has an end that marks the writer.
pub(super) fn owner(holder: &str) -> &str {
    holder.strip_suffix(":write").unwrap_or(holder)
}

/// Since when this process has each of its holds, by [`owner`].
pub(super) fn since(now: Millis, snapshot: &Snapshot) -> HashMap<String, Millis> {
    let holds = snapshot.holds.iter();
    let since = holds.map(|hold| (hold.owner.to_string(), before_now(now, hold.held_for)));
    since.collect()
}

impl Own {
    /// A snapshot as the console shows it. `before` is what it showed last, so that times do not seem to change.
    pub(super) fn new(now: Millis, snapshot: &Snapshot, before: &Self) -> Self {
        let holds = snapshot.holds.iter().take(MOST);
        let waits = snapshot.waits.iter().take(MOST);
        Self {
            holds: holds.map(|hold| own_hold(now, hold, before)).collect(),
            hold_total: snapshot.holds.len(),
            waits: waits.map(|wait| own_wait(now, wait, before)).collect(),
            wait_total: snapshot.waits.len(),
        }
    }
}

fn own_hold(now: Millis, hold: &HoldSnapshot, before: &Own) -> OwnHold {
    let owner = hold.owner.to_string();
    let known = before.holds.iter().filter(|known| known.owner == owner);
    let since = known.clone().map(|known| known.since);
    let ends = known.filter_map(|known| known.lease_ends);
    OwnHold {
        key: hold.key.clone(),
        shown: visible(&hold.key).into_owned(),
        kind: hold.kind.to_string(),
        since: same(before_now(now, hold.held_for), since),
        lease_ends: hold.lease_left.map(|left| same(after_now(now, left), ends)),
        count: hold.count,
        call_site: hold.call_site.to_string(),
        owner,
    }
}

fn own_wait(now: Millis, wait: &WaitSnapshot, before: &Own) -> OwnWait {
    let call_site = wait.call_site.to_string();
    let known = before.waits.iter();
    let known = known.filter(|known| known.key == wait.key && known.call_site == call_site);
    let since = known.clone().map(|known| known.since);
    let gives_up = known.clone().filter_map(|known| known.gives_up);
    let ends = known.filter_map(|known| match known.blocked_by {
        Blocker::OtherClient { lease_ends } => Some(lease_ends),
        _ => None,
    });
    let blocked_by = match wait.blocked_by {
        BlockedBy::OwnHold {
            owner, call_site, ..
        } => Blocker::OwnHold {
            owner: owner.to_string(),
            call_site: call_site.to_string(),
        },
        BlockedBy::OtherClient { lease_left, .. } => Blocker::OtherClient {
            lease_ends: same(after_now(now, lease_left), ends),
        },
        _ => Blocker::Unknown,
    };
    OwnWait {
        key: wait.key.clone(),
        shown: visible(&wait.key).into_owned(),
        kind: wait.kind.to_string(),
        since: same(before_now(now, wait.waited), since),
        gives_up: wait
            .wait_left
            .map(|left| same(after_now(now, left), gives_up)),
        ahead: wait.ahead,
        blocked_by,
        inside: wait
            .inside
            .iter()
            .map(|key| visible(key).into_owned())
            .collect(),
        call_site,
    }
}

pub(super) fn before_now(now: Millis, ago: Duration) -> Millis {
    now.saturating_sub(millis(ago.as_millis()))
}

fn after_now(now: Millis, left: Duration) -> Millis {
    now.saturating_add(millis(left.as_millis()))
}

/// The time, or a known one that is nearly the same.
fn same(time: Millis, mut known: impl Iterator<Item = Millis>) -> Millis {
    known
        .find(|known| known.abs_diff(time) <= TOLERANCE)
        .unwrap_or(time)
}
