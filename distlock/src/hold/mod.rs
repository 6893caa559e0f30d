//! A hold: one owner's possession of one key, shared by its guards, the watchdog and the releaser.
//!
//! # Invariants
//! 1. `count` is the number of guards alive; the server is told of it unawaited, by renewals. Nobody adds or
//!    subtracts in the server.
//! 2. *Closed? lost? count + 1*: whoever nests asks in this order in one section of the mutex, and closing a frame
//!    takes it too, so that an ended scope is told from a lost hold.
//! 3. Once a release was sent the owner is dead: a hold passes on only before that.

mod hold_ref;
pub(crate) mod lease;
mod release;
mod releaser;
mod session;
mod view;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use self::hold_ref::HoldRef;
use self::lease::{Answer, Due, Lease, Term};
pub(crate) use self::release::{Release, confirm_all};
pub(crate) use self::releaser::{PendingRelease, Settled};
pub(crate) use self::session::Session;
pub(crate) use self::view::{HoldView, Member};
use crate::backend::Target;
use crate::clock::Tick;
use crate::error::Loss;
use crate::key::Resource;
use crate::owner::Owner;

/// An attempt that may have been carried out, or may still be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InDoubtAttempt {
    /// The connection over which it went.
    pub(crate) epoch: u64,
    /// Nothing that it leaves in the server lasts beyond this, were it carried out at once.
    pub(crate) until: Tick,
}

/// One owner's possession of one key.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) permits: u32,
    /// The fencing token of its grant, where the kind has one.
    pub(crate) token: Option<u64>,
    /// An earlier attempt of this owner that nobody answered: it may still be carried out, after the release.
    doubt: Option<InDoubtAttempt>,
    /// Cancelled when the hold is lost, or freed and confirmed so.
    over: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    count: u32,
    /// The count that the server was last told, and confirmed.
    stated: u32,
    /// The key is to stay taken until then, though its guards have ended.
    taken_until: Tick,
}

/// Why a guard could not be nested into a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NestError {
    /// The scope has ended: an ordinary acquisition is right.
    Closed,
    /// The hold is lost: so is whatever runs in its scope.
    Lost(Loss),
}

/// What the end of a guard left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardEnd {
    /// Other guards go on with the hold.
    Shared,
    /// It was the last guard, and the hold is sure. Can it pass on as it is?
    Last {
        /// The lease is fresh, and the watchdog alone kept it.
        may_pass_on: bool,
    },
    /// The hold was lost before; `last`: no guard is left that could still clean up.
    Lost { loss: Loss, last: bool },
}

/// What the watchdog has to do about a hold.
pub(crate) enum WatchdogAction {
    /// Ask again at this time.
    Later(Tick),
    /// Send a renewal that states this count.
    Renew { count: u32, lease: Duration },
    /// It was lost just now.
    Lost(Loss),
    /// Nothing any more.
    Over,
}

impl State {
    /// Does the server still show another count than there is? A count of 0 is told by a release alone.
    fn is_unstated(&self) -> bool {
        self.count != self.stated && self.count > 0
    }

    /// Why the hold is no longer that guard's.
    fn loss_of(&self, hold_ref: &HoldRef, now: Tick) -> Loss {
        let of_guard = || {
            hold_ref
                .term()
                .has_ended(now)
                .then(|| hold_ref.term().loss())
        };
        let loss = self.lease.loss_at(now).or_else(of_guard);
        loss.unwrap_or(Loss::Expired)
    }

    /// May something be nested beside `beside`?
    fn check(&self, beside: &HoldRef, closed: &AtomicBool, now: Tick) -> Result<(), NestError> {
        if closed.load(Ordering::Acquire) || beside.has_ended() {
            return Err(NestError::Closed);
        }
        if beside.term().has_ended(now) || !self.lease.is_held(now) {
            return Err(NestError::Lost(self.loss_of(beside, now)));
        }
        Ok(())
    }
}

impl Hold {
    /// A hold that was asked for at `sent` and granted, with its first guard's part.
    pub(crate) fn granted(
        (target, token): (&Target, Option<u64>),
        (sent, lease): (Tick, Duration),
        term: Term,
        watchdog: Duration,
        doubt: Option<InDoubtAttempt>,
    ) -> Arc<HoldRef> {
        let hold = Self {
            resource: target.resource.clone(),
            owner: target.owner,
            permits: target.permits,
            token,
            doubt,
            over: CancellationToken::new(),
            state: Mutex::new(State {
                lease: Lease::granted(sent, lease, term, watchdog),
                count: 1,
                stated: 1,
                taken_until: Tick::default(),
            }),
        };
        HoldRef::new(Arc::new(hold), term)
    }

    /// What the server knows it by.
    pub(crate) fn target(&self) -> Target {
        Target {
            permits: self.permits,
            ..Target::of(&self.resource, self.owner)
        }
    }

    pub(crate) fn is_held(&self, now: Tick) -> bool {
        self.state.lock().lease.is_held(now)
    }

    /// Why the hold is no longer that guard's, where it is not.
    pub(crate) fn loss_of(&self, hold_ref: &HoldRef, now: Tick) -> Loss {
        self.state.lock().loss_of(hold_ref, now)
    }

    pub(crate) fn deadline(&self) -> Tick {
        self.state.lock().lease.deadline()
    }

    /// When it is lost unless it is renewed before, and a renewal helps.
    fn end(&self) -> Tick {
        self.state.lock().lease.end()
    }

