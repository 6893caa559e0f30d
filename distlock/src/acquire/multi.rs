//! Several keys as one lock: all of them, or none.
//!
//! Locks of one client whose data is a plain hash of owners form a group. It is acquired by one command: the server grants
//! all of them, or names one that another owner holds. In a cluster there is one command for each slot. The group then waits
//! for that key, and keeps its place in the local queues of the others; see [`wait`](crate::wait).
//!
//! Other kinds of locks and several clients need several groups. The acquisition waits for one group, and then makes a
//! single attempt on each other group. If one of these is refused, everything is released, and the acquisition waits for
//! that group next. An acquisition that waits holds nothing, so two of them cannot wait for each other. All clients try the
//! groups in the same order, so that one of two competing acquisitions makes progress.
//!
//! Scopes around the acquisition may have some of the keys. Each of these has a gate, which lets one branch of the scope in
//! at a time. The gates are tried together, like a group. If one is closed, everything is given back, and the acquisition
//! waits at that gate next. The holds of the scopes are entered when nothing else is missing.

use std::sync::Arc;
use std::time::Duration;

use super::observed::observed;
use super::reentry::{
    ClosedGate, Enclosing, OpenGates, check_open, pass_gates, try_gates, within_scopes,
};
use crate::backend::Through;
use crate::error::Error;
use crate::hold::{Hold, HoldView};
use crate::local::{HoldShare, HoldShares};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Nesting;
use crate::scope::Frames;
use crate::session::{Session, Unguarded};
use crate::telemetry::LockType;
use crate::wait::{self, ClientRequest, Request, one_server};

/// Keys of one client that are waited for together.
struct Group {
    one: ClientRequest,
}

/// An acquisition inside of scopes, which may have some of its keys.
struct InScopes {
    frames: Frames,
    /// One for each key.
    requests: Vec<ClientRequest>,
}

/// Acquires all keys. Each request is for one key.
pub(crate) async fn acquire(mut requests: Vec<ClientRequest>) -> Result<HoldShares, Error> {
    sort(&mut requests)?;
    let mut shares = match within_scopes(requests.iter_mut()) {
        None => {
            let groups = Group::all(requests)?;
            acquire_observed(&groups, None).await?
        }
        Some(frames) => {
            let scopes = InScopes { frames, requests };
            Box::pin(scopes.acquire()).await?
        }
    };
    shares.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(shares)
}

/// Removes duplicates, and sorts the keys in the order that all clients share. Refuses a key that is requested as two
/// kinds of lock.
fn sort(requests: &mut Vec<ClientRequest>) -> Result<(), Error> {
    let rank = |one: &ClientRequest| {
        let Resource { kind, key } = one.requested().resource.clone();
        (slot(one), key, kind, one.registry.session.id)
    };
    requests.sort_by_key(rank);
    requests.dedup_by_key(|one| rank(one));
    for pair in requests.windows(2) {
        let [
            (_, one_key, one, client),
            (_, other_key, other, other_client),
        ] = [&pair[0], &pair[1]].map(rank);
        if one_key == other_key && client == other_client && other.within(one) != Nesting::Apart {
            let reason = "it is wanted as two kinds of lock at once";
            return Err(Error::deadlock(one_key.text(), reason));
        }
    }
    Ok(())
}

/// The part of the server's keys that one command can name. Keys of one slot stand together in the request of a group.
fn slot(one: &ClientRequest) -> u16 {
    let key = &one.requested().resource.key;
    one.registry.session.backend.home(key).slot
}

/// Acquires the keys that no scope has, and then enters the scopes.
async fn acquire_observed(
    groups: &[Group],
    scopes: Option<&InScopes>,
) -> Result<HoldShares, Error> {
    let Some(first) = groups.first() else {
        return Ok(HoldShares::new());
    };
    let keys = groups.iter().flat_map(Group::keys);
    let acquire = || acquire_groups(groups, scopes);
    observed(&first.one, LockType::Multi, keys, acquire).await
}

