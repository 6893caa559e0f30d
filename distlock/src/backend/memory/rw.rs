//! The read and the write lock in memory: Redisson's `RReadWriteLock`, with a turn for writers among our own clients.

use std::collections::BTreeMap;
use std::time::Duration;

use super::store::{Name, State, Value};
use crate::backend::{Attempt, Attempted, Fault, Inspected, Released, Renewal, Target};
use crate::clock::Tick;
use crate::config::{READERS_PATIENCE, READERS_TURN};
use crate::key::{Key, Resource};
use crate::kind::{Family, Kind};
use crate::owner::Owner;

/// Who reads and who writes. With a writer the mode is `write`, and the readers are those that it has let in.
#[derive(Debug, Default)]
pub(super) struct ReadWrite {
    writer: Option<(Owner, u32)>,
    readers: BTreeMap<Owner, Reader>,
}

/// A reader: how often it has entered, and when the timeouts of all its entries end.
#[derive(Clone, Copy, Debug)]
struct Reader {
    count: u32,
    ends: Tick,
}

/// Who goes first among our own clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// This writer, before any further reader.
    Writer(Owner),
    /// Readers, before any further writer that waits.
    Readers,
}

impl ReadWrite {
    pub(super) fn holders(&self) -> impl Iterator<Item = (Vec<u8>, u64)> {
        let writer = self.writer.iter().map(written);
        let reader = |(owner, reader): (&Owner, &Reader)| (owner.text(), reader.count);
        let holders = self.readers.iter().map(reader).chain(writer);
        holders.map(|(name, count)| (name.into_bytes(), u64::from(count)))
    }

    fn is_written_by(&self, owner: Owner) -> bool {
        self.writer.is_some_and(|(writer, _)| writer == owner)
    }

    /// Drops readers whose timeouts have ended, and answers until when the others live.
    fn settle(&mut self, now: Tick) -> Option<Tick> {
        self.readers.retain(|_, reader| reader.ends > now);
        self.readers.values().map(|reader| reader.ends).max()
    }
}

/// A writer's name has its mode behind the number.
fn written((owner, count): &(Owner, u32)) -> (String, u32) {
    (format!("{owner}:write"), *count)
}

fn holders<'a>(state: &'a mut State, key: &Key) -> Option<&'a mut ReadWrite> {
    match &mut state.values.get_mut(key.name())?.value {
        Value::ReadWrite(holders) => Some(holders),
        _ => None,
    }
}

/// What a key of another kind means for an attempt: a lock is held by another, what is no lock is in the wrong place.
fn stranger(state: &State, key: &Key, now: Tick) -> Option<Result<Attempted, Fault>> {
    match &state.values.get(key.name())?.value {
        Value::ReadWrite(_) => None,
        Value::Lock(_) => Some(Ok(Attempted::Held {
            ttl: state.ttl(key.name(), now),
        })),
        _ => Some(Err(Fault::WrongType)),
    }
}

fn turn_name(key: &Key) -> Name {
    format!("{{{}}}:rwlock_turn", key.name()).into()
}

fn mark_name(key: &Key) -> Name {
    format!("{{{}}}:rwlock_readers_wait", key.name()).into()
}

fn turn(state: &State, key: &Key) -> Option<Turn> {
    match state.values.get(&turn_name(key))?.value {
        Value::Turn(turn) => Some(turn),
        _ => None,
    }
}

/// Keeps a turn or a mark for a while from `now`.
fn keep(state: &mut State, name: &Name, value: Value, (now, time): (Tick, Duration)) {
    state.insert(name, value, now.after(time));
}

pub(super) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    (client, now): (u64, Tick),
) -> Result<Attempted, Fault> {
    if let Some(strange) = stranger(state, &attempt.target.resource.key, now) {
        return strange;
    }
    match attempt.target.resource.kind {
        Kind::Write => Ok(write(state, attempt, (client, now))),
        _ => Ok(read(state, attempt, now)),
    }
}

