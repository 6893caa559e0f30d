//! One key on several independent servers: held by whoever has a majority of them.
//!
//! All servers are asked at once, each under an owner of its own, and the time of a round is that of the quorum: those
//! that answer much later than it, or not at all, are let go, and what they may have granted is released in the background.
//! Of one that was let go nobody waits for more than the quorum, until it has answered that release or anything else.
//! Without a quorum everything goes back, and the next round comes after news from a server that refused, when its lease is
//! over, or in the end by the clock; after a pause at random, so that several who share the servers between them do not
//! meet again.
//!
//! Each part is a hold like any other, renewed by its client. It counts until somewhat before its deadline, for the
//! clocks of independent servers drift.
//!
//! After the Redlock algorithm, <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::{SmallVec, smallvec};

use super::{HoldRefs, Request, TryOutcome, try_once};
use crate::backend::{Subscription, Target, cause};
use crate::clock::Tick;
use crate::config::{
    MAX_SLEEP_UNTOLD, NEIGHBOUR_TRUST, QUORUM_GRACE, QUORUM_JITTER, RENEWALS_PER_LEASE,
};
use crate::error::{Blocker, Error};
use crate::hold::HoldView;
use crate::local::{HoldShare, NextStep, QueueSlot, Registry, WaiterSlot};
use crate::owner::Owner;

type HoldShares = SmallVec<[HoldShare; 1]>;

/// How many of so many servers are a majority.
pub(crate) fn of(servers: usize) -> usize {
    servers / 2 + 1
}

/// Acquires a `quorum`; each ask is for the one key, on a server of its own.
pub(crate) async fn acquire(
    requests: Vec<(Arc<Registry>, Request)>,
    quorum: usize,
) -> Result<HoldShares, Error> {
    Rounds::new(requests, quorum).win().await
}

/// The part of a lease by which clocks may drift apart while it lasts: a hundredth of it, and what they are read by.
pub(crate) fn margin(registry: &Registry, request: &Request) -> Duration {
    lease(registry, request) / 100 + Duration::from_millis(2)
}

fn lease(registry: &Registry, request: &Request) -> Duration {
    request.first_lease(&registry.session)
}

/// An acquisition by rounds of asking everybody.
struct Rounds {
    requests: Vec<(Arc<Registry>, Request)>,
    quorum: usize,
    /// To each server that refused, and whether it stood when that was last asked.
    subscriptions: Vec<Option<(Subscription, bool)>>,
    /// Since when too many servers did not answer.
    failing_since: Option<Tick>,
    /// Counts it as a waiter, once it had to wait.
    waiter_slot: Option<WaiterSlot>,
    /// Was anybody in the way so far?
    blocked: bool,
}

/// What a round came to.
struct Round {
    parts: HoldShares,
    /// Who refused, and what is left of the lease in its way.
    refused: Vec<(usize, Option<Duration>)>,
    /// Of how many of those there has to be news before there can be a quorum.
    wanting: usize,
    /// Why less than a quorum answered, if that is so.
    unanswered: Option<Error>,
}

impl Rounds {
    fn new(requests: Vec<(Arc<Registry>, Request)>, quorum: usize) -> Self {
        Self {
            quorum,
            subscriptions: requests.iter().map(|_| None).collect(),
            requests,
            failing_since: None,
            waiter_slot: None,
            blocked: false,
        }
    }

    /// It has to wait: from here on it counts as a waiter, unless those are too many.
    fn count_as_waiter(&mut self) -> Result<(), Error> {
        let (registry, request) = &self.requests[0];
        if self.waiter_slot.is_none() {
            self.waiter_slot = Some(registry.count_as_waiter(request, 0, false)?);
        }
        Ok(())
    }

    /// The ask that stands for all: they differ only in their servers.
    fn request(&self) -> &Request {
        &self.requests[0].1
    }

    fn now(&self) -> Tick {
        self.requests[0].0.session.now()
    }

    async fn sleep_until(&self, until: Tick) {
        self.requests[0].0.session.clock.sleep_until(until).await;
    }

