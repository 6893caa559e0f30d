//! The read and the write lock in memory: Redisson's `RReadWriteLock`, with turns among our own clients against
//! starvation.
//!
//! A writer that waits takes the writers' turn: until it ends, readers that do not hold the lock yet are refused. A
//! refused reader leaves a mark. When a writer releases and the mark is there, the readers get a short turn, in which
//! no waiting writer is granted. Redisson's clients know nothing of turns and marks.

mod holders;

use std::time::Duration;

pub(crate) use self::holders::{ReadWrite, Turn};
use self::holders::{Reader, writer_name};
use super::lock;
use crate::backend::memory::call::Call;
use crate::backend::memory::store::{Name, State, Value};
use crate::backend::{
    Attempt, Attempted, Fault, Forced, Inspected, Released, Renewal, Seen, Target, Through,
};
use crate::clock::Tick;
use crate::config::{MOST_HOLDERS_TOLD, READERS_PATIENCE, READERS_TURN};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::{Family, Kind};
use crate::resource::owner::Owner;

fn holders<'a>(state: &'a mut State, key: &Key) -> Option<&'a mut ReadWrite> {
    match &mut state.values.get_mut(key.name())?.value {
        Value::ReadWrite(holders) => Some(holders),
        _ => None,
    }
}

/// The holders of a lock, if it is held. Any other value is not this lock.
fn found<'a>(state: &'a State, key: &Key) -> Result<Option<&'a ReadWrite>, Fault> {
    match state.values.get(key.name()).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::ReadWrite(holders)) => Ok(Some(holders)),
        Some(_) => Err(Fault::WrongType(None)),
    }
}

