//! One key on several independent servers, held by the client that has it on a majority of them.
//!
//! An acquisition works in rounds. In a [round](play) it asks all servers at once, with a separate owner on each. The round
//! ends soon after a quorum has answered. It does not wait for a server that answers much later, or not at all; a hold
//! that such a server may have granted is released in the background. Until that server has answered again, later
//! rounds do not wait for it after a quorum has answered.
//!
//! A server that refuses while another one has granted the key is asked whether it has that grant itself: then two of the
//! clients use one server, and the acquisition fails. An acquisition asks that of each pair of clients until
//! the server has answered once.
//!
//! If there is no quorum, everything is released and a [`pause`] follows. It ends when servers that refused send a
//! message or the leases on them are over, and in any case after a fixed time. A part of the pause is random. Otherwise
//! several clients could again and again hold some of the servers each.
//!
//! The grant of each server is a hold like any other, and that server's client renews it. It stops counting some time
//! before its deadline, because the clocks of independent servers drift. While a majority is held, the hold [comes
//! back](regain) to servers that it missed or lost.
//!
//! After the Redlock algorithm, <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>.

mod guards;
mod hold;
mod parts;
mod pause;
mod play;
mod regain;
mod round;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, select_all};
use smallvec::SmallVec;

pub(crate) use self::hold::QuorumHold;
use self::round::{Apart, Round, ServerRefusal};
use super::turn::{NoTurn, Turn};
use super::{ClientRequest, Request};
use crate::backend::Subscription;
use crate::clock::Tick;
use crate::config::{MIN_QUORUM_LEASE, RENEWALS_PER_LEASE};
use crate::error::{Blocker, Error};
use crate::local::{HoldShare, HoldShares};
use crate::session::Session;
use crate::sync::first;

/// How many of `servers` are a majority.
pub(crate) fn majority_of(servers: usize) -> usize {
    servers / 2 + 1
}

/// The part of the lease that is set aside because clocks may drift apart while it lasts: a hundredth of it, and 2 ms
/// for the precision of the clocks.
///
/// # Errors
/// [`Error::InvalidLease`] if the lease is so short that little of it would remain.
pub(crate) fn margin(one: &ClientRequest) -> Result<Duration, Error> {
    let lease = one.first_lease();
    let margin = drift(lease);
    if lease < MIN_QUORUM_LEASE {
        return Err(Error::InvalidLease { lease, margin });
    }
    one.registry.session.config.check_quorum_lease(lease)?;
    Ok(margin)
}

/// How far clocks may drift apart while a lease lasts.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Acquires a `quorum`. Each request is for the same key on another server.
pub(crate) async fn acquire(
    requests: Vec<ClientRequest>,
    quorum: usize,
) -> Result<QuorumHold, Error> {
    let closing = async {
        let sessions = requests.iter().map(|one| &one.registry.session);
        // Boxed, because `select_all` moves them.
        let closing = sessions.map(|session| Box::pin(session.closed.wait()));
        select_all(closing).await;
    };
    let rounds = Rounds::new(&requests, quorum);
    let checks = rounds.turn.as_ref().map(|turn| turn.slot.answer_checks());
    let others = async {
        crate::sync::select! {
            // In this order: nothing else matters once one of the clients is closed.
            biased;
            () = closing => Err(requests[0].request.closed()),
            Some(never) = OptionFuture::from(checks) => match never {},
        }
    };
    // In this order: the others are looked at only while there is no quorum.
    let shares = first(rounds.win(), others).await?;
    let is_closed = |one: &ClientRequest| one.registry.session.closed.is_set();
    if requests.iter().any(is_closed) {
        // First, so that nothing is held any more when the caller gets the error.
        drop(shares);
        return Err(requests[0].request.closed());
    }
    Ok(QuorumHold::new(requests, shares, quorum))
}

/// Since when more than `spare` servers have not answered, if that was so at `at` and is still so.
fn silent_since(requests: &[ClientRequest], spare: usize, at: Tick) -> Option<Tick> {
    let unanswered = |one: &ClientRequest| {
        let key = &one.requested().resource.key;
        one.registry.session.outages.current_since(key, at)
    };
    let silent = requests.iter().filter_map(unanswered);
    let mut since: SmallVec<[Tick; 8]> = silent.map(|attempts| attempts.since).collect();
    since.sort_unstable();
    since.get(spare).copied()
}

/// An acquisition that asks all servers in rounds.
struct Rounds<'a> {
    requests: &'a [ClientRequest],
    quorum: usize,
    /// For each server, the subscription that was made when the server first refused.
    subscriptions: Vec<Option<RefusalChannel>>,
    /// The turn in the queue of the first server's client. One acquisition at a time asks the servers; otherwise those
    /// of one program would compete for the servers. `None` for a single attempt.
    turn: Option<Turn<'a>>,
    /// Since when too few servers answer.
    unanswered_since: Option<Tick>,
    /// Whether another owner has blocked the acquisition so far.
    was_blocked: bool,
    apart: Apart,
}

