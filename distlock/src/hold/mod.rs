//! A hold: one owner's possession of one key, shared by its guards, the watchdog and the releaser.
//!
//! # Invariants
//! 1. `count` is the number of live guards. Renewals state it to the server as an absolute number, and nothing waits
//!    for that. No command adds to a count in the server or subtracts from it.
//! 2. Nesting checks *closed?*, then *lost?*, then adds 1 to the count, in one section of the mutex. Closing a frame takes
//!    the same mutex, so that an ended scope is never mistaken for a lost hold.
//! 3. An owner is never used again once a release was sent for it: a hold is handed over, or taken back from a dropped guard,
//!    only before that.

mod gate;
mod grant;
mod hold_ref;
pub(crate) mod lease;
mod nesting;
mod quorum_members;
mod quorum_tally;
mod sent_over;
mod state;
mod term;
mod timer;
mod view;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::gate::GatePermit;
pub(crate) use self::grant::{Grant, GuardClient, HoldSettings, InDoubtAttempt};
pub(crate) use self::hold_ref::HoldRef;
pub(crate) use self::lease::Lease;
use self::lease::{Answer, Due};
pub(crate) use self::nesting::{Around, NestError};
pub(crate) use self::quorum_members::QuorumMembers;
pub(crate) use self::quorum_tally::QuorumTally;
use self::sent_over::{AskedOver, ReleaseSentOver};
use self::state::State;
pub(crate) use self::state::{
    AtRelease, Confirmed, DueRenewal, GuardEnd, LatestGuard, ShownHold, WatchdogAction,
};
pub(crate) use self::term::Term;
pub(crate) use self::view::HoldView;
use crate::backend::Target;
use crate::clock::Tick;
use crate::error::Loss;
use crate::resource::key::Resource;
use crate::resource::owner::Owner;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Flag, Hint};
use crate::sync::{Mutex, OnceLock};
use crate::telemetry::{LockType, Meter};

/// One owner's possession of one key.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) resource: Resource,
    /// The client that acquired it.
    client: Arc<GuardClient>,
    /// The number of its owner.
    pub(crate) number: u64,
    pub(crate) permits: u32,
    token: Option<NonZeroU64>,
    /// Boxed, because few holds have it.
    rare: Option<Box<Rare>>,
    pub(crate) asked_over: AskedOver,
    pub(crate) meter: Meter,
    pub(crate) release_sent_over: ReleaseSentOver,
    /// Set when the hold is lost, or freed and confirmed so. A change is announced when its release was sent, when that has
    /// failed, and when its lease got longer.
    pub(crate) over: Flag,
    /// Whether code was run in a scope of its guard.
    pub(crate) in_a_scope: Hint,
    /// Whether the server is asked to tell of changes of its key.
    pub(crate) is_tracked: Hint,
    state: Mutex<State>,
}

/// What few holds have.
#[derive(Debug, Default)]
struct Rare {
    in_doubt: Option<InDoubtAttempt>,
    /// The Redlock's hold of which this is a part, once a majority of the servers has granted it.
    tally: OnceLock<Arc<QuorumTally>>,
}

