//! The parts of an acquisition of several keys: one for each slot of a cluster, since one command can name keys of one slot
//! only. On any other server there is one part.
//!
//! The server is asked for one part after the other. All clients ask in the same order, except that a waiter asks for the
//! key first that it waits for. While it waits for that key, it holds nothing.
//!
//! # Nothing stays behind
//! * If a part is refused or is not answered, the parts before it [go back](GrantedParts) before anything else happens: to the
//!   next waiter of this client, or to the server. Then the acquisition waits for the key that was in the way.
//! * The same happens if the acquisition is dropped, fails, or reaches its deadline.
//! * Before it tries again, it rests for at least three times as long as it had the parts. So those that use these keys lose
//!   at most a quarter of their time. If it fails again and again, the rests grow to
//!   [`PART_BACKOFF`](crate::config::PART_BACKOFF). They are random, so that two clients do not take each other's parts in
//!   step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use smallvec::SmallVec;

use super::part::{GrantedParts, Part};
use super::waiter::{RoundOutcome, SeveralKeysWaiter};
use crate::clock::Tick;
use crate::error::Error;
use crate::local::{OpenShares, Registry, SlotState};
use crate::sync::first;
use crate::wait::attempt::Outcome;
use crate::wait::refusal::Refusal;
use crate::wait::request::Request;
use crate::wait::single::{TryOutcome, try_keys};

/// The outcome of a part that is asked for beside others.
enum PartOutcome {
    Granted(OpenShares),
    /// Another owner holds the key with this index.
    Held(usize),
    /// The server did not answer, or too late.
    Unanswered,
    /// The acquisition was not polled for so long that it starts again.
    Absent,
}

