//! The attempts of one acquisition. If the outcome of an attempt is unknown, its owner is ended in the background.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{Attempt, Attempted, ConnectionGap, Fault, Reply, Target};
use crate::clock::Tick;
use crate::config::RENEWALS_PER_LEASE;
use crate::foreign;
use crate::hold::lease::Term;
use crate::hold::{Grant, Hold, InDoubtAttempt, PendingRelease, Session};
use crate::local::{OpenShare, OpenShares, Registry};
use crate::resource::key::Key;
use crate::resource::kind::{Family, Kind};
use crate::telemetry::{self, Meter};

/// Attempts on keys that are granted together, each key under an owner of its own. An attempt that was not answered is
/// sent again under the same owner.
///
/// Dropping it hands the owners to the releaser if one of the attempts is in doubt, or if the server has a place for the
/// owner in its queue.
#[derive(Debug)]
pub(super) struct Attempts {
    registry: Arc<Registry>,
    attempts: SmallVec<[Attempt; 1]>,
    /// How long the guards keep the holds that are granted.
    terms: HoldTerms,
    in_doubt: Option<InDoubtAttempt>,
    /// The attempt that is under way, if it began while there was no connection. Boxed, because that is rare, and each waiter
    /// would have room for it.
    unsent: Option<Box<Unsent>>,
    /// When the caller began to wait.
    since: Tick,
    /// Whether one of these attempts was refused by a semaphore that exists.
    has_seen_number: bool,
    /// The server keeps the owner's place in its queue until this time at the latest.
    placed_until: Option<Tick>,
}

/// An attempt that waits for a connection. It is not sent as long as the gap between two connections lasts.
#[derive(Debug)]
struct Unsent {
    gap: ConnectionGap,
    /// What is in doubt without this attempt.
    before: Option<InDoubtAttempt>,
}

/// How long the guards keep the holds that are granted to them.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldTerms {
    /// Whether they keep a hold only for the lease that was asked for. Otherwise the watchdog renews it.
    pub(super) fixed: bool,
    /// The longest time for which the watchdog renews it.
    pub(super) max_hold: Option<Duration>,
    /// A hold stops counting as held this long before its deadline.
    pub(super) margin: Duration,
    /// Where in the user's code the acquisition was made.
    pub(super) place: &'static Location<'static>,
}

/// The result of one attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Granted(OpenShares),
    /// The key with this index is held by another owner, for this long.
    Held {
        at: usize,
        ttl: Option<Duration>,
        /// The semaphore does not exist yet, so nobody holds it.
        is_unset: bool,
    },
    /// The grant came too late to be useful and is released. This owner is not used again.
    TooLate,
    /// There was a grant, but too few replicas have it, or the server may not grant yet. It is released. This owner is not
    /// used again.
    Unconfirmed(Fault),
    Failed(Fault),
}