impl Hold {
    /// A hold that was granted to a guard with this term.
    fn granted(grant: Grant<'_>, term: Term) -> Arc<Self> {
        let Grant {
            client,
            attempt,
            settings,
            token,
            sent,
            now,
            watchdog,
            margin,
            in_doubt,
            epoch,
            meter,
            is_of_quorum,
        } = grant;
        let target = &attempt.target;
        let rare = || {
            Box::new(Rare {
                in_doubt,
                ..Rare::default()
            })
        };
        let lease = attempt.lease;
        Arc::new(Self {
            resource: target.resource.clone(),
            client: Arc::clone(client),
            number: target.owner.number(),
            permits: target.permits,
            token: token.and_then(NonZeroU64::new),
            rare: (in_doubt.is_some() || is_of_quorum).then(rare),
            asked_over: AskedOver::new(epoch),
            meter,
            release_sent_over: ReleaseSentOver::default(),
            over: Flag::default(),
            in_a_scope: Hint::default(),
            is_tracked: Hint::default(),
            state: Mutex::new(State::granted(
                Lease::granted(sent, lease, term, watchdog).with_margin(margin),
                now,
                settings.call_site,
            )),
        })
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.client.identity.id(), self.number)
    }

    /// The number of its owner, which tells the holds of a client apart.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The fencing token of the grant, if the kind has one. Servers count from 1.
    pub(crate) fn token(&self) -> Option<u64> {
        self.token.map(NonZeroU64::get)
    }

    /// The hold as commands to the server name it.
    pub(crate) fn target(&self) -> Target {
        Target {
            permits: self.permits,
            in_doubt: self.in_doubt().is_some(),
            ..Target::of(&self.resource, self.owner())
        }
    }

    /// An earlier attempt of this owner that was not answered: it may be carried out after the release.
    pub(crate) fn in_doubt(&self) -> Option<&InDoubtAttempt> {
        self.rare.as_ref()?.in_doubt.as_ref()
    }

    fn tally(&self) -> Option<&Arc<QuorumTally>> {
        self.rare.as_ref()?.tally.get()
    }

    /// Begins a Redlock's hold with this number of parts, of which this is the first one. Each of them [belongs](Self::belongs_to) to
    /// it from then on.
    pub(crate) fn begin_quorum(
        &self,
        parts: usize,
        needs: usize,
        meter: Meter,
    ) -> Arc<QuorumTally> {
        QuorumTally::begin(&self.client, parts, needs, meter)
    }

    /// It is a part of a Redlock's hold from now on, and its loss counts. Returns whether it is: it may have been lost before.
    pub(crate) fn belongs_to(&self, tally: &Arc<QuorumTally>) -> bool {
        // Under the mutex under which a loss asks whether it counts.
        self.with_lease(|lease| {
            if let Some(rare) = &self.rare {
                let _first = rare.tally.set(Arc::clone(tally));
            }
            !lease.guards.was_lost_before_one()
        })
    }

    /// The type of the lock that is lost if this hold is lost, as the log shows it.
    pub(crate) fn lock_type(&self) -> LockType {
        match self.tally() {
            Some(_) => LockType::Red,
            None => LockType::Single(self.resource.kind),
        }
    }

    /// The hold is lost. Returns whether a lock is lost by that. It is not if the hold is a part of a Redlock that has enough other
    /// parts, or of an acquisition that has not come to a guard. Called once.
    pub(crate) fn loses_lock(&self) -> bool {
        let counts = self.with_lease(|lease| {
            let counts = self.tally().is_some() || !lease.guards.waits_for_one();
            if !counts {
                lease.guards.lose_before_one();
            }
            counts
        });
        counts && self.tally().is_none_or(|tally| tally.lose_part())
    }

    /// Counts that the lock is lost.
    pub(crate) fn count_loss(&self, loss: Loss) {
        match self.tally() {
            Some(tally) => tally.count_loss(loss),
            None => self.meter.lost(loss),
        }
    }

    /// The entry of this hold in a snapshot; `None` if it has no guard.
    pub(crate) fn shown(&self, now: Tick) -> Option<ShownHold> {
        let state = self.state.lock();
        (state.count > 0).then(|| ShownHold {
            held: state.latest_guard.held_for(now),
            left: state.lease.end().left(now),
            count: state.count,
            call_site: state.latest_guard.call_site,
        })
    }

    /// The guard that has the hold, or had it last.
    pub(crate) fn latest_guard(&self) -> LatestGuard {
        self.state.lock().latest_guard
    }

    /// Whether its latest guard ended while it was held. The metrics have how long that guard had it.
    pub(crate) fn is_counted(&self) -> bool {
        self.state.lock().is_counted
    }

    /// What the lease says at this moment.
    pub(crate) fn lease<T>(&self, read: impl FnOnce(&Lease) -> T) -> T {
        read(&self.state.lock().lease)
    }

    /// Changes the lease. The watchdog has to look at the hold after a change that makes a renewal due earlier.
    pub(crate) fn with_lease<T>(&self, change: impl FnOnce(&mut Lease) -> T) -> T {
        change(&mut self.state.lock().lease)
    }

    pub(crate) fn is_held(&self, now: Tick) -> bool {
        self.state.lock().lease.is_held(now)
    }

    /// What its release has to know.
    pub(crate) fn at_release(&self) -> AtRelease {
        self.state.lock().at_release()
    }

    pub(crate) fn count(&self) -> u32 {
        self.state.lock().count
    }

    /// Whether it may stay in a waiter's slot, or be handed over to the next waiter, at `now`.
    pub(crate) fn may_pass_on(&self, now: Tick) -> bool {
        let state = self.state.lock();
        state.count == 0 && state.lease.may_pass_on(now)
    }

    /// Keeps the key taken for this long from `since` on, even if the guards end earlier.
    pub(crate) fn keep_for(&self, since: Tick, at_least: Duration) {
        if at_least.is_zero() {
            return;
        }
        let mut state = self.state.lock();
        state.taken_until = state.taken_until.max(since.after(at_least));
        state.lease.guards.keep_hold();
    }

    /// Records the connection over which its release was sent, while that is not answered; `None` if it has failed.
    pub(crate) fn note_release_sent(&self, over: Option<u64>) {
        self.release_sent_over.note(over);
        // Also if it has failed: a waiter that is behind the hold may have to ask the server itself.
        self.over.announce_change();
    }

    /// Its last guard was dropped: the hold waits for its release, and may be taken back until then.
    pub(crate) fn wait_for_release(&self) {
        self.state.lock().waits_for_release = true;
    }

    /// Whether it waits for its release. The answer may be out of date when it arrives: [`take_back`](Hold::take_back) decides.
    pub(crate) fn is_waiting_for_release(&self) -> bool {
        self.state.lock().waits_for_release
    }

    /// Takes the hold back for the next guard, if its release has not begun and enough of its lease is left.
    pub(crate) fn take_back(&self, now: Tick) -> bool {
        // A rule of tests/model: hold_is_taken_back_only_before_its_release.
        let mut state = self.state.lock();
        let is_free = state.waits_for_release && state.lease.may_pass_on(now);
        if is_free {
            state.waits_for_release = false;
            state.lease.verification.passed_on(now);
        }
        is_free
    }

    /// Begins the release of a hold that waits for it. Returns `false` if it does not: it was taken back.
    pub(crate) fn begin_release(&self) -> bool {
        std::mem::take(&mut self.state.lock().waits_for_release)
    }

    /// Closes a frame: from now on nothing nests through it.
    pub(crate) fn close(&self, closed: &AtomicBool) {
        // Under the mutex: otherwise a nesting could pass its check of `closed` and count itself afterwards (invariant
        // 2). Release: pairs with `EnclosingScope::is_closed`, which reads without the mutex.
        let _section = self.state.lock();
        closed.store(true, Ordering::Release);
    }

    /// Something shows that the server may have lost the hold. The watchdog has to look at it after that.
    pub(crate) fn verify(&self, now: Tick) {
        // The server counts permits without a lease. It has no holds of theirs.
        if self.resource.kind.has_lease() {
            self.state.lock().lease.verification.verify(now);
        }
    }

    /// Ends the renewals. Returns what the release has to know, or the loss if the hold was lost before.
    pub(crate) fn stop_renewals(&self, now: Tick) -> Result<AtRelease, Loss> {
        let mut state = self.state.lock();
        state.lease.release(now)?;
        Ok(state.at_release())
    }

    /// When the watchdog should look at this hold next.
    pub(crate) fn next_check(&self) -> Tick {
        self.state.lock().next_check()
    }

    /// What the watchdog has to do at `now`. A renewal that is due by `soon` is sent already.
    pub(crate) fn next_action(&self, now: Tick, soon: Tick) -> WatchdogAction {
        let mut state = self.state.lock();
        let unstated = state.is_unstated();
        match state.lease.due(now, soon, unstated) {
            Due::Nothing(next) => WatchdogAction::Later(next),
            Due::Renew(lease) => WatchdogAction::Renew(DueRenewal {
                // A hold that is handed over has no guard for a moment. The server has no holder with a count of 0.
                count: state.count.max(1),
                lease,
                end: state.lease.end(),
            }),
            Due::Lost(loss) => WatchdogAction::Lost(loss),
            Due::Over => WatchdogAction::Over,
        }
    }

    /// Takes the answer to a renewal that stated `count`. Returns also when the watchdog should look at this hold next.
    pub(crate) fn renewed(
        &self,
        sent: Tick,
        count: u32,
        lease: Duration,
        answer: Answer,
        now: Tick,
    ) -> (Confirmed, Tick) {
        let mut state = self.state.lock();
        if answer == Answer::Renewed {
            // What that renewal stated. The count may have changed since.
            state.stated = count;
        }
        let was_short = !state.lease.reaches_its_terms();
        let before = state.lease.deadline();
        let confirmed = match state.lease.answered(sent, lease, answer, now) {
            Some(loss) => Confirmed::Lost(loss),
            // Also if another guard has been given a longer term since the renewal was sent.
            None if was_short && state.lease.deadline() > before => Confirmed::Longer,
            None => Confirmed::AsBefore,
        };
        (confirmed, state.next_check())
    }
}

#[cfg(test)]
mod tests;