/// Waits for one group or one gate, and tries all the rest, until nothing is refused.
async fn acquire_groups(groups: &[Group], scopes: Option<&InScopes>) -> Result<HoldShares, Error> {
    let mut first = 0;
    let mut passed = None;
    // The scopes have closed since, if these are other groups.
    let mut regrouped: Vec<Group>;
    let mut groups = groups;
    loop {
        // Everything that was granted or passed is dropped at the end of each turn of the loop: nothing is held while the
        // next group or the next gate is waited for.
        let mut granted = None;
        let (shares, gates) = match passed.take() {
            Some(gates) => (HoldShares::new(), gates),
            None => {
                let group = &groups[first];
                let shares = group.acquire(&group.one.request).await?;
                granted = Some(first);
                match scopes.map_or_else(|| Ok(Ok(OpenGates::new())), InScopes::try_gates)? {
                    Ok(gates) => (shares, gates),
                    Err(closed) => {
                        // Another branch of the code has closed a gate. Nothing is held while the acquisition waits for it.
                        drop(shares);
                        passed = InScopes::pass_gates(scopes, Some(closed)).await?;
                        continue;
                    }
                }
            }
        };
        if let Some(now) = regroup(groups, scopes, &gates)? {
            regrouped = now;
            (groups, first, passed) = (&regrouped, 0, Some(gates));
            continue;
        }
        let (mut shares, gates) = match try_others(groups, granted, Parts { shares, gates }).await?
        {
            Tried::Granted(Parts { shares, gates }) => (shares, gates),
            Tried::Refused(at) => {
                first = at;
                continue;
            }
            Tried::Absent => continue,
        };
        // They are not renewed before this, so one of them may have ended.
        if groups.len() > 1 && !shares.iter().all(|share| share.hold_ref().is_held()) {
            continue;
        }
        let entered = scopes.map(|scopes| scopes.enter(gates, &mut shares));
        if entered.transpose()?.unwrap_or(true) {
            shares.iter().for_each(HoldShare::has_guard);
            return Ok(shares);
        }
    }
}

/// The groups as they are now, if scopes have closed since these were made.
fn regroup(
    groups: &[Group],
    scopes: Option<&InScopes>,
    gates: &OpenGates,
) -> Result<Option<Vec<Group>>, Error> {
    let Some(scopes) = scopes else {
        return Ok(None);
    };
    let now = scopes.groups(gates)?;
    Ok((Group::count(&now) != Group::count(groups)).then_some(now))
}

/// What an acquisition has while other parts of it are missing. Dropping it gives everything back.
#[derive(Default)]
struct Parts {
    shares: HoldShares,
    gates: OpenGates,
}

impl Unguarded for Parts {
    fn end(self, session: &Arc<Session>) {
        // By name and first, because its drop logs them.
        self.shares.end(session);
        drop(self.gates);
    }
}

/// The result of an attempt on each group.
enum Tried {
    Granted(Parts),
    /// This group is refused.
    Refused(usize),
    /// The acquisition was not polled for so long that its parts were ended.
    Absent,
}