impl Attempts {
    pub(super) fn new(
        registry: &Arc<Registry>,
        attempts: SmallVec<[Attempt; 1]>,
        terms: HoldTerms,
        since: Tick,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            attempts,
            terms,
            in_doubt: None,
            unsent: None,
            since,
            has_seen_number: false,
            placed_until: None,
        }
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
        // A hold lasts for its lease. A waiter that the server keeps in its queue may stand there for longer.
        let lasts = |attempt: &Attempt| attempt.lease.max(attempt.place.unwrap_or_default());
        let longest = self.attempts.iter().map(lasts).max();
        // Set before the first await: if the future is dropped there, the outcome of the attempt is unknown.
        // Several keys of one attempt live on one server.
        let key = self.target(0).resource.key.clone();
        let epoch = self.session().backend.epoch(&key);
        let gap = self.session().backend.connection_gap(&key);
        self.unsent = gap.map(|gap| Box::new(Unsent { gap, before }));
        self.in_doubt = Some(InDoubtAttempt {
            epoch: before.map_or(epoch, |earlier| earlier.epoch),
            until: sent.after(longest.unwrap_or_default()),
        });
        let session = &self.registry.session;
        for attempt in &mut self.attempts {
            if attempt.target.resource.kind == Kind::Fenced {
                attempt.above = session.highest_token(&attempt.target.resource.key);
            }
        }
        let answer = match self.attempts.as_slice() {
            [one] => self
                .session()
                .backend
                .attempt(one)
                .await
                .map(|one| (0, one)),
            all => self.session().backend.attempt_all(all).await,
        };
        self.unsent = None;
        match &answer {
            Err(fault) if !fault.is_final() => {
                let failure = Some(fault.clone());
                self.session().unanswered(&key, sent, failure);
            }
            Ok((_, Attempted::Granted { .. })) => {}
            _ => self.session().answered(&key),
        }
        match answer {
            Ok((_, Attempted::Granted { token })) => {
                if let Some(confirming) = self.session().backend.confirm(&self.attempts) {
                    self.session().answered(&key);
                    // Boxed, because few clients want that, and each attempt would have room for it.
                    let confirmed = Box::pin(self.confirmed(confirming, &key, sent)).await;
                    if let Err(fault) = confirmed {
                        return Outcome::Unconfirmed(fault);
                    }
                }
                self.session().granted_key(&key);
                self.placed_until = None;
                self.granted((sent, epoch), token, latest, before)
            }
            Ok((at, Attempted::Unset)) => {
                self.in_doubt = before;
                self.unset(at)
            }
            Ok((at, Attempted::Held { ttl })) => {
                self.in_doubt = before;
                let resource = &self.attempts[at].target.resource;
                if matches!(resource.kind.family(), Family::Semaphore | Family::Permit) {
                    self.has_seen_number = true;
                    self.session().saw_number(&resource.key);
                }
                self.placed_until = self.attempts[at].place.map(|place| {
                    let longest = self.session().now().after(ttl.unwrap_or_default());
                    longest.after(place)
                });
                Outcome::Held {
                    at,
                    ttl,
                    is_unset: false,
                }
            }
            Err(fault) => {
                if fault.was_refused() {
                    self.in_doubt = before;
                }
                Outcome::Failed(fault)
            }
        }
    }

    /// What is in doubt when the attempts are dropped. An attempt that still waited for a connection had no effect.
    fn still_in_doubt(&self) -> Option<InDoubtAttempt> {
        match &self.unsent {
            Some(unsent) => {
                let key = &self.target(0).resource.key;
                let gap = self.session().backend.connection_gap(key);
                match gap == Some(unsent.gap) {
                    true => unsent.before,
                    false => self.in_doubt,
                }
            }
            None => self.in_doubt,
        }
    }

    /// Waits until enough replicas have what was granted.
    async fn confirmed(
        &self,
        confirming: Reply<'_, ()>,
        key: &Key,
        sent: Tick,
    ) -> Result<(), Fault> {
        let confirmed = confirming.await;
        if let Err(fault) = &confirmed {
            telemetry::unconfirmed_grant(key, fault);
            if !fault.is_final() {
                self.session().unconfirmed(key, sent, fault.clone());
            }
        }
        confirmed
    }

    /// There is no semaphore. The waiter waits until somebody sets its permits. But if this client has seen the semaphore
    /// since the wait began, the semaphore was removed, and the wait fails.
    fn unset(&self, at: usize) -> Outcome {
        let key = &self.attempts[at].target.resource.key;
        if self.has_seen_number || self.session().has_seen_number_after(key, self.since) {
            // For those behind it: they began to wait before this was noticed.
            self.session().number_is_gone(key);
            return Outcome::Failed(Fault::NumberGone);
        }
        Outcome::Held {
            at,
            ttl: None,
            is_unset: true,
        }
    }

    /// Makes holds of a grant. The grant is too late after `latest`, or if less than a third of its lease is left.
    fn granted(
        &mut self,
        (sent, epoch): (Tick, u64),
        token: Option<u64>,
        latest: Tick,
        before: Option<InDoubtAttempt>,
    ) -> Outcome {
        let now = self.session().now();
        let is_useful = |attempt: &Attempt| {
            let left = sent.after(attempt.lease).left(now);
            now <= latest && left >= attempt.lease / RENEWALS_PER_LEASE
        };
        if let Some(late) = self.attempts.iter().find(|attempt| !is_useful(attempt)) {
            telemetry::late_grant(&late.target.resource.key, late.target.owner);
            return Outcome::TooLate;
        }
        let share = |attempt: &Attempt| self.share(attempt, (sent, epoch), token, before);
        let shares = self.attempts.iter().map(share).collect();
        // Not before the shares exist: until then the drop of the attempts ends the owners.
        self.in_doubt = None;
        Outcome::Granted(shares)
    }

    /// The share of a grant, which ends the hold when it is dropped. From here on wakers, the log and the metrics may panic.
    fn share(
        &self,
        attempt: &Attempt,
        (sent, epoch): (Tick, u64),
        token: Option<u64>,
        in_doubt: Option<InDoubtAttempt>,
    ) -> OpenShare {
        let Attempt { target, lease, .. } = attempt;
        if let Some(token) = token {
            self.session().saw_token(&target.resource.key, token);
        }
        let term = if self.terms.fixed || !target.resource.kind.has_lease() {
            Term::Until(sent.after(*lease))
        } else {
            Term::kept(sent, self.terms.max_hold)
        };
        let grant = Grant {
            target,
            token,
            sent,
            lease: *lease,
            watchdog: self.session().config.watchdog_timeout,
            in_doubt,
            epoch,
            place: self.terms.place,
            meter: Meter::of(&target.resource, &self.session().config),
        };
        let hold_ref = Hold::granted(grant, term, self.session().origin(self.terms.margin));
        let share = OpenShare::new(&self.registry, hold_ref);
        if self.attempts.len() > 1 {
            share.hold().keep_to_its_guards();
        }
        share
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        let (in_doubt, placed_until) = (self.still_in_doubt(), self.placed_until);
        let session = &self.registry.session;
        // Each of them, also if the metrics panic.
        foreign::each(self.attempts.drain(..), |attempt| {
            let pending = match (in_doubt, placed_until) {
                (Some(in_doubt), _) => PendingRelease::of_attempt(attempt.target, in_doubt),
                (None, Some(until)) => PendingRelease::of_place(attempt.target, until),
                (None, None) => return,
            };
            session.release_later(pending);
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Client;
    use crate::resource::key::Key;

    #[tokio::test(start_paused = true)]
    async fn token_is_above_all_that_the_client_has_seen() {
        let client = Client::in_memory();
        let (key, high) = (Key::new("", "order:42").unwrap(), 1 << 60);
        // Of a server that has lost its data since, or whose clock was set back.
        client.registry().session.saw_token(&key, high);
        let guard = client.fenced_lock("order:42").acquire().await.unwrap();
        assert!(guard.token() > high, "{}", guard.token());
    }
}