/// A round without a quorum. A pause and another round follow.
struct FailedRound {
    refused: Vec<ServerRefusal>,
    /// How many of the servers that refused must change before there can be a quorum.
    wanting: usize,
    /// The error, if fewer servers than a quorum answered, or too late.
    unanswered: Option<Error>,
}

/// The subscription to a server that refused.
struct RefusalChannel {
    subscription: Subscription,
    /// Whether it was active when the server was last asked.
    was_active: bool,
}

impl<'a> Rounds<'a> {
    fn new(requests: &'a [ClientRequest], quorum: usize) -> Self {
        let first = &requests[0];
        let turn = || Turn::new(&first.registry, &first.request, 0, false, None, None);
        Self {
            requests,
            quorum,
            subscriptions: requests.iter().map(|_| None).collect(),
            turn: (!first.request.is_single_try()).then(turn),
            unanswered_since: None,
            was_blocked: false,
            apart: Apart::new(),
        }
    }

    /// The request that stands for all: they differ only in their servers.
    fn request(&self) -> &'a Request {
        &self.requests[0].request
    }

    fn session(&self) -> &'a Arc<Session> {
        &self.requests[0].registry.session
    }

    fn now(&self) -> Tick {
        self.session().now()
    }

    async fn win(mut self) -> Result<HoldShares, Error> {
        let deadline = self.request().deadline();
        loop {
            self.wait_for_turn(deadline).await?;
            self.mark_messages_seen();
            // Taken out, because the round borrows all the rest.
            let mut apart = std::mem::take(&mut self.apart);
            let played = self.play(&mut apart).await;
            self.apart = apart;
            let round = played?;
            if self.majority_is_useful_for(&round.shares).is_some() {
                let shares = round.shares;
                if let Some(turn) = &self.turn {
                    // The first server, in whose queue the others stand, may have granted nothing.
                    turn.slot.note_answer(false);
                }
                // By name: its turn goes to the next one, and what a function returns is not dropped if its end panics.
                drop(self);
                return Ok(shares);
            }
            let failed = self.note_failed(round, deadline)?;
            self.pause(&failed.refused, failed.wanting, deadline).await;
            if self.now() >= deadline {
                let timed_out = || self.timed_out(&failed.refused);
                return Err(failed.unanswered.unwrap_or_else(timed_out));
            }
        }
    }

    /// Handles a round without a quorum, whose grants are released. Fails if the acquisition ends with it.
    fn note_failed(&mut self, round: Round, deadline: Tick) -> Result<FailedRound, Error> {
        let Round {
            began,
            shares,
            refused,
            wanting,
            unanswered,
            refused_for_good,
        } = round;
        let is_too_old = shares.len() >= self.quorum;
        // Grants without a quorum are released in the background.
        drop(shares);
        let too_late = is_too_old.then(|| self.too_late(began));
        let unanswered = match too_late {
            // Nobody else was in the way.
            Some(error) if self.now() >= deadline => return Err(error),
            too_late => unanswered.or(too_late),
        };
        let unanswered = match unanswered {
            None => {
                (self.unanswered_since, self.was_blocked) = (None, true);
                if self.now() >= deadline {
                    return Err(self.timed_out(&refused));
                }
                if let Some(turn) = &mut self.turn {
                    turn.slot.note_answer(true);
                    turn.count_as_waiter()?;
                }
                None
            }
            Some(error) => {
                let is_known = self.is_known_outage(&refused_for_good);
                Some(self.unanswered(error, began, deadline, is_known, &refused)?)
            }
        };
        Ok(FailedRound {
            refused,
            wanting,
            unanswered,
        })
    }

    /// Before the servers are asked, so that a message that arrives meanwhile counts as new.
    fn mark_messages_seen(&mut self) {
        for channel in self.subscriptions.iter_mut().flatten() {
            channel.subscription.mark_seen();
            channel.was_active = channel.subscription.is_active();
        }
    }

    /// Handles a round that began at `began` and in which too few servers answered. Returns the error as `Err` if that
    /// has gone on for too long. `is_known`: too many servers are known not to grant it.
    fn unanswered(
        &mut self,
        error: Error,
        began: Tick,
        deadline: Tick,
        is_known: bool,
        refused: &[ServerRefusal],
    ) -> Result<Error, Error> {
        let now = self.now();
        let is_first = self.unanswered_since.is_none();
        if now >= deadline && is_first && (self.was_blocked || !is_known) {
            // The wait was over before the servers could answer: it was too short, or it was spent behind another owner.
            return Err(self.timed_out(refused));
        }
        let own = *self.unanswered_since.get_or_insert(began);
        // Another acquisition of this program may have found it before.
        let seen = self.silent_since(now);
        let seen = seen.map(|since| since.max(self.request().since));
        let since = seen.map_or(own, |seen| seen.min(own));
        let limit = self.session().config.unavailable_after;
        if now >= since.after(limit) {
            if let Some(turn) = &self.turn {
                turn.slot.give_up_line(now);
            }
            return Err(error);
        }
        if now >= deadline {
            return Err(error);
        }
        Ok(error)
    }

    /// Waits until it is first in line in the first server's client, and until the holder before it has ended or has
    /// taken too long.
    async fn wait_for_turn(&mut self, deadline: Tick) -> Result<(), Error> {
        let Some(turn) = &mut self.turn else {
            return Ok(());
        };
        turn.renew_trust();
        let requests = self.requests;
        let spare = self.requests.len() - self.quorum;
        let is_unanswered = |at| silent_since(requests, spare, at).is_some();
        let waited = turn.wait(deadline, is_unanswered).await;
        self.was_blocked |= turn.was_blocked;
        match waited {
            // A hold that was handed over is dropped: the rounds ask all servers.
            Ok(_) => Ok(()),
            Err(NoTurn::TimedOut) if !self.is_held_here() && self.is_known_outage(&[]) => {
                Err(self.no_answer(self.request().since))
            }
            Err(NoTurn::TimedOut) => Err(self.timed_out(&[])),
            Err(NoTurn::GivenUp) => {
                let since = self.silent_since(self.now());
                Err(self.no_answer(since.unwrap_or(self.request().since)))
            }
            Err(NoTurn::Failed(error)) => Err(error),
        }
    }

    /// Since when too few servers answer this program's attempts.
    fn silent_since(&self, now: Tick) -> Option<Tick> {
        silent_since(self.requests, self.requests.len() - self.quorum, now)
    }

    /// Whether holds of this program keep too many servers to leave a quorum for others.
    fn is_held_here(&self) -> bool {
        let held = |one: &&ClientRequest| {
            let resource = &one.requested().resource;
            one.registry.is_held(resource, one.registry.session.now())
        };
        self.requests.iter().filter(held).count() > self.requests.len() - self.quorum
    }

    /// Whether too many servers are known not to answer, or refused for good, for a quorum to be possible.
    fn is_known_outage(&self, refused_for_good: &[usize]) -> bool {
        let cannot_grant = |(at, one): &(usize, &ClientRequest)| {
            let key = &one.requested().resource.key;
            refused_for_good.contains(at) || one.registry.session.outages.known(key).is_some()
        };
        let cannot_grant = self.requests.iter().enumerate().filter(cannot_grant);
        cannot_grant.count() > self.requests.len() - self.quorum
    }

    /// How long a quorum of these shares stays [useful](Self::is_useful_for); `None` if too few are.
    fn majority_is_useful_for(&self, shares: &HoldShares) -> Option<Duration> {
        let useful = shares.iter().filter_map(|share| self.is_useful_for(share));
        let mut useful: SmallVec<[Duration; 8]> = useful.collect();
        useful.sort_unstable_by(|one, other| other.cmp(one));
        useful.get(self.quorum.checked_sub(1)?).copied()
    }

    /// For how long more than a quarter of the lease is left, without the client's margin; `None` if less is. Clients with different
    /// watchdog timeouts ask for different leases.
    fn is_useful_for(&self, share: &HoldShare) -> Option<Duration> {
        let hold_ref = share.hold_ref();
        let mut requests = self.requests.iter();
        let one = requests.find(|one| one.registry.session.id == hold_ref.client())?;
        let margin = one.registry.session.config.lease_margin;
        let counted = one.first_lease().saturating_sub(margin);
        hold_ref
            .left()
            .checked_sub(counted / (RENEWALS_PER_LEASE + 1))
    }

    /// Whether it stands in line, and nobody there has had an answer of the servers since it came.
    fn is_unanswered(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::is_unanswered)
    }

    fn timed_out(&self, refused: &[ServerRefusal]) -> Error {
        let key = &self.request().requested[0].resource.key;
        let ttl = refused.iter().filter_map(|refusal| refusal.by.ttl()).min();
        let blocker = match refused {
            [] if self.was_blocked && !self.is_unanswered() => Blocker::Queue(None),
            [] => Blocker::Unanswered,
            _ => Blocker::Owner(ttl),
        };
        let holder = refused
            .iter()
            .find_map(|refusal| refusal.by.holder().cloned().map(Box::new));
        let session = &self.requests[0].registry.session;
        self.request().timed_out(session, key, blocker, holder)
    }

    /// A majority has granted it, and nearly all of the lease was over by then.
    fn too_late(&self, since: Tick) -> Error {
        let key = self.request().requested[0].resource.key.text();
        let why = "the grants of a majority arrived when their leases were nearly over";
        Error::unavailable(key, self.now().since(since), why)
    }

    fn no_answer(&self, since: Tick) -> Error {
        let key = self.request().requested[0].resource.key.text();
        let why = "too few of the servers answered";
        Error::unavailable(key, self.now().since(since), why)
    }
}
