//! The locks whose data is a hash of owners, in memory: Redisson's `RLock` and its relatives.
//!
//! A verb states a count and never adds to it, so a verb that is sent twice leaves what it left the first time.

use std::time::Duration;

use crate::backend::memory::call::Call;
use crate::backend::memory::store::{State, Value};
use crate::backend::{
    Attempt, Attempted, AttemptedAll, DetachedOwner, Fault, Forced, Inspected, Released, Renewal,
    Seen, Target, Through, cause,
};
use crate::clock::{self, Tick};
use crate::config::MAX_TOKEN;
use crate::resource::key::Key;
use crate::resource::kind::{Family, Kind};
use crate::resource::owner::{Owner, RELEASED};

/// A hash with more fields counts as a value of another type, as over Redis, when a lock looks for its holder.
const MOST_FIELDS: usize = 16;

/// Who holds a lock, and how often the holder has entered it. No verb here adds a second holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    holder: Holder,
    count: u32,
}

/// What keeps a lock taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Owner(Owner),
    /// Nobody. This owner has released the lock, but it stays taken for the rest of its minimum hold time.
    Released(Owner),
}

impl Held {
    fn by(holder: Holder) -> Self {
        Self { holder, count: 1 }
    }

    fn is_by(&self, owner: Owner) -> bool {
        self.holder == Holder::Owner(owner)
    }

    /// Its owner, unless it only stays taken.
    pub(crate) fn owner(&self) -> Option<Owner> {
        match self.holder {
            Holder::Owner(owner) => Some(owner),
            Holder::Released(_) => None,
        }
    }

    /// The name that Redis shows for the holder.
    fn text(&self) -> String {
        match self.holder {
            Holder::Owner(owner) => owner.text(),
            Holder::Released(owner) => format!("{}{RELEASED}", owner.text()),
        }
    }

    /// The holder by its name, and its count.
    pub(crate) fn shown(&self) -> (String, u64) {
        (self.text(), u64::from(self.count))
    }
}

/// Whom an attempt finds under its key.
enum Found<'a> {
    Nobody,
    /// Its own owner: an earlier attempt was granted.
    Itself(&'a mut Held),
    /// Another owner, or a key that stays taken, or a lock of another kind.
    Another(Option<Owner>),
}

/// The refusal of an attempt that finds another owner.
fn refused(ttl: Option<Duration>, owner: Option<Owner>) -> Attempted {
    match owner {
        Some(owner) => Attempted::held_by(ttl, owner, 0),
        None => Attempted::held(ttl),
    }
}

/// The refusal of an attempt on a key, with its holder if it has one.
pub(crate) fn refusal(state: &State, key: &Key, ttl: Option<Duration>) -> Attempted {
    let entry = state.values.get(key.name());
    let owner = entry.and_then(|entry| match &entry.value {
        Value::Lock(held) => held.owner(),
        _ => None,
    });
    refused(ttl, owner)
}

/// Whom an attempt of this owner finds. A read/write lock counts as held by another owner.
fn find<'a>(state: &'a mut State, key: &Key, owner: Owner) -> Result<Found<'a>, Fault> {
    let entry = state.values.get_mut(key.name());
    found(entry.map(|entry| &mut entry.value), owner)
}

/// Whom an attempt of this owner finds in what is under its key.
fn found(value: Option<&mut Value>, owner: Owner) -> Result<Found<'_>, Fault> {
    match value {
        None => Ok(Found::Nobody),
        Some(Value::Lock(held)) => Ok(if held.is_by(owner) {
            Found::Itself(held)
        } else {
            Found::Another(held.owner())
        }),
        Some(Value::ReadWrite(_)) => Ok(Found::Another(None)),
        Some(_) => Err(Fault::WrongType(None)),
    }
}

pub(crate) fn attempt(state: &mut State, attempt: &Attempt, now: Tick) -> Result<Attempted, Fault> {
    if let Some(former) = attempt.through.as_deref().and_then(Through::detached) {
        return attach(state, attempt, former, now);
    }
    if attempt.above >= MAX_TOKEN {
        // No server has issued such a token.
        return Err(Fault::Protocol(cause("no token is above this one")));
    }
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let expires = now.after(attempt.lease);
    let held = Value::Lock(Held::by(Holder::Owner(*owner)));
    let is_new = match found(state.insert_if_free(key.name(), held, expires), *owner)? {
        Found::Nobody => true,
        Found::Itself(held) => {
            // Stated and not added: a repeated attempt is the same entry.
            held.count = 1;
            state.expire_at_least(key.name(), expires);
            false
        }
        Found::Another(owner) => {
            let ttl = state.ttl(key.name(), now);
            return Ok(refused(ttl, owner));
        }
    };
    let is_fenced = resource.kind == Kind::Fenced;
    let token = is_fenced.then(|| {
        let now = clock::micros_since_1970();
        let tokens = &mut state.tokens;
        tokens.of_grant(key.name(), is_new, attempt.above, now)
    });
    Ok(Attempted::Granted { token })
}

