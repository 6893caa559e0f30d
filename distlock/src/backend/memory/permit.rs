//! The permit-expirable semaphore, in memory: how many permits are free, and which are out until when.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::store::{Name, State, Value};
use crate::backend::{
    Attempt, Attempted, Change, Fault, Inspected, Released, Renewal, Target, unsupported,
};
use crate::clock::Tick;
use crate::config::{OWNERS_REMEMBERED, REQUESTS_REMEMBERED};
use crate::key::Key;
use crate::kind::Family;
use crate::owner::Owner;
use crate::permit_id::PermitId;

/// A semaphore: `free` and the number of permits that are out add up to what was set.
#[derive(Debug, Default)]
pub(super) struct Permits {
    free: i64,
    out: HashMap<PermitId, Tick>,
    ends: BTreeSet<(Tick, PermitId)>,
}

impl Permits {
    fn insert(&mut self, id: PermitId, end: Tick) {
        self.remove(id);
        self.out.insert(id, end);
        self.ends.insert((end, id));
    }

    fn remove(&mut self, id: PermitId) -> bool {
        let Some(end) = self.out.remove(&id) else {
            return false;
        };
        self.ends.remove(&(end, id))
    }

    /// Takes back what has expired; whether there was any.
    fn sweep(&mut self, now: Tick) -> bool {
        let before = self.free;
        while let Some(&(end, id)) = self.ends.first()
            && end <= now
        {
            self.give_back(id);
        }
        self.free > before
    }

    fn give_back(&mut self, id: PermitId) -> bool {
        let was_out = self.remove(id);
        self.free += i64::from(was_out);
        was_out
    }

    /// Gives an owner all of its permits until `end`, or none.
    fn take(&mut self, target: &Target, end: Tick) -> bool {
        if i64::from(target.permits) > self.free + self.number_out() {
            return false;
        }
        let ids: Vec<_> = PermitId::all_of(target.owner, target.permits).collect();
        let missing = ids.iter().filter(|id| !self.out.contains_key(*id)).count() as i64;
        if missing > self.free {
            return false;
        }
        self.free -= missing;
        self.keep(ids, end);
        true
    }

    /// Never shortens a lease.
    fn keep(&mut self, ids: Vec<PermitId>, end: Tick) {
        for id in ids {
            let longest = self.out.get(&id).copied().unwrap_or(end).max(end);
            self.insert(id, longest);
        }
    }

    fn number_out(&self) -> i64 {
        self.out.len() as i64
    }

    fn next_end(&self) -> Option<Tick> {
        self.ends.first().map(|(end, _)| *end)
    }
}

/// What is remembered of owners for a while: those that ended, and what their requests were answered.
#[derive(Debug, Default)]
pub(super) struct Notes {
    ended: Remembered<()>,
    answers: Remembered<i64>,
}

#[derive(Debug)]
struct Remembered<T> {
    notes: HashMap<(Name, Owner), (Tick, T)>,
    order: VecDeque<(Tick, (Name, Owner))>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            notes: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T: Copy> Remembered<T> {
    fn get(&self, target: &Target, now: Tick) -> Option<T> {
        let (until, note) = self.notes.get(&entry(target))?;
        (*until > now).then_some(*note)
    }

    fn put(&mut self, target: &Target, note: T, until: Tick, now: Tick) {
        while let Some((end, _)) = self.order.front()
            && *end <= now
        {
            // Written again since: a later place in the order has it.
            if let Some((end, entry)) = self.order.pop_front()
                && self
                    .notes
                    .get(&entry)
                    .is_some_and(|(until, _)| *until == end)
            {
                self.notes.remove(&entry);
            }
        }
        self.notes.insert(entry(target), (until, note));
        self.order.push_back((until, entry(target)));
    }
}

fn entry(target: &Target) -> (Name, Owner) {
    (Arc::clone(target.resource.key.name()), target.owner)
}

fn permits<'a>(state: &'a mut State, key: &Key) -> Result<Option<&'a mut Permits>, Fault> {
    match state
        .values
        .get_mut(key.name())
        .map(|entry| &mut entry.value)
    {
        Some(Value::Permits(permits)) => Ok(Some(permits)),
        Some(_) => Err(Fault::WrongType),
        None => Ok(None),
    }
}

pub(super) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    (now, client): (Tick, u64),
) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let has_ended = state.notes.ended.get(target, now).is_some();
    let Some(permits) = permits(state, &target.resource.key)? else {
        return Ok(Attempted::Held { ttl: None });
    };
    let swept = permits.sweep(now);
    let granted = !has_ended && permits.take(target, now.after(attempt.lease));
    let (left, next) = (permits.free, permits.next_end());
    if swept {
        tell(state, &target.resource.key, left, client);
    }
    Ok(if granted {
        Attempted::Granted { token: None }
    } else {
        let ttl = next.map(|end| end.left(now));
        Attempted::Held { ttl }
    })
}

/// Whether others listen. A number that is no good news is told to nobody, as Redisson's listeners want it.
fn tell(state: &mut State, key: &Key, free: i64, client: u64) -> bool {
    free > 0 && state.publish(client, Family::Permit, key)
}

pub(super) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let target = &renewal.target;
    // A value of another type is nobody's permits.
    let Ok(Some(permits)) = permits(state, &target.resource.key) else {
        return false;
    };
    if i64::from(target.permits) > permits.number_out() {
        return false;
    }
    let ids: Vec<_> = PermitId::all_of(target.owner, target.permits).collect();
    let is_out = |id: &PermitId| permits.out.get(id).is_some_and(|end| *end > now);
    let ours = ids.iter().all(is_out);
    if ours {
        permits.keep(ids, now.after(renewal.lease));
    }
    ours
}

