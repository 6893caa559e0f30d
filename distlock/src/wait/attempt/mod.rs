//! The attempts of one acquisition: how they are sent, and what their answers mean.
//!
//! A grant becomes a hold in [`granted`]. If the outcome of an attempt is unknown, its owner is [in doubt](in_doubt).

mod granted;
mod in_doubt;

use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::refusal::{Refusal, RefusedBy};
use super::request::{Request, RequestedKey};
use crate::backend::{Attempt, Attempted, AttemptedAll, ConnectionGap, Fault, Reply, Target};
use crate::clock::Tick;
use crate::config::MAX_LEASE;
use crate::error::HeldBy;
use crate::hold::InDoubtAttempt;
use crate::local::{OpenShares, Registry};
use crate::resource::kind::{Family, Kind};
use crate::session::Session;
use crate::telemetry;

/// Attempts on keys that are granted together, each key under a separate owner. An attempt that was not answered is
/// sent again under the same owner.
///
/// Dropping it hands the owners to the releaser if one of the attempts is in doubt, or if the server keeps the
/// owner in its queue.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    registry: &'a Arc<Registry>,
    request: &'a Request,
    attempts: SmallVec<[Attempt; 1]>,
    /// Whether there is no guard until other attempts are granted as well.
    is_part: bool,
    in_doubt: Option<InDoubtAttempt>,
    /// Whether an attempt is under way. The client may send it later than it began, for example after a reconnect.
    is_under_way: bool,
    /// The attempt that is under way, if it began while there was no connection. Boxed, because that is rare, and each waiter
    /// would have room for it.
    unsent: Option<Box<Unsent>>,
    /// Whether one of these attempts was refused by a semaphore that exists.
    has_seen_number: bool,
    /// The server keeps the owner in its queue until this time at the latest.
    queued_until: Option<Tick>,
}

/// An attempt that waits for a connection. It is not sent as long as the gap between two connections lasts.
#[derive(Debug)]
struct Unsent {
    gap: ConnectionGap,
    /// What is in doubt without this attempt.
    before: Option<InDoubtAttempt>,
}

/// When an attempt was sent, and over which connection.
#[derive(Clone, Copy)]
struct Sent {
    /// The lease counts from then.
    at: Tick,
    /// The connection that it was sent over, or an earlier one.
    epoch: u64,
}

/// The result of one attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Granted(OpenShares),
    /// A key was refused.
    Held(Refusal),
    /// The grant came too late to be useful and is released. This owner is not used again.
    TooLate,
    /// There was a grant, but too few replicas have it, or the server may not grant yet. It is released. This owner is not
    /// used again.
    Unconfirmed(Fault),
    Failed(Fault),
    /// The future was not polled for so long that the owners were ended. They are not used again.
    Absent,
}

impl Request {
    /// Attempts on all keys, with new owners. `waits`: the acquisition waits, and does not make only a single attempt.
    pub(super) fn attempts<'a>(&'a self, registry: &'a Arc<Registry>, waits: bool) -> Attempts<'a> {
        let attempts = match self.requested.as_slice() {
            // Nearly always: without an iterator, which moves each attempt more often.
            [one] => smallvec![self.attempt_on(one, &registry.session, waits)],
            all => all
                .iter()
                .map(|one| self.attempt_on(one, &registry.session, waits))
                .collect(),
        };
        self.attempts_of(attempts, registry)
    }

    /// Attempts on some of the keys.
    pub(super) fn attempts_on<'a>(
        &'a self,
        requested: impl Iterator<Item = &'a RequestedKey>,
        registry: &'a Arc<Registry>,
        waits: bool,
    ) -> Attempts<'a> {
        let attempts = requested.map(|one| self.attempt_on(one, &registry.session, waits));
        self.attempts_of(attempts.collect(), registry)
    }

    fn attempt_on(&self, requested: &RequestedKey, session: &Session, waits: bool) -> Attempt {
        let mut target = Target::of(&requested.resource, session.owners.next());
        target.permits = requested.permits;
        let kind = requested.resource.kind;
        let lease = if kind.has_lease() {
            self.first_lease(session)
        } else {
            MAX_LEASE
        };
        let mut attempt = Attempt::new(target, lease);
        attempt.through = requested.through.clone();
        if waits && kind.queues_in_server() {
            attempt.queue_ttl = Some(session.config.waiter_timeout);
        }
        attempt
    }

    fn attempts_of<'a>(
        &'a self,
        attempts: SmallVec<[Attempt; 1]>,
        registry: &'a Arc<Registry>,
    ) -> Attempts<'a> {
        let is_part = self.is_part || attempts.len() < self.requested.len();
        // The margin is zero except for a quorum.
        let is_part = is_part || !self.hold.margin.is_zero();
        Attempts::new(registry, self, attempts, is_part)
    }
}