/// Takes the place of another owner.
pub(crate) fn attach(
    state: &mut State,
    attempt: &Attempt,
    former: DetachedOwner,
    now: Tick,
) -> Result<Attempted, Fault> {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let micros = clock::micros_since_1970();
    let is_issued = |token| state.tokens.may_have_issued(key.name(), token, micros);
    if !former.token.is_none_or(is_issued) {
        return Ok(Attempted::held(None));
    }
    // Its own first: an earlier copy of this attempt may have been granted.
    for owner_there in [*owner, former.owner] {
        if let Found::Itself(held) = find(state, key, owner_there)? {
            *held = Held::by(Holder::Owner(*owner));
            state.expire_at_least(key.name(), now.after(attempt.lease));
            let token = former.token;
            return Ok(Attempted::Granted { token });
        }
    }
    Ok(Attempted::held(None))
}

/// Grants all attempts or none. A refusal names the first key that another owner holds.
pub(crate) fn attempt_all(
    state: &mut State,
    attempts: &[Attempt],
    now: Tick,
) -> Result<AttemptedAll, Fault> {
    for (at, Attempt { target, .. }) in attempts.iter().enumerate() {
        let key = &target.resource.key;
        let found = find(state, key, target.owner);
        if let Found::Another(owner) = found.map_err(|fault| fault.of_key(key))? {
            let ttl = state.ttl(key.name(), now);
            let attempted = refused(ttl, owner);
            return Ok(AttemptedAll { at, attempted });
        }
    }
    // All are free or its own by now, and the mutex of the store is locked over both loops.
    for one in attempts {
        attempt(state, one, now)?;
    }
    Ok(AttemptedAll::granted())
}

pub(crate) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let Target {
        resource, owner, ..
    } = &renewal.target;
    let key = &resource.key;
    // A value of another type means that the owner's lock is gone: one lost hold must not fail the whole batch.
    let Ok(Found::Itself(held)) = find(state, key, *owner) else {
        return false;
    };
    held.count = renewal.count;
    state.expire_at_least(key.name(), now.after(renewal.lease));
    true
}

pub(crate) fn is_held_by(state: &mut State, target: &Target) -> Result<bool, Fault> {
    let found = find(state, &target.resource.key, target.owner)?;
    Ok(matches!(found, Found::Itself(_)))
}

pub(crate) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    if !is_held_by(state, target)? {
        return Ok(Released::NotOurs);
    }
    let key = &target.resource.key;
    if target.taken_for.is_zero() {
        state.remove(key.name());
    } else {
        // Under another name, so that a repeated release of this owner finds nothing.
        let released = Value::Lock(Held::by(Holder::Released(target.owner)));
        state.insert(key.name(), released, call.now.after(target.taken_for));
    }
    let others = state.publish(call.client, Family::Lock, key);
    Ok(Released::Freed { others })
}

/// Ends several holds. A value of another type is not the owner's lock, and does not keep the others from being
/// released.
pub(crate) fn release_all(
    state: &mut State,
    targets: &[Target],
    call: Call,
) -> Result<Vec<Released>, Fault> {
    let one = |target: &Target| match release(state, target, call) {
        Err(Fault::WrongType(_)) => Ok(Released::NotOurs),
        released => released,
    };
    targets.iter().map(one).collect()
}

/// Removes a lock with its holder, unless that is another one than was seen.
pub(crate) fn remove(state: &mut State, key: &Key, seen: Option<&Seen>) -> Result<Forced, Fault> {
    match state.values.get(key.name()).map(|entry| &entry.value) {
        Some(Value::Lock(held)) if seen.is_some_and(|seen| !is_seen(state, key, held, seen)) => {
            Ok(Forced::Unseen)
        }
        Some(Value::Lock(_)) => Ok(Forced::freed(state.remove(key.name()))),
        Some(_) => Err(Fault::WrongType(None)),
        None => Ok(Forced::WasFree),
    }
}

/// Whether somebody has seen this hold: its owner, and its token if there is one.
fn is_seen(state: &State, key: &Key, held: &Held, seen: &Seen) -> bool {
    let last = state.tokens.last(key.name());
    let has_other_token = seen
        .number
        .zip(last)
        .is_some_and(|(token, last)| u64::try_from(token) != Ok(last));
    seen.are([held.text()]) && !has_other_token
}

pub(crate) fn force_release(
    state: &mut State,
    key: &Key,
    seen: Option<&Seen>,
    call: Call,
) -> Result<Forced, Fault> {
    let freed = remove(state, key, seen)?;
    // Nobody waits for a key that was free.
    if freed == Forced::Freed {
        state.publish(call.client, Family::Lock, key);
    }
    Ok(freed)
}

pub(crate) fn inspect(state: &mut State, key: &Key, now: Tick) -> Result<Inspected, Fault> {
    let holders = match state.values.get(key.name()).map(|entry| &entry.value) {
        Some(Value::Lock(held)) => vec![(held.text().into_bytes(), u64::from(held.count))],
        // One field more is that of the mode.
        Some(Value::ReadWrite(holders)) if holders.holders().count() < MOST_FIELDS => {
            holders.holders().collect()
        }
        Some(_) => return Err(Fault::WrongType(None)),
        None => return Ok(Inspected::default()),
    };
    let ttl = state.ttl(key.name(), now);
    Ok(Inspected { holders, ttl })
}