    async fn win(mut self) -> Result<HoldShares, Error> {
        let deadline = self.request().deadline();
        let single = self.request().wait.is_some_and(|wait| wait.is_zero());
        // Of one program one at a time, or they would take the servers from each other.
        let (registry, request) = &self.requests[0];
        let mut slot = (!single).then(|| registry.join(request, 0, false));
        loop {
            if let Some(slot) = &mut slot {
                self.wait_in_line(slot, deadline).await?;
            }
            let began = self.now();
            for (subscription, was_active) in self.subscriptions.iter_mut().flatten() {
                subscription.mark_seen();
                *was_active = subscription.is_active();
            }
            let round = self.play(deadline).await;
            if round.parts.len() >= self.quorum && self.is_valid(&round.parts) {
                return Ok(round.parts);
            }
            let Round {
                parts,
                refused,
                wanting,
                unanswered,
            } = round;
            // What was had goes back, in the background.
            drop(parts);
            let now = self.now();
            let failed = match unanswered {
                None => {
                    (self.failing_since, self.blocked) = (None, true);
                    if now >= deadline {
                        return Err(self.timed_out(&refused));
                    }
                    None
                }
                // Its wait was over before they could answer: what it waited for was something else.
                Some(_) if self.blocked && self.failing_since.is_none() && now >= deadline => {
                    return Err(self.timed_out(&refused));
                }
                Some(error) => {
                    let since = *self.failing_since.get_or_insert(began);
                    let limit = self.requests[0].0.session.config.unavailable_after;
                    if now >= since.after(limit).min(deadline) {
                        return Err(error);
                    }
                    Some(error)
                }
            };
            if failed.is_none() {
                self.count_as_waiter()?;
            }
            self.pause(&refused, wanting, deadline).await;
            if self.now() >= deadline {
                return Err(failed.unwrap_or_else(|| self.timed_out(&refused)));
            }
        }
    }