impl<'a> Attempts<'a> {
    pub(super) fn new(
        registry: &'a Arc<Registry>,
        request: &'a Request,
        attempts: SmallVec<[Attempt; 1]>,
        is_part: bool,
    ) -> Self {
        Self {
            registry,
            request,
            attempts,
            is_part,
            in_doubt: None,
            is_under_way: false,
            unsent: None,
            has_seen_number: false,
            queued_until: None,
        }
    }

    /// Attempts on the same keys with owners that were never used.
    pub(super) fn with_new_owners(&self) -> Self {
        let session = self.session();
        let anew = self.attempts.iter().map(|attempt| {
            let mut attempt = attempt.clone();
            attempt.target.owner = session.owners.next();
            attempt
        });
        Self::new(self.registry, self.request, anew.collect(), self.is_part)
    }

    fn session(&self) -> &Arc<Session> {
        &self.registry.session
    }

    pub(super) fn target(&self, at: usize) -> &Target {
        &self.attempts[at].target
    }

    /// Whether the outcome of an earlier attempt is unknown, so that the server may have granted it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.is_some()
    }

    /// Sends one attempt now, at `sent`. A grant that is answered after `latest` is released.
    pub(super) async fn once(&mut self, sent: Tick, latest: Tick) -> Outcome {
        let before = self.in_doubt;
        let begun = self.begin(sent);
        let Some((answer, was_there)) = self.answer().await else {
            // It stays under way and in doubt, as if it was dropped: a task may send it behind the release of its owners. So the
            // drop of these attempts ends them again.
            return Outcome::Absent;
        };
        // A function of its own, so that the answer is not kept while a grant is confirmed.
        let token = match self.answered(answer, sent, before) {
            Ok(token) => token,
            Err(outcome) => return outcome,
        };
        // The clock is not read again if nothing was awaited.
        let mut noticed = was_there.then_some(sent);
        let confirmed = match self.session().backend.confirm(&self.attempts) {
            // Boxed, because few clients want that, and each attempt would have room for it.
            Some(confirming) => {
                noticed = None;
                Box::pin(self.confirmed(confirming, sent)).await
            }
            None => Some(Ok(())),
        };
        match confirmed {
            Some(Ok(())) => {}
            Some(Err(fault)) => return Outcome::Unconfirmed(fault),
            None => return self.absent(),
        }
        self.session().outages.granted(&self.target(0).resource.key);
        self.queued_until = None;
        let now = noticed.unwrap_or_else(|| self.session().now());
        self.granted(begun, now, token, latest, before)
    }

    /// Takes the answer to an attempt. Returns the token of a grant, which may have to be confirmed, or what another answer means.
    fn answered(
        &mut self,
        answer: Result<AttemptedAll, Fault>,
        sent: Tick,
        before: Option<InDoubtAttempt>,
    ) -> Result<Option<u64>, Outcome> {
        self.is_under_way = false;
        self.unsent = None;
        let AttemptedAll { at, attempted } = match answer {
            Ok(answer) => answer,
            Err(fault) => return Err(self.failed(fault, sent, before)),
        };
        let key = &self.target(0).resource.key;
        match attempted {
            Attempted::Granted { token } => Ok(token),
            Attempted::Unset => {
                self.session().outages.answered(key);
                // The server has decided about this attempt. An earlier one may still be carried out.
                self.in_doubt = before;
                Err(self.unset(at))
            }
            Attempted::Held { ttl, holder } => {
                self.session().outages.answered(key);
                self.in_doubt = before;
                Err(self.held(at, ttl, holder))
            }
        }
    }

    /// Prepares an attempt that is sent now.
    fn begin(&mut self, now: Tick) -> Sent {
        // A rule of tests/model: token_is_above_what_the_client_has_seen.
        // A rule of tests/model: attempt_is_in_doubt_before_it_is_sent.
        let before = self.in_doubt;
        // Several keys of one attempt live on one server.
        let key = &self.target(0).resource.key;
        let epoch = self.session().backend.epoch(key);
        let gap = self.session().backend.connection_gap(key);
        self.unsent = gap.map(|gap| Box::new(Unsent { gap, before }));
        // Set before the first await: if the future is dropped there, the outcome of the attempt is unknown.
        self.in_doubt = Some(InDoubtAttempt {
            epoch: before.map_or(epoch, |earlier| earlier.epoch),
            until: now.after(self.lasts()),
        });
        self.is_under_way = true;
        let session = &self.registry.session;
        for attempt in &mut self.attempts {
            if attempt.target.resource.kind == Kind::Fenced {
                attempt.above = session.tokens.highest(&attempt.target.resource.key);
            }
        }
        Sent { at: now, epoch }
    }

    /// The attempt has failed. Records for the client whether the server of its key answers. `before`: what is in doubt without
    /// this attempt.
    fn failed(&mut self, fault: Fault, sent: Tick, before: Option<InDoubtAttempt>) -> Outcome {
        let key = &self.target(0).resource.key;
        if fault.is_final() {
            // A refusal for good is an answer as well.
            self.session().outages.answered(key);
        } else {
            self.session()
                .outages
                .unanswered(key, sent, Some(fault.clone()));
        }
        if fault.was_refused() {
            self.in_doubt = before;
        } else {
            self.count_doubt_from_now();
        }
        Outcome::Failed(fault)
    }

    /// Another owner holds the key with this index.
    fn held(&mut self, at: usize, ttl: Option<Duration>, holder: Option<Box<HeldBy>>) -> Outcome {
        let resource = &self.attempts[at].target.resource;
        self.session().tracking.wrote(resource);
        if matches!(resource.kind.family(), Family::Semaphore | Family::Permit) {
            self.has_seen_number = true;
            self.session()
                .numbers
                .saw(&resource.key, self.session().now());
        }
        self.queued_until = self.attempts[at].queue_ttl.map(|queue_ttl| {
            // The server counts the waiter's own time from the end of the holder's lease.
            let longest = self.session().now().after(ttl.unwrap_or_default());
            longest.after(queue_ttl)
        });
        let by = RefusedBy::Owner { ttl, holder };
        Outcome::Held(Refusal { at, by })
    }

    /// The answer of the server, and whether it was there at once. `None` if the future was absent for so long that the owners were
    /// ended.
    async fn answer(&self) -> Option<(Result<AttemptedAll, Fault>, bool)> {
        let session = self.session();
        let owners = || self.owners_in_doubt();
        match self.attempts.as_slice() {
            [one] => {
                let (answer, kept) = session.beside(owners, session.backend.attempt(one)).await;
                let answer = answer.filter(|_| !kept.has_ended())?;
                let answer = answer.map(|attempted| AttemptedAll { at: 0, attempted });
                Some((answer, kept.is_not_made()))
            }
            all => {
                let (answer, kept) = session
                    .beside(owners, session.backend.attempt_all(all))
                    .await;
                let answer = answer.filter(|_| !kept.has_ended())?;
                Some((answer, kept.is_not_made()))
            }
        }
    }

    /// Waits until enough replicas have what was granted. `None` if the future was absent for so long that the owners were
    /// ended.
    async fn confirmed(&self, confirming: Reply<'_, ()>, sent: Tick) -> Option<Result<(), Fault>> {
        let key = &self.target(0).resource.key;
        self.session().outages.answered(key);
        let (confirmed, kept) = self
            .session()
            .beside(|| self.owners_in_doubt(), confirming)
            .await;
        let confirmed = confirmed.filter(|_| !kept.has_ended())?;
        if let Err(fault) = &confirmed {
            telemetry::unconfirmed_grant(key, fault);
            if !fault.is_final() {
                self.session().outages.unconfirmed(key, sent, fault.clone());
            }
        }
        Some(confirmed)
    }

    /// There is no semaphore. The waiter waits until somebody sets its permits. But if this client has seen the semaphore
    /// since the wait began, the semaphore was removed, and the wait fails.
    fn unset(&self, at: usize) -> Outcome {
        let key = &self.attempts[at].target.resource.key;
        if self.has_seen_number
            || self
                .session()
                .numbers
                .was_there_after(key, self.request.since)
        {
            // For those behind it: they began to wait before this was noticed.
            self.session().numbers.is_gone(key, self.session().now());
            return Outcome::Failed(Fault::NumberGone);
        }
        let by = RefusedBy::Unset;
        Outcome::Held(Refusal { at, by })
    }
}

#[cfg(test)]
mod tests {
    use crate::Client;
    use crate::resource::key::Key;

    #[tokio::test(start_paused = true)]
    async fn token_is_above_all_that_the_client_has_seen() {
        let client = Client::in_memory();
        let key = Key::new("", "order:42").unwrap();
        let high = 1 << 60;
        // Of a server that has lost its data since, or whose clock was set back.
        client.registry().session.tokens.saw(&key, high);
        let guard = client.fenced_lock("order:42").acquire().await.unwrap();
        assert!(guard.token() > high, "{}", guard.token());
    }
}