    /// No copy of the hold lives in the server beyond this.
    pub(crate) fn latest_end(&self) -> Tick {
        self.state.lock().lease.latest_end()
    }

    pub(crate) fn count(&self) -> u32 {
        self.state.lock().count
    }

    /// May it lie in a waiter's slot, or go on to the next one, at `now`?
    pub(crate) fn may_pass_on(&self, now: Tick) -> bool {
        let state = self.state.lock();
        state.count == 0 && state.lease.may_pass_on(now)
    }

    /// From `since` on the key stays taken for so long, whenever its guards end.
    pub(crate) fn keep_for(&self, since: Tick, at_least: Duration) {
        if at_least.is_zero() {
            return;
        }
        let mut state = self.state.lock();
        state.taken_until = state.taken_until.max(since.after(at_least));
        state.lease.keep_to_its_guards();
    }

    /// Until when the key is to stay taken, though its guards have ended.
    pub(crate) fn taken_until(&self) -> Tick {
        self.state.lock().taken_until
    }

    /// It is one of several that were granted together: it passes to nobody but its guards.
    pub(crate) fn keep_to_its_guards(&self) {
        self.state.lock().lease.keep_to_its_guards();
    }

    /// Completes when the hold is lost, or freed and confirmed so.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Tells everyone that the hold is lost or freed. Not under a mutex: wakers may run any code.
    pub(crate) fn announce_over(&self) {
        self.over.cancel();
    }

    /// Another guard of this hold, beside `beside`, unless `closed` or lost.
    fn nest(
        self: &Arc<Self>,
        beside: &HoldRef,
        closed: &AtomicBool,
        term: Term,
        now: Tick,
    ) -> Result<Arc<HoldRef>, NestError> {
        let mut state = self.state.lock();
        state.check(beside, closed, now)?;
        state.count += 1;
        state.lease.join(term);
        Ok(HoldRef::new(Arc::clone(self), term))
    }

    /// Another hold is let in by this one, and may outlive it: from here on this one passes to nobody as it is.
    fn let_in(&self, beside: &HoldRef, closed: &AtomicBool, now: Tick) -> Result<(), NestError> {
        let mut state = self.state.lock();
        state.check(beside, closed, now)?;
        state.lease.keep_to_its_guards();
        Ok(())
    }

    /// Closes a frame: from here on nothing nests through it.
    pub(crate) fn close(&self, closed: &AtomicBool) {
        let _section = self.state.lock();
        closed.store(true, Ordering::Release);
    }

    /// The first guard of a hold that was handed over, if the hold is still good.
    pub(crate) fn succeed(
        self: &Arc<Self>,
        now: Tick,
        max_hold: Option<Duration>,
    ) -> Option<Arc<HoldRef>> {
        let mut state = self.state.lock();
        if !state.lease.may_pass_on(now) {
            return None;
        }
        let term = Term::kept(now, max_hold);
        state.count = 1;
        state.lease.pass_on(term);
        Some(HoldRef::new(Arc::clone(self), term))
    }

    /// A guard ends. Nothing is sent here, and nobody woken: [`HoldRef::announce_end`] follows.
    fn leave(&self, hold_ref: &HoldRef, now: Tick) -> GuardEnd {
        let mut state = self.state.lock();
        hold_ref.end();
        let loss = state.loss_of(hold_ref, now);
        state.lease.leave(hold_ref.term());
        state.count = state.count.saturating_sub(1);
        let last = state.count == 0;
        match (state.lease.is_held(now), last) {
            (true, true) => GuardEnd::Last {
                may_pass_on: state.lease.may_pass_on(now),
            },
            (true, false) => GuardEnd::Shared,
            (false, last) => GuardEnd::Lost { loss, last },
        }
    }

    /// No renewal follows this; `Err` where the hold was lost before.
    pub(crate) fn stop_renewals(&self, now: Tick) -> Result<(), Loss> {
        self.state.lock().lease.release(now)
    }

    /// When the watchdog should look at this hold next.
    fn next_look(&self) -> Tick {
        let state = self.state.lock();
        state.lease.next(state.is_unstated())
    }

    /// What the watchdog has to do at `now`.
    fn work(&self, now: Tick) -> WatchdogAction {
        let mut state = self.state.lock();
        let unstated = state.is_unstated();
        match state.lease.due(now, unstated) {
            Due::Nothing(next) => WatchdogAction::Later(next),
            Due::Renew(lease) => WatchdogAction::Renew {
                count: state.count.max(1),
                lease,
            },
            Due::Lost(loss) => WatchdogAction::Lost(loss),
            Due::Over => WatchdogAction::Over,
        }
    }

    /// A renewal that stated `count` was answered, or given up.
    fn renewed(
        &self,
        sent: Tick,
        (count, lease): (u32, Duration),
        answer: Answer,
        now: Tick,
    ) -> Option<Loss> {
        let mut state = self.state.lock();
        if answer == Answer::Renewed {
            state.stated = count;
        }
        state.lease.answered(sent, lease, answer, now)
    }

    fn forget_in_flight(&self) {
        self.state.lock().lease.forget_in_flight();
    }
}

impl HoldRef {
    /// The guard of this tenure ends: takes the count down. Once all mutexes are let go,
    /// [`announce_end`](Tenure::announce_end) follows.
    pub(crate) fn finish(&self, now: Tick) -> GuardEnd {
        self.hold().leave(self, now)
    }
}