fn granted() -> Attempted {
    Attempted::Granted { token: None }
}

fn read(state: &mut State, attempt: &Attempt, now: Tick) -> Attempted {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let turn = turn(state, key);
    let found = holders(state, key);
    let (is_in, is_written) = found.map_or((false, false), |found| {
        let reads = found.readers.get(owner);
        let again = reads.is_some_and(|reader| reader.ends > now);
        let inside = attempt
            .inside
            .is_some_and(|around| found.is_written_by(around));
        (again || inside, found.writer.is_some())
    });
    if !is_in && is_written {
        return refuse(state, key, key.name(), now);
    }
    if !is_in && matches!(turn, Some(Turn::Writer(_))) {
        return refuse(state, key, &turn_name(key), now);
    }
    let mut ends = now.after(attempt.lease);
    let free = !state.values.contains_key(key.name());
    if free {
        state.insert(key.name(), Value::ReadWrite(ReadWrite::default()), ends);
    }
    if let Some(found) = holders(state, key) {
        let had = found.readers.get(owner).map(|reader| reader.ends);
        ends = had.unwrap_or(ends).max(ends);
        found.readers.insert(*owner, Reader { count: 1, ends });
    }
    state.expire_at_least(key.name(), ends);
    granted()
}

/// Refuses a reader for what `blocker` has left, and remembers that one waits.
fn refuse(state: &mut State, key: &Key, blocker: &Name, now: Tick) -> Attempted {
    let ttl = state.ttl(blocker, now);
    let time = ttl.unwrap_or_default() + READERS_PATIENCE;
    keep(state, &mark_name(key), Value::ReadersWait, (now, time));
    Attempted::Held { ttl }
}

fn write(state: &mut State, attempt: &Attempt, (client, now): (u64, Tick)) -> Attempted {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let (turn, ends) = (turn(state, key), now.after(attempt.lease));
    let Some(found) = holders(state, key) else {
        if turn == Some(Turn::Readers) && attempt.place.is_some() {
            let ttl = state.ttl(&turn_name(key), now);
            return Attempted::Held { ttl };
        }
        let holders = ReadWrite {
            writer: Some((*owner, 1)),
            ..ReadWrite::default()
        };
        state.insert(key.name(), Value::ReadWrite(holders), ends);
        // Readers that its turn kept out wait for the end of that, and nobody tells of an expiry.
        if state.ttl(&turn_name(key), now) > Some(attempt.lease) {
            state.publish(client, Family::ReadWrite, key);
        }
        state.remove(&turn_name(key));
        return granted();
    };
    if found.is_written_by(*owner) {
        found.writer = Some((*owner, 1));
        state.expire_at_least(key.name(), ends);
        return granted();
    }
    let may_take = turn.is_none_or(|turn| turn == Turn::Writer(*owner));
    if let Some(place) = attempt.place.filter(|_| may_take) {
        let turn = Value::Turn(Turn::Writer(*owner));
        keep(state, &turn_name(key), turn, (now, place));
    }
    Attempted::Held {
        ttl: state.ttl(key.name(), now),
    }
}

pub(super) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let Target {
        resource, owner, ..
    } = &renewal.target;
    let key = &resource.key;
    let mut ends = now.after(renewal.lease);
    let Some(found) = holders(state, key) else {
        return false;
    };
    if renewal.target.resource.kind == Kind::Write {
        if !found.is_written_by(*owner) {
            return false;
        }
        found.writer = Some((*owner, renewal.count));
    } else {
        let reader = found.readers.get_mut(owner);
        let Some(reader) = reader.filter(|reader| reader.ends > now) else {
            return false;
        };
        ends = ends.max(reader.ends);
        *reader = Reader {
            count: renewal.count,
            ends,
        };
    }
    state.expire_at_least(key.name(), ends);
    true
}

pub(super) fn release(
    state: &mut State,
    target: &Target,
    (client, now): (u64, Tick),
) -> Result<Released, Fault> {
    match target.resource.kind {
        Kind::Write => Ok(release_writer(state, target, (client, now))),
        _ => Ok(release_reader(state, target, (client, now))),
    }
}

