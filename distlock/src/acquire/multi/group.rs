//! Keys that are acquired by one command, and what an acquisition has while other keys are missing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use uuid::Uuid;

use crate::acquire::reentry::{OpenGates, check_open};
use crate::backend::Through;
use crate::error::Error;
use crate::hold::Hold;
use crate::local::{HoldShare, HoldShares};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;
use crate::session::{AbsentAcquisition, Session, Unguarded};
use crate::sync::first;
use crate::wait::{self, ClientRequest, Request, one_server};

/// Keys of one client that are waited for together.
pub(super) struct Group {
    pub(super) one: ClientRequest,
}

/// What an acquisition has while other parts of it are missing. Dropping it gives everything back.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) shares: HoldShares,
    pub(super) gates: OpenGates,
}

impl Unguarded for Parts {
    fn end(self, session: &Arc<Session>) -> Option<AbsentAcquisition> {
        let absent = self.shares.end(session);
        drop(self.gates);
        absent
    }
}

impl Group {
    /// Divides requests, each for one key, into groups.
    pub(super) fn all(
        requests: impl IntoIterator<Item = ClientRequest>,
    ) -> Result<Vec<Self>, Error> {
        let mut groups = Vec::new();
        let mut requests = requests.into_iter();
        while let Some(one) = requests.next() {
            check_open(&one)?;
            Self::add(&mut groups, one, requests.size_hint().0);
        }
        if groups.len() > 1 {
            // Each is asked once: the names of servers may change meanwhile.
            groups.sort_by_cached_key(Self::order);
            for group in &mut groups {
                group.one.request.is_part = true;
            }
        }
        Ok(groups)
    }

    /// Adds a request to its group. So many follow at least, and usually all of them are of one group.
    fn add(groups: &mut Vec<Self>, mut one: ClientRequest, following: usize) {
        let fits = |group: &&mut Self| {
            Arc::ptr_eq(&group.one.registry, &one.registry)
                && is_plain(&group.one.request)
                && is_plain(&one.request)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => {
                let requested = &mut group.one.request.requested;
                requested.reserve(one.request.requested.len() + following);
                requested.append(&mut one.request.requested);
            }
            None => groups.push(Self { one }),
        }
    }

    /// Where the group stands in the order in which groups are tried. Processes that call the servers by the same names share it.
    fn order(&self) -> (String, bool, (u16, String, Kind, Uuid)) {
        let servers = self.one.registry.session.backend.servers();
        // The group of plain locks has several keys, and which is the first one differs between acquisitions. So it always comes
        // before the groups of the other kinds.
        let is_of_one_key = !is_plain(&self.one.request);
        let (slot, key, kind, client) = rank(&self.one);
        (
            servers,
            is_of_one_key,
            (slot, key.text().to_owned(), kind, client),
        )
    }

    /// Its keys, and the owner of the write lock that each of them is read inside of.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (Uuid, &Resource, Option<Owner>)> {
        let client = self.one.registry.session.id;
        let requested = self.one.request.requested.iter();
        requested.map(move |one| {
            let write = one.through.as_deref().and_then(Through::write);
            (client, &one.resource, write)
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let requested = self.one.request.requested.iter();
        requested.map(|requested| &requested.resource.key)
    }

    pub(super) async fn acquire(&self, request: &Request) -> Result<HoldShares, Error> {
        let registry = &self.one.registry;
        let granted = wait::acquire_all(registry, request).await?;
        Ok(granted
            .into_iter()
            .map(|open| HoldShare::new(open, None))
            .collect())
    }

    /// Fails if a hold of this acquisition, or of a scope around it, blocks the group, so that it would wait for
    /// itself. `own`: these holds, each with its client. Returns the parts, unless the acquisition was not polled for so long
    /// that they were ended.
    pub(super) async fn refuse_own(
        &self,
        own: &[(Arc<Session>, Arc<Hold>)],
        parts: Parts,
    ) -> Result<Option<Parts>, Error> {
        let session = &self.one.registry.session;
        let (refused, kept) = session.beside(|| parts, self.refuse_each_of(own)).await;
        refused.transpose()?;
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
            // The question ends with the wait. Without an answer the acquisition goes on.
            let by = request.answers_by();
            if one_server::has_hold(session, &wanted.key, hold, by).await == Some(true) {
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
    pub(super) fn single_try(&self) -> Request {
        Request {
            wait: Some(Duration::ZERO),
            ..self.one.request.clone()
        }
    }

    /// Returns the output of a future, or `None` if the wait ends first. A single attempt waits for its answers.
    pub(super) async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let ClientRequest { registry, request } = &self.one;
        let too_late = registry.session.clock.sleep_until(request.answers_by());
        first(future.map(Some), too_late.map(|()| None)).await
    }

    /// The error for a wait that is over before the group was granted or refused. Of several servers in a cluster, it is not known
    /// which one has not answered.
    pub(super) fn unanswered(&self) -> Error {
        let ClientRequest { registry, request } = &self.one;
        request.timed_out_beside(&registry.session, &request.requested[0].resource.key)
    }

    /// The keys were all granted, and so late that they were not held together; that took so long, in a row. Fails if a single attempt
    /// meets that, or if a wait has met it for too long.
    pub(super) fn check_patience(&self, too_slow_for: Duration) -> Result<(), Error> {
        let ClientRequest { registry, request } = &self.one;
        if !request.is_single_try() && too_slow_for < registry.session.config.unavailable_after {
            return Ok(());
        }
        Err(request.not_held_together(too_slow_for))
    }

    /// Rests before this group is waited for, which was refused after others had been granted. They were kept from other owners for
    /// `taken_for`. `failed`: how often the acquisition has met that.
    pub(super) async fn rest(&self, taken_for: Duration, failed: u32) {
        let ClientRequest { registry, request } = &self.one;
        let session = &registry.session;
        let rest = wait::rest_after_refusal(taken_for, failed);
        let until = session.now().after(rest).min(request.deadline());
        session.clock.sleep_until(until).await;
    }

    /// Whether the wait is over.
    pub(super) fn is_over(&self) -> bool {
        self.one.registry.session.now() >= self.one.request.deadline()
    }
}

/// Whether one command can name all of these keys, as far as they are in one slot.
fn is_plain(request: &Request) -> bool {
    let mut requested = request.requested.iter();
    requested.all(|requested| requested.resource.kind.is_plain_lock())
}

/// Where a request stands among the others.
pub(super) fn rank(one: &ClientRequest) -> (u16, &Key, Kind, Uuid) {
    let Resource { kind, key } = &one.requested().resource;
    (slot(one), key, *kind, one.registry.session.id)
}

/// The part of the server's keys that one command can name. Keys of one slot stand together in the request of a group.
fn slot(one: &ClientRequest) -> u16 {
    let key = &one.requested().resource.key;
    one.registry.session.backend.home(key).slot
}