    /// Waits until it is first in line, and the one before it has ended or was trusted long enough.
    async fn wait_in_line(&mut self, slot: &mut QueueSlot, deadline: Tick) -> Result<(), Error> {
        let mut trust_until = None;
        loop {
            let now = self.now();
            if now >= deadline {
                return Err(self.timed_out(&[]));
            }
            let (before, until) = match slot.next_step() {
                NextStep::HandedOver(_) | NextStep::Attempt { .. } => return Ok(()),
                NextStep::WaitInLine => (None, deadline),
                NextStep::Behind(hold) => {
                    let trusted = *trust_until.get_or_insert(now.after(NEIGHBOUR_TRUST));
                    if now >= trusted {
                        return Ok(());
                    }
                    (Some(hold), trusted.min(deadline))
                }
            };
            self.count_as_waiter()?;
            // A hold without guards is only being released: nobody is in the way.
            self.blocked |= before.as_ref().is_none_or(|hold| hold.count() > 0);
            let ended = async {
                match before {
                    Some(hold) => hold.over().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = slot.woken() => {}
                () = ended => {}
                () = self.sleep_until(until) => {}
            }
        }
    }

    /// Asks everybody, until a quorum has answered and a grace for the others is over, or none can answer.
    async fn play(&self, deadline: Tick) -> Round {
        let began = self.now();
        let (mut parts, mut refused, mut failed) = (HoldShares::new(), Vec::new(), None);
        let (mut granted, mut failures) = (0, 0);
        let request =
            |(at, (registry, request))| async move { (at, try_once(registry, request).await) };
        let asked = self
            .requests
            .iter()
            .map(|(registry, request)| (registry, request));
        let mut tries: FuturesUnordered<_> = asked.enumerate().map(request).collect();
        // A single try is bounded by the backend.
        let single = self.request().wait.is_some_and(|wait| wait.is_zero());
        let mut until = if single { Tick::NEVER } else { deadline };
        let mut owing: SmallVec<[bool; 8]> = smallvec![true; self.requests.len()];
        loop {
            let spoken = parts.len() + refused.len() >= self.quorum;
            let answer = if spoken && !self.any_may_answer(&owing) {
                tries.next().now_or_never().flatten()
            } else {
                tokio::select! {
                    biased;
                    answer = tries.next() => answer,
                    () = self.sleep_until(until) => None,
                }
            };
            let Some((at, tried)) = answer else {
                self.let_go(&owing);
                break;
            };
            owing[at] = false;
            self.requests[at].0.session.set_silent(tried.is_err());
            match tried {
                Ok(TryOutcome::Granted(hold_refs)) => {
                    granted += 1;
                    parts.extend(self.parts_of(at, hold_refs));
                }
                Ok(TryOutcome::Held { ttl, .. }) => refused.push((at, ttl)),
                Err(error) => {
                    failures += 1;
                    failed = failed.or(Some(error));
                }
            }
            let (answered, spare) = (granted + refused.len(), self.requests.len() - self.quorum);
            let in_vain = refused.len() + failures > spare;
            if in_vain {
                // It keeps others out, while it is still open whether this is busy or unavailable.
                parts.clear();
            }
            if failures > spare || in_vain && answered >= self.quorum && single {
                break;
            }
            // A quorum has spoken: of use are only those that do so soon, if only as refusals, of whose end there will be
            // news. What was granted in vain keeps others out.
            if answered == self.quorum {
                let took = self.now().since(began);
                until = until.min(self.now().after((took / 5).max(QUORUM_GRACE)));
            }
        }
        let answered = granted + refused.len() >= self.quorum;
        Round {
            unanswered: (!answered).then(|| failed.unwrap_or_else(|| self.no_answer(began))),
            wanting: (self.quorum + refused.len() + failures)
                .saturating_sub(self.requests.len())
                .max(1),
            parts,
            refused,
        }
    }

    /// Is there one among those who owe an answer that is known to give any? Who hangs costs the grace once, and not each
    /// round.
    fn any_may_answer(&self, owing: &[bool]) -> bool {
        let mut owing = self.requests.iter().zip(owing).filter(|(_, owes)| **owes);
        owing.any(|((registry, _), _)| !registry.session.is_silent())
    }

    /// Waits no longer for those who owe an answer. What they may have granted is released in the background, and once
    /// that is answered they are waited for again.
    fn let_go(&self, owing: &[bool]) {
        for ((registry, _), _) in self.requests.iter().zip(owing).filter(|(_, owes)| **owes) {
            registry.session.set_silent(true);
        }
    }

    fn parts_of(&self, at: usize, hold_refs: HoldRefs) -> impl Iterator<Item = HoldShare> {
        let (registry, request) = &self.requests[at];
        let margin = margin(registry, request);
        hold_refs.into_iter().map(move |hold_ref| {
            hold_ref.hold().keep_to_its_guards();
            HoldShare::new(Arc::clone(registry), hold_ref, None).with_margin(margin)
        })
    }

    /// Is a quorum left for at least the part of the lease in which it would be renewed?
    fn is_valid(&self, parts: &HoldShares) -> bool {
        let (registry, request) = &self.requests[0];
        let view = HoldView::of(parts.iter().map(HoldShare::member), self.quorum);
        view.left() >= lease(registry, request) / (RENEWALS_PER_LEASE + 1)
    }

    /// Until there may be a quorum: when of `wanting` who refused there was news, or the lease in the way is over; or by
    /// the clock. News of fewer is what others make who try in vain, and of whoever granted it is our own.
    async fn pause(
        &mut self,
        refused: &[(usize, Option<Duration>)],
        wanting: usize,
        deadline: Tick,
    ) {
        let now = self.now();
        let listens = self.request().requested[0].resource.kind.listens();
        let pause = if !listens {
            self.request().requested[0].pause.1
        } else if refused.len() < wanting {
            // Too many did not answer: of their return there is no news.
            QUORUM_JITTER
        } else {
            MAX_SLEEP_UNTOLD
        };
        for (at, _) in refused.iter().filter(|_| listens) {
            let (registry, request) = &self.requests[*at];
            let requested = &request.requested[0];
            let nobody = Owner::new(registry.session.id, 0);
            let target = Target::of(&requested.resource, nobody);
            self.subscriptions[*at]
                .get_or_insert_with(|| (registry.session.backend.subscribe(&target), false));
        }
        let clock = self.requests[0].0.session.clock.clone();
        let subscriptions = self.subscriptions.iter_mut().enumerate();
        let news = subscriptions.filter_map(|(at, subscription)| {
            let (_, ttl) = refused.iter().find(|(refused, _)| *refused == at)?;
            let over = ttl.map_or(Tick::NEVER, |ttl| now.after(ttl));
            let ((subscription, was_active), clock) = (subscription.as_mut()?, &clock);
            Some(async move {
                tokio::select! {
                    () = subscription.changed(*was_active) => {}
                    () = clock.sleep_until(over) => {}
                }
            })
        });
        let mut news: FuturesUnordered<_> = news.collect();
        let news = async {
            for _ in 0..wanting {
                if news.next().await.is_none() {
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            () = news => {}
            () = clock.sleep_until(now.after(pause).min(deadline)) => {}
        }
        let jitter = QUORUM_JITTER.mul_f64(rand::random());
        clock
            .sleep_until(clock.now().after(jitter).min(deadline))
            .await;
    }

    fn timed_out(&self, refused: &[(usize, Option<Duration>)]) -> Error {
        let key = &self.request().requested[0].resource.key;
        let ttl = refused.iter().filter_map(|(_, ttl)| *ttl).min();
        let blocker = match refused {
            [] => Blocker::Queue,
            _ => Blocker::Owner(ttl),
        };
        self.request().timed_out(key, self.now(), blocker)
    }

    fn no_answer(&self, since: Tick) -> Error {
        Error::Unavailable {
            key: self.request().requested[0].resource.key.text().to_owned(),
            after: self.now().since(since),
            cause: cause("too few of the servers answered"),
        }
    }
}