fn release_reader(state: &mut State, target: &Target, (client, now): (u64, Tick)) -> Released {
    let Target {
        resource, owner, ..
    } = target;
    let key = &resource.key;
    let removed = holders(state, key).and_then(|found| {
        let reader = found.readers.remove(owner)?;
        Some((reader.ends > now, found.writer.is_some()))
    });
    let Some((was_alive, is_written)) = removed else {
        return Released::NotOurs;
    };
    let mut others_wait = false;
    if !is_written {
        let before = state.ttl(key.name(), now);
        left_to_readers(state, key, now);
        // Free, or sooner than whoever waits was told: nobody tells of an expiry.
        if state.ttl(key.name(), now) < before {
            others_wait = state.publish(client, Family::ReadWrite, key);
        }
    }
    if was_alive {
        Released::Freed { others_wait }
    } else {
        Released::NotOurs
    }
}

/// Leaves the lock to those who read, for as long as the longest of them; where nobody does, it is free.
fn left_to_readers(state: &mut State, key: &Key, now: Tick) {
    let longest = holders(state, key).and_then(|found| found.settle(now));
    match longest {
        Some(ends) => state.expire_at(key.name(), ends),
        None => drop(state.remove(key.name())),
    }
}

fn release_writer(state: &mut State, target: &Target, (client, now): (u64, Tick)) -> Released {
    let Target {
        resource, owner, ..
    } = target;
    let key = &resource.key;
    let found = holders(state, key).filter(|found| found.is_written_by(*owner));
    let Some(found) = found else {
        if turn(state, key) == Some(Turn::Writer(*owner)) {
            state.remove(&turn_name(key));
            state.remove(&mark_name(key));
            state.publish(client, Family::ReadWrite, key);
        }
        return Released::NotOurs;
    };
    found.writer = None;
    left_to_readers(state, key, now);
    pass_turn(state, key, now);
    let others_wait = state.publish(client, Family::ReadWrite, key);
    Released::Freed { others_wait }
}

/// A writer has ended: readers who waited go first for a moment, and no writer's turn outlasts it.
fn pass_turn(state: &mut State, key: &Key, now: Tick) {
    let name = turn_name(key);
    if state.remove(&mark_name(key)) {
        let turn = Value::Turn(Turn::Readers);
        keep(state, &name, turn, (now, READERS_TURN));
    } else {
        state.remove(&name);
    }
}

pub(super) fn force_release(
    state: &mut State,
    Resource { kind, key }: &Resource,
    (client, now): (u64, Tick),
) -> Result<bool, Fault> {
    let writes = *kind == Kind::Write;
    let held = holders(state, key).is_some_and(|found| found.writer.is_some() == writes);
    if !held {
        return Ok(false);
    }
    state.remove(key.name());
    if writes {
        pass_turn(state, key, now);
    }
    state.publish(client, Family::ReadWrite, key);
    Ok(true)
}

pub(super) fn inspect(
    state: &mut State,
    Resource { kind, key }: &Resource,
    now: Tick,
) -> Result<Inspected, Fault> {
    let ttl = state.ttl(key.name(), now);
    let Some(found) = holders(state, key) else {
        return Ok(Inspected::default());
    };
    let bytes = |(name, count): (String, u32)| (name.into_bytes(), u64::from(count));
    if *kind == Kind::Write {
        return Ok(Inspected {
            ttl: ttl.filter(|_| found.writer.is_some()),
            holders: found.writer.iter().map(written).map(bytes).collect(),
        });
    }
    let alive = || found.readers.iter().filter(|(_, reader)| reader.ends > now);
    let reader = |(owner, reader): (&Owner, &Reader)| bytes((owner.text(), reader.count));
    Ok(Inspected {
        ttl: alive().map(|(_, reader)| reader.ends.left(now)).max(),
        holders: alive().map(reader).collect(),
    })
}