/// Makes one attempt on each group but the one that was granted already, until one is refused.
async fn try_others(
    groups: &[Group],
    granted: Option<usize>,
    mut parts: Parts,
) -> Result<Tried, Error> {
    for (at, group) in groups.iter().enumerate() {
        if granted == Some(at) {
            continue;
        }
        let single_try = group.single_try();
        let session = &group.one.registry.session;
        let acquired = group.acquire(&single_try);
        let (acquired, kept) = session.beside(|| parts, acquired).await;
        let Some(kept) = kept.take() else {
            return Ok(Tried::Absent);
        };
        parts = kept;
        match acquired {
            Ok(more) => parts.shares.extend(more),
            // Also if its server did not answer: waiting for that group retries the attempt until `unavailable_after`.
            Err(error) if error.is_busy() || error.is_unavailable() => {
                let own = |share: &HoldShare| {
                    let hold = Arc::clone(share.hold_ref().hold());
                    (Arc::clone(share.session()), hold)
                };
                let own: Vec<_> = parts.shares.iter().map(own).collect();
                return match group.refuse_own(&own, parts).await? {
                    None => Ok(Tried::Absent),
                    Some(_) if group.is_over() => Err(error),
                    Some(_) => Ok(Tried::Refused(at)),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Tried::Granted(parts))
}

impl InScopes {
    /// Enters the scopes that have some of the keys, and acquires the others.
    async fn acquire(&self) -> Result<HoldShares, Error> {
        loop {
            let gates = pass_gates(&self.frames, &self.requests(), None).await?;
            let groups = self.groups(&gates)?;
            if !groups.is_empty() {
                let own = self.requests.iter().zip(&gates).filter_map(|(one, gate)| {
                    let outer = gate.as_ref()?.outer();
                    Some((Arc::clone(&one.registry.session), Arc::clone(outer)))
                });
                let own: Vec<_> = own.collect();
                // Given back if it is left, and at the end: nothing is held while the first group is waited for.
                let mut parts = Some(Parts {
                    gates,
                    ..Parts::default()
                });
                for group in &groups {
                    let left = parts.take().unwrap_or_default();
                    parts = group.refuse_own(&own, left).await?;
                }
                drop(parts);
                return acquire_observed(&groups, Some(self)).await;
            }
            let mut shares = HoldShares::new();
            if self.enter(gates, &mut shares)? {
                return Ok(shares);
            }
        }
    }

    fn requests(&self) -> Vec<&ClientRequest> {
        self.requests.iter().collect()
    }

    fn try_gates(&self) -> Result<Result<OpenGates, ClosedGate>, Error> {
        try_gates(&self.frames, &self.requests(), None)
    }

    /// Passes all gates, and waits at this one first.
    async fn pass_gates(
        scopes: Option<&Self>,
        closed: Option<ClosedGate>,
    ) -> Result<Option<OpenGates>, Error> {
        let Some(scopes) = scopes else {
            return Ok(None);
        };
        let requests = scopes.requests();
        pass_gates(&scopes.frames, &requests, closed)
            .await
            .map(Some)
    }

    /// The groups of those keys that have to be acquired.
    fn groups(&self, gates: &OpenGates) -> Result<Vec<Group>, Error> {
        let acquired = self.requests.iter().zip(gates).filter_map(|(one, gate)| {
            let mut one = one.clone();
            match gate {
                Some(gate) if !gate.is_beside() => return None,
                Some(gate) => {
                    one.requested_mut().through = Some(Through::Write(gate.outer().owner))
                }
                None => {}
            }
            Some(one)
        });
        Group::all(acquired)
    }

    /// Enters the scopes that have some of the keys. `shares`: those of the other keys. Returns whether all of these scopes are
    /// still open. If not, the acquisition has to start again.
    fn enter(&self, gates: OpenGates, shares: &mut HoldShares) -> Result<bool, Error> {
        for (one, gate) in self.requests.iter().zip(gates) {
            let Some(gate) = gate else {
                continue;
            };
            match gate.enter(&mut one.clone())? {
                None => return Ok(false),
                Some(Enclosing::None) => {}
                Some(Enclosing::Reenter(share, _)) => shares.push(share),
                Some(Enclosing::Beside(permit)) => {
                    let client = one.registry.session.id;
                    let resource = &one.requested().resource;
                    let is_beside = |share: &&mut HoldShare| {
                        let hold_ref = share.hold_ref();
                        hold_ref.client() == client && hold_ref.hold().resource == *resource
                    };
                    if let Some(share) = shares.iter_mut().find(is_beside) {
                        share.keep_gate(permit);
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Group {
    /// Divides requests, each for one key, into groups.
    fn all(requests: impl IntoIterator<Item = ClientRequest>) -> Result<Vec<Self>, Error> {
        let mut groups = Vec::new();
        for one in requests {
            check_open(&one)?;
            Self::add(&mut groups, one);
        }
        if groups.len() > 1 {
            for group in &mut groups {
                group.one.request.is_part = true;
            }
        }
        Ok(groups)
    }

    fn add(groups: &mut Vec<Self>, mut one: ClientRequest) {
        let is_plain = |request: &Request| {
            let mut requested = request.requested.iter();
            requested.all(|requested| requested.resource.kind.is_plain_lock())
        };
        let fits = |group: &&mut Self| {
            Arc::ptr_eq(&group.one.registry, &one.registry)
                && is_plain(&group.one.request)
                && is_plain(&one.request)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => {
                let requested = &mut group.one.request.requested;
                requested.append(&mut one.request.requested);
            }
            None => groups.push(Self { one }),
        }
    }

    /// The number of keys.
    fn count(groups: &[Self]) -> usize {
        groups.iter().flat_map(Self::keys).count()
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        let requested = self.one.request.requested.iter();
        requested.map(|requested| &requested.resource.key)
    }

    async fn acquire(&self, request: &Request) -> Result<HoldShares, Error> {
        let registry = &self.one.registry;
        let granted = wait::acquire(registry, request).await?;
        Ok(granted
            .into_iter()
            .map(|open| HoldShare::new(open, None))
            .collect())
    }

    /// Fails if a hold of this acquisition, or of a scope around it, blocks the group, so that it would wait for
    /// itself. `own`: these holds, each with its client. Returns the parts, unless the acquisition was not polled for so long
    /// that they were ended.
    async fn refuse_own(
        &self,
        own: &[(Arc<Session>, Arc<Hold>)],
        parts: Parts,
    ) -> Result<Option<Parts>, Error> {
        let session = &self.one.registry.session;
        let (refused, kept) = session.beside(|| parts, self.refuse_each_of(own)).await;
        refused?;
        Ok(kept.take())
    }

    async fn refuse_each_of(&self, own: &[(Arc<Session>, Arc<Hold>)]) -> Result<(), Error> {
        let session = &self.one.registry.session;
        for (other, hold) in own.iter().filter(|(other, _)| other.id != session.id) {
            let request = &self.one.request;
            let mut requested = request.requested.iter().map(|one| &one.resource);
            let Some(wanted) = requested.find(|wanted| one_server::excludes(hold, wanted)) else {
                continue;
            };
            if one_server::has_hold(session, request, &wanted.key, hold).await {
                let reason = format!(
                    "it is wanted with two clients of one server, {}; ask for it with one of them",
                    one_server::both(other, session)
                );
                return Err(Error::deadlock(wanted.key.text(), reason));
            }
        }
        Ok(())
    }

    /// The same keys without waiting.
    fn single_try(&self) -> Request {
        Request {
            wait: Some(Duration::ZERO),
            ..self.one.request.clone()
        }
    }

    /// Whether the wait is over.
    fn is_over(&self) -> bool {
        self.one.registry.session.now() >= self.one.request.deadline()
    }
}

/// Re-enters those holds of a quorum that enclosing scopes already have. Also returns the view of the innermost of them.
pub(crate) async fn reenter_quorum(
    requests: &mut [ClientRequest],
) -> Result<(HoldShares, Option<HoldView>), Error> {
    let Some(frames) = within_scopes(requests.iter_mut()) else {
        return Ok((HoldShares::new(), None));
    };
    loop {
        let all: Vec<&ClientRequest> = requests.iter().collect();
        // Boxed, since most acquisitions have no scope around them.
        let gates = Box::pin(pass_gates(&frames, &all, None)).await?;
        if let Some(entered) = enter_quorum(requests, gates)? {
            return Ok(entered);
        }
    }
}

/// Returns `None` if one of the scopes has closed since.
fn enter_quorum(
    requests: &mut [ClientRequest],
    gates: OpenGates,
) -> Result<Option<(HoldShares, Option<HoldView>)>, Error> {
    let mut shares = HoldShares::new();
    let mut outer = None;
    for (one, gate) in requests.iter_mut().zip(gates) {
        match gate.map(|gate| gate.enter(one)) {
            None | Some(Ok(Some(Enclosing::None))) => {}
            Some(Ok(None)) => return Ok(None),
            Some(Ok(Some(Enclosing::Reenter(share, view)))) => {
                shares.push(share);
                outer.get_or_insert(view);
            }
            Some(Ok(Some(Enclosing::Beside(_)))) => {
                let reason = "a Redlock cannot be read inside its own write";
                return Err(Error::deadlock(one.requested().resource.key.text(), reason));
            }
            // The hold on one server is lost. The other servers may still be a quorum.
            Some(Err(error)) if error.is_lost() => {}
            Some(Err(error)) => return Err(error),
        }
    }
    Ok(Some((shares, outer)))
}
