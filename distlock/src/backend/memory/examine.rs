//! What lives under a key, whichever primitive that is, and which keys there are.

use std::sync::Arc;

use super::families::semaphore;
use super::store::{Name, State, Value};
use crate::backend::reports::{HolderReport, KeyReport, WaiterReport};
use crate::backend::{
    Examined, Listed, Listeners, ScanCursor, ScanFilter, ScanPosition, Scanned, Sweep, ValueSeen,
    glob,
};
use crate::clock::Tick;
use crate::resource::key::Key;
use crate::resource::kind::Family;

/// What the server of this process is called.
pub(super) const HERE: &str = "memory";

pub(super) fn examine(state: &State, key: &Key, now: Tick) -> KeyReport {
    let name = key.name();
    let value = state.values.get(name).map(|entry| &entry.value);
    let left = |end: Tick| (end != Tick::NEVER).then(|| end.left(now));
    let (acquired, ended_permits) = match value {
        Some(Value::Permits(permits)) => permits.acquired(now),
        _ => (Vec::new(), 0),
    };
    let acquired = acquired.into_iter();
    let permits =
        acquired.map(|(id, end)| HolderReport::new(id.to_string().as_bytes(), 1, left(end)));
    let places = state.queues.get(name).into_iter().flatten();
    let places = places.filter(|(_, dead_at)| *dead_at > now);
    let places: Vec<_> = places
        .map(|(owner, dead_at)| WaiterReport::new(owner.text().as_bytes(), dead_at.left(now)))
        .collect();
    let permit_owners = semaphore::permits_by_owner(state, key).into_iter();
    let permit_owners =
        permit_owners.map(|(owner, permits)| HolderReport::new(&owner, permits, None));
    let listeners = |family| state.subscribers(family, name);
    let examined = Examined {
        value: value_seen(state, name, value, now),
        ttl: state.ttl(name, now),
        queue: first(places.into_iter()),
        permits: first(permits),
        ended_permits,
        permit_owners: first(permit_owners),
        token: state.tokens.last(name),
        listeners: Ok(Listeners {
            lock: listeners(Family::Lock),
            read_write: listeners(Family::ReadWrite),
            semaphore: listeners(Family::Semaphore) + listeners(Family::Permit),
            latch: listeners(Family::Latch),
        }),
    };
    examined.into_report(key)
}

fn first<T>(items: impl ExactSizeIterator<Item = T>) -> Listed<T> {
    Listed::first(items, KeyReport::MAX_LISTED)
}

fn value_seen(state: &State, name: &Name, value: Option<&Value>, now: Tick) -> ValueSeen {
    let ttl = state.ttl(name, now);
    match value {
        None => ValueSeen::Nothing,
        Some(Value::Lock(held)) => {
            let (owner, count) = held.shown();
            let holder = HolderReport::new(owner.as_bytes(), count, ttl);
            ValueSeen::Lock(first([holder].into_iter()))
        }
        Some(Value::ReadWrite(holders)) => {
            let alive = holders.alive(now).map(|(owner, count, ends)| {
                let left = ends.map_or(ttl, |ends| Some(ends.left(now)));
                HolderReport::new(owner.as_bytes(), count.into(), left)
            });
            let alive: Vec<_> = alive.collect();
            ValueSeen::ReadWrite {
                is_written: holders.has_writer(),
                holders: first(alive.into_iter()),
            }
        }
        Some(Value::Number(number)) => ValueSeen::Number(*number),
        Some(Value::Permits(permits)) => ValueSeen::Number(permits.free()),
        // What belongs to another key.
        Some(
            Value::Turn(_)
            | Value::ReadersWait
            | Value::Mark(_)
            | Value::Opened(_)
            | Value::Owners(_),
        ) => ValueSeen::Other,
    }
}

/// The names in alphabetical order, from the last one of the former page on. The keys are in no order, so each page goes
/// through all of them.
pub(super) fn scan(
    state: &State,
    position: &ScanPosition,
    ScanFilter { pattern, sweep }: ScanFilter<'_>,
    most: u32,
) -> Scanned {
    let after = position.at.as_ref().map(|at| at.next.as_str());
    let is_primitive = |value: &Value| match sweep {
        Sweep::Locks => matches!(value, Value::Lock(_) | Value::ReadWrite(_)),
        // A look at one costs nothing here.
        Sweep::Numbers | Sweep::NumbersInUse => {
            matches!(value, Value::Number(_) | Value::Permits(_))
        }
    };
    let names = state.values.iter();
    let names = names.filter(|(name, entry)| {
        is_primitive(&entry.value)
            && after.is_none_or(|after| &***name > after)
            && glob::matches(pattern.as_bytes(), name.as_bytes())
    });
    let mut names: Vec<&Arc<str>> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    let most = most as usize;
    let is_last = names.len() <= most;
    names.truncate(most);
    let next = names.last().filter(|_| !is_last).map(|last| ScanPosition {
        done: Vec::new(),
        at: Some(ScanCursor {
            server: HERE.to_owned(),
            epoch: 0,
            next: last.to_string(),
        }),
    });
    Scanned {
        looked_at: names.len() as u64,
        no_text: Vec::new(),
        names: names.into_iter().map(ToString::to_string).collect(),
        next,
    }
}