/// Makes a single attempt on each part, without the local queue.
pub(crate) async fn try_each(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<TryOutcome, Error> {
    let session = &registry.session;
    let mut open: VecDeque<Part> = request
        .parts(0..request.requested.len(), session)
        .into_iter()
        .collect();
    let mut granted = GrantedParts::new(registry);
    let mut of_granted = Vec::new();
    while let Some(part) = open.pop_front() {
        let tried = try_keys(registry, request, &part);
        // Without a grant there is nothing to end if this future is left.
        let tried = if granted.is_empty() {
            tried.await?
        } else {
            let (tried, kept) = session.beside(|| granted, tried).await;
            granted = kept.take().unwrap_or_else(|| {
                // It was not polled for so long that they were given back.
                open.extend(of_granted.drain(..));
                GrantedParts::new(registry)
            });
            let Some(tried) = tried else {
                open.push_front(part);
                continue;
            };
            tried?
        };
        match tried {
            TryOutcome::Granted(shares) => {
                granted.add(&part, shares);
                of_granted.push(part);
            }
            held @ TryOutcome::Held(_) => return Ok(held),
        }
    }
    if !granted.are_held() {
        let after = request.waited(session);
        return Err(request.not_held_together(after));
    }
    let mut all = granted.into_all();
    all.sort_unstable_by_key(|(at, _)| *at);
    let shares: OpenShares = all.into_iter().map(|(_, share)| share).collect();
    request.have_guards(&shares);
    Ok(TryOutcome::Granted(shares))
}

impl SeveralKeysWaiter<'_> {
    /// Asks the server for these keys, and takes the offers for all others.
    pub(super) async fn ask_for_parts(
        &mut self,
        free: Part,
    ) -> Result<Option<RoundOutcome>, Error> {
        let parts = self.own_part_first(free);
        if let Some(at) = self.silent_part(&parts) {
            return Ok(Some(self.elsewhere(at)));
        }
        let mut granted = GrantedParts::new(self.waiter.registry);
        let began = granted.since;
        for part in parts {
            if part.contains(&self.at()) {
                self.ask_for(part.clone());
                // This part is the first one, so nothing was awaited since then.
                match self.ask_server(began).await? {
                    // The usual case: one command has asked for all keys, so nothing else is missing.
                    Some(RoundOutcome::All(shares)) if self.asked.are_all() => {
                        self.request().have_guards(&shares);
                        return Ok(Some(RoundOutcome::All(shares)));
                    }
                    Some(RoundOutcome::All(shares)) => granted.add(&part, shares),
                    other => return Ok(other),
                }
                continue;
            }
            let session = self.session();
            let (asked, kept) = session.beside(|| granted, self.ask_beside(&part)).await;
            let kept = kept.take();
            let is_absent = kept.is_none();
            granted = kept.unwrap_or_else(|| GrantedParts::new(self.waiter.registry));
            match asked.unwrap_or(Ok(PartOutcome::Absent))? {
                PartOutcome::Granted(shares) => {
                    granted.add(&part, shares);
                    // The parts before it were given back meanwhile. This one goes back as well, with `granted`.
                    if is_absent {
                        return Ok(Some(self.elsewhere(self.at())));
                    }
                }
                PartOutcome::Held(at) => {
                    self.too_slow_for = Duration::ZERO;
                    let taken_for = granted.taken_for();
                    return Ok(Some(self.refused_beside(at, taken_for)));
                }
                // It asks there first next, and pauses while that server does not answer.
                PartOutcome::Unanswered => return Ok(Some(self.elsewhere(part[0]))),
                PartOutcome::Absent => return Ok(Some(self.elsewhere(self.at()))),
            }
        }
        self.take_parts(granted, began)
    }

    /// Divides these keys into parts. The server is asked for its own key first: it sleeps if that is refused, so it must hold nothing
    /// then.
    fn own_part_first(&self, keys: Part) -> SmallVec<[Part; 1]> {
        let mut parts = self.request().parts(keys, self.session());
        parts.sort_by_key(|part| !part.contains(&self.at()));
        parts
    }

    /// Takes all parts, of which the first was asked for when it `began`. If some of them have ended meanwhile, it asks again, unless
    /// that has gone on for too long.
    fn take_parts(
        &mut self,
        granted: GrantedParts,
        began: Tick,
    ) -> Result<Option<RoundOutcome>, Error> {
        if granted.are_held() {
            return Ok(self.take_all(granted.into_all()));
        }
        self.too_slow_for += self.session().now().since(began);
        if self.too_slow_for >= self.session().config.unavailable_after {
            return Err(self.request().not_held_together(self.too_slow_for));
        }
        Ok(Some(self.elsewhere(self.at())))
    }

    /// Asks for its own key alone if its server is known not to answer, so that nothing is kept from others meanwhile. Fails if
    /// that server stays silent for too long.
    ///
    /// `None`: there is nothing to find out.
    pub(super) async fn probe(&mut self) -> Result<Option<Option<RoundOutcome>>, Error> {
        let own = self.request().key(self.at());
        if !self.session().outages.is_silent(own)
            || !matches!(self.waiter.turn.slot.state(), SlotState::Free { .. })
            || !self.request().is_over_several_slots(self.session())
        {
            return Ok(None);
        }
        self.ask_alone().await.map(Some)
    }

    /// Asks for its own key alone. A grant is given back: it shows that the server answers, and the keys are collected as
    /// usual then.
    pub(super) async fn ask_alone(&mut self) -> Result<Option<RoundOutcome>, Error> {
        self.rank = self.waiter.turn.slot.ticket();
        self.ask_for(Part::from_elem(self.at(), 1));
        let outcome = self.ask_server(self.session().now()).await?;
        let Some(RoundOutcome::All(shares)) = outcome else {
            return Ok(outcome);
        };
        // Dropped at the end, which gives the key back.
        let mut granted = GrantedParts::new(self.waiter.registry);
        granted.add(&Part::from_elem(self.at(), 1), shares);
        Ok(Some(self.elsewhere(self.at())))
    }

    /// The first key of a part whose server is known not to answer, if that of its own key is not. It waits there, and not
    /// while it keeps other keys from others.
    fn silent_part(&self, parts: &[Part]) -> Option<usize> {
        let is_silent = |at: usize| self.session().outages.is_silent(self.request().key(at));
        let mut others = parts.iter().filter(|part| !part.contains(&self.at()));
        let silent = others.find(|part| is_silent(part[0]))?;
        (!is_silent(self.at())).then_some(silent[0])
    }

    /// Sends one attempt for a part that does not have its own key. Does not sleep.
    async fn ask_beside(&mut self, part: &Part) -> Result<PartOutcome, Error> {
        let session = self.session();
        let request = self.request();
        let key = request.key(part[0]);
        let requested = part.iter().map(|at| &request.requested[*at]);
        // Dropped at the end of this function: if one of them is in doubt, its owner is ended.
        let mut attempts = request.attempts_on(requested, self.waiter.registry, true);
        let sent = session.now();
        let answered = attempts.once(sent, request.deadline()).map(Some);
        let too_late = session.clock.sleep_until(request.deadline());
        let too_late = too_late.map(|()| None);
        // In this order: an answer that has arrived counts, even if the time is over by now.
        let Some(outcome) = first(answered, too_late).await else {
            session.outages.unanswered(key, sent, None);
            return Err(request.timed_out_beside(session, key));
        };
        match outcome {
            Outcome::Granted(shares) => {
                self.unanswered.answered(part[0]);
                for (at, share) in part.iter().zip(&shares) {
                    self.granted_at(*at, share.hold());
                }
                Ok(PartOutcome::Granted(shares))
            }
            Outcome::Held(Refusal { at, .. }) => {
                self.unanswered.answered(part[0]);
                Ok(PartOutcome::Held(part[at]))
            }
            Outcome::Failed(fault) | Outcome::Unconfirmed(fault) if fault.is_final() => {
                Err(fault.into_error(key, session.now().since(request.since)))
            }
            Outcome::TooLate => Ok(PartOutcome::Unanswered),
            Outcome::Absent => Ok(PartOutcome::Absent),
            Outcome::Failed(fault) | Outcome::Unconfirmed(fault) => {
                let since = self.unanswered.note(part[0], sent);
                let after = session.now().since(since);
                if after >= session.config.unavailable_after {
                    Err(fault.into_error(key, after))
                } else {
                    Ok(PartOutcome::Unanswered)
                }
            }
        }
    }
}