/// The answer to an attempt on a key that holds another kind of value: another kind of lock counts as held by another
/// owner, and anything else has the wrong type.
fn foreign(state: &State, key: &Key, now: Tick) -> Option<Result<Attempted, Fault>> {
    match &state.values.get(key.name())?.value {
        Value::ReadWrite(_) => None,
        Value::Lock(_) => {
            let ttl = state.ttl(key.name(), now);
            Some(Ok(lock::refusal(state, key, ttl)))
        }
        _ => Some(Err(Fault::WrongType(None))),
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

/// Stores a turn or a mark for `time`, counted from `now`.
fn keep(state: &mut State, name: &Name, value: Value, now: Tick, time: Duration) {
    state.insert(name, value, now.after(time));
}

pub(crate) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    call: Call,
) -> Result<Attempted, Fault> {
    if let Some(answer) = foreign(state, &attempt.target.resource.key, call.now) {
        return answer;
    }
    match attempt.target.resource.kind {
        Kind::Write => Ok(attempt_write(state, attempt, call)),
        _ => Ok(attempt_read(state, attempt, call.now)),
    }
}

fn granted() -> Attempted {
    Attempted::Granted { token: None }
}

fn attempt_read(state: &mut State, attempt: &Attempt, now: Tick) -> Attempted {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let turn = turn(state, key);
    let found = holders(state, key);
    let (may_enter, is_written) = found.map_or((false, false), |found| {
        let reads = found.readers.get(owner);
        let again = reads.is_some_and(|reader| reader.ends > now);
        let inside = attempt.through.as_deref().and_then(Through::write);
        let inside = inside.is_some_and(|around| found.is_written_by(around));
        (again || inside, found.writer.is_some())
    });
    if !may_enter && is_written {
        return refuse(state, key, key.name(), now);
    }
    if !may_enter && matches!(turn, Some(Turn::Writer(_))) {
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

/// Refuses a reader until `blocker` expires, and leaves the mark that readers wait.
fn refuse(state: &mut State, key: &Key, blocker: &Name, now: Tick) -> Attempted {
    let ttl = state.ttl(blocker, now);
    let time = ttl.unwrap_or_default() + READERS_PATIENCE;
    keep(state, &mark_name(key), Value::ReadersWait, now, time);
    refusal(state, key, ttl, now)
}

fn attempt_write(state: &mut State, attempt: &Attempt, call: Call) -> Attempted {
    let now = call.now;
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let turn = turn(state, key);
    let ends = now.after(attempt.lease);
    let Some(found) = holders(state, key) else {
        if turn == Some(Turn::Readers) && attempt.queue_ttl.is_some() {
            let ttl = state.ttl(&turn_name(key), now);
            return Attempted::held(ttl);
        }
        let holders = ReadWrite {
            writer: Some((*owner, 1)),
            ..ReadWrite::default()
        };
        state.insert(key.name(), Value::ReadWrite(holders), ends);
        // The readers that its turn kept out sleep until that turn ends, though this lease ends earlier, and no message
        // is sent when a lease expires.
        if state.ttl(&turn_name(key), now) > Some(attempt.lease) {
            state.publish(call.client, Family::ReadWrite, key);
        }
        state.remove(&turn_name(key));
        return granted();
    };
    if found.is_written_by(*owner) {
        found.writer = Some((*owner, 1));
        state.expire_at_least(key.name(), ends);
        return granted();
    }
    let mut ttl = state.ttl(key.name(), now);
    if let Some(queue_ttl) = attempt.queue_ttl {
        match turn {
            // No message is sent when this turn ends, so the answer names its end.
            Some(Turn::Readers) => {
                let turn_left = state.ttl(&turn_name(key), now);
                ttl = [ttl, turn_left].into_iter().flatten().min();
            }
            // That turn keeps the readers out as well.
            Some(Turn::Writer(writer)) if writer != *owner => {}
            _ => {
                let turn = Value::Turn(Turn::Writer(*owner));
                keep(state, &turn_name(key), turn, now, queue_ttl);
            }
        }
    }
    refusal(state, key, ttl, now)
}

/// The refusal of an attempt on a lock that is held: by its writer, or by readers. A reader that has ended is not named.
fn refusal(state: &State, key: &Key, ttl: Option<Duration>, now: Tick) -> Attempted {
    let Ok(Some(found)) = found(state, key) else {
        return Attempted::held(ttl);
    };
    let owners = found.readers.len() + usize::from(found.writer.is_some());
    let writer = found.writer.map(|(writer, _)| writer);
    match writer.or_else(|| found.live_reader(now)) {
        Some(owner) => Attempted::held_by(ttl, owner, owners - 1),
        None => Attempted::held(ttl),
    }
}

pub(crate) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
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

pub(crate) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let key = &target.resource.key;
    if let Some(Err(fault)) = foreign(state, key, call.now) {
        return Err(fault);
    }
    match target.resource.kind {
        Kind::Write => Ok(release_write(state, target, call)),
        _ => Ok(release_read(state, target, call)),
    }
}

fn release_read(state: &mut State, target: &Target, call: Call) -> Released {
    let now = call.now;
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
    let mut others = 0;
    if !is_written {
        let before = state.ttl(key.name(), now);
        leave_to_readers(state, key, now);
        // The lock is free now, or will be earlier than its waiters were answered, and no message is sent when a lease
        // expires.
        if state.ttl(key.name(), now) < before {
            others = state.publish(call.client, Family::ReadWrite, key);
        }
    }
    if was_alive {
        Released::Freed { others }
    } else {
        Released::NotOurs
    }
}

/// Leaves the lock to its readers, until the last of them ends. Without readers the lock is free.
fn leave_to_readers(state: &mut State, key: &Key, now: Tick) {
    let longest = holders(state, key).and_then(|found| found.drop_expired_readers(now));
    match longest {
        Some(ends) => state.expire_at(key.name(), ends),
        None => drop(state.remove(key.name())),
    }
}

/// Ends a writer's hold, or its turn if it was waiting.
fn release_write(state: &mut State, target: &Target, call: Call) -> Released {
    let Target {
        resource, owner, ..
    } = target;
    let key = &resource.key;
    let found = holders(state, key).filter(|found| found.is_written_by(*owner));
    let Some(found) = found else {
        if turn(state, key) == Some(Turn::Writer(*owner)) {
            state.remove(&turn_name(key));
            state.remove(&mark_name(key));
            state.publish(call.client, Family::ReadWrite, key);
        }
        return Released::NotOurs;
    };
    found.writer = None;
    leave_to_readers(state, key, call.now);
    pass_turn(state, key, call.now);
    let others = state.publish(call.client, Family::ReadWrite, key);
    Released::Freed { others }
}

/// After a writer's hold: gives waiting readers their turn, and ends any writer's turn.
fn pass_turn(state: &mut State, key: &Key, now: Tick) {
    let name = turn_name(key);
    if state.remove(&mark_name(key)) {
        let turn = Value::Turn(Turn::Readers);
        keep(state, &name, turn, now, READERS_TURN);
    } else {
        state.remove(&name);
    }
}

pub(crate) fn force_release(
    state: &mut State,
    Resource { kind, key }: &Resource,
    seen: Option<&Seen>,
    call: Call,
) -> Result<Forced, Fault> {
    let Some(found) = found(state, key)? else {
        return Ok(Forced::WasFree);
    };
    let is_write = found.has_writer();
    match seen {
        Some(seen) if !seen.are(found.alive(call.now).map(|(owner, ..)| owner)) => {
            return Ok(Forced::Unseen);
        }
        // The owners that were seen say more than the mode.
        Some(_) => {}
        None if is_write == (*kind == Kind::Write) => {}
        None => return Ok(Forced::WasFree),
    }
    state.remove(key.name());
    if is_write {
        pass_turn(state, key, call.now);
    }
    state.publish(call.client, Family::ReadWrite, key);
    Ok(Forced::Freed)
}

pub(crate) fn inspect(
    state: &mut State,
    Resource { kind, key }: &Resource,
    now: Tick,
) -> Result<Inspected, Fault> {
    let ttl = state.ttl(key.name(), now);
    let Some(found) = found(state, key)? else {
        return Ok(Inspected::default());
    };
    let bytes = |(name, count): (String, u32)| (name.into_bytes(), u64::from(count));
    if *kind == Kind::Write {
        return Ok(Inspected {
            ttl: ttl.filter(|_| found.writer.is_some()),
            holders: found.writer.iter().map(writer_name).map(bytes).collect(),
        });
    }
    let alive = || found.readers.iter().filter(|(_, reader)| reader.ends > now);
    let reader = |(owner, reader): (&Owner, &Reader)| bytes((owner.text(), reader.count));
    Ok(Inspected {
        ttl: alive().map(|(_, reader)| reader.ends.left(now)).max(),
        holders: alive().take(MOST_HOLDERS_TOLD).map(reader).collect(),
    })
}