pub(super) fn release(
    state: &mut State,
    target: &Target,
    (now, client): (Tick, u64),
) -> Result<Released, Fault> {
    let Some(permits) = permits(state, &target.resource.key)? else {
        return Ok(Released::NotOurs);
    };
    let swept = permits.sweep(now);
    // As many as were asked for may never have been granted.
    let at_most = permits.number_out().max(1000);
    let mut returned = 0;
    if i64::from(target.permits) <= at_most {
        for id in PermitId::all_of(target.owner, target.permits) {
            returned += u32::from(permits.give_back(id));
        }
    }
    let left = permits.free;
    let others_wait = (swept || returned > 0) && tell(state, &target.resource.key, left, client);
    Ok(if returned == target.permits {
        Released::Freed { others_wait }
    } else {
        Released::NotOurs
    })
}

pub(super) fn withdraw(
    state: &mut State,
    target: &Target,
    at: (Tick, u64),
) -> Result<Released, Fault> {
    let (released, now) = (release(state, target, at)?, at.0);
    let until = now.after(OWNERS_REMEMBERED);
    state.notes.ended.put(target, (), until, now);
    Ok(released)
}

pub(super) fn delete(state: &mut State, key: &Key) -> Result<bool, Fault> {
    Ok(permits(state, key)?.is_some() && state.remove(key.name()))
}

pub(super) fn inspect(state: &mut State, key: &Key, now: Tick) -> Result<Inspected, Fault> {
    let Some(permits) = permits(state, key)? else {
        return Ok(Inspected::default());
    };
    let mut out = permits.ends.iter().filter(|(end, _)| *end > now).peekable();
    Ok(Inspected {
        ttl: out.peek().map(|(end, _)| end.left(now)),
        holders: out
            .map(|(_, id)| (id.to_string().into_bytes(), 1))
            .collect(),
    })
}

pub(super) fn adjust(
    state: &mut State,
    target: &Target,
    change: Change,
    (now, client): (Tick, u64),
) -> Result<i64, Fault> {
    if let Some(answer) = look(state, target, change, now)? {
        return Ok(answer);
    }
    if let Some(answer) = state.notes.answers.get(target, now) {
        return Ok(answer);
    }
    let (answer, news) = make(state, target, change, now)?;
    if news {
        state.publish(client, Family::Permit, &target.resource.key);
    }
    let until = now.after(REQUESTS_REMEMBERED);
    state.notes.answers.put(target, answer, until, now);
    Ok(answer)
}

/// What only reads.
fn look(
    state: &mut State,
    target: &Target,
    change: Change,
    now: Tick,
) -> Result<Option<i64>, Fault> {
    let none = Permits::default();
    let permits = permits(state, &target.resource.key)?.map_or(&none, |permits| &*permits);
    let expired = permits.ends.iter().take_while(|(end, _)| *end <= now);
    let expired = expired.count() as i64;
    Ok(match change {
        Change::Count => Some(permits.free + expired),
        Change::AcquiredPermits => Some(permits.number_out() - expired),
        Change::TotalPermits => Some(permits.free + permits.number_out()),
        Change::RemainingLease(id) => {
            let left = permits.out.get(&id).map(|end| end.left(now));
            let left = left.filter(|left| !left.is_zero());
            Some(left.map_or(GONE, |left| left.as_millis() as i64))
        }
        _ => None,
    })
}

/// What a permit that has gone has left, as the script says it.
const GONE: i64 = -2;

/// What changes something: the answer, and whether who waits should know.
fn make(
    state: &mut State,
    target: &Target,
    change: Change,
    now: Tick,
) -> Result<(i64, bool), Fault> {
    let key = &target.resource.key;
    if permits(state, key)?.is_none() {
        let free = match change {
            Change::TrySet(number) | Change::SetPermits(number) => i64::from(number),
            Change::Add(number) => i64::from(number),
            Change::ReleasePermit(_) | Change::UpdateLease(..) => return Ok((0, false)),
            _ => return Err(unsupported(target.resource.kind, "change so")),
        };
        let new = Permits {
            free,
            ..Permits::default()
        };
        state.insert(key.name(), Value::Permits(new), Tick::NEVER);
        let answer = if matches!(change, Change::TrySet(_)) {
            1
        } else {
            free
        };
        return Ok((answer, free > 0));
    }
    let Some(permits) = permits(state, key)? else {
        return Err(unsupported(target.resource.kind, "change so"));
    };
    if matches!(change, Change::TrySet(_)) {
        return Ok((0, false));
    }
    let swept = permits.sweep(now);
    let (before, mut hastened) = (permits.free, false);
    let answer = match change {
        Change::SetPermits(number) => {
            permits.free = i64::from(number) - permits.number_out();
            permits.free
        }
        Change::Add(number) => {
            permits.free += i64::from(number);
            permits.free
        }
        Change::ReleasePermit(id) => i64::from(permits.give_back(id)),
        Change::UpdateLease(id, lease) => match permits.out.get(&id).copied() {
            Some(end) => {
                let sooner = now.after(lease);
                hastened = sooner < end;
                permits.insert(id, sooner);
                1
            }
            None => 0,
        },
        _ => return Err(unsupported(target.resource.kind, "change so")),
    };
    let grown = swept || permits.free > before;
    // Who sleeps until the next permit ends may sleep too long now.
    Ok((answer, hastened || grown && permits.free > 0))
}
