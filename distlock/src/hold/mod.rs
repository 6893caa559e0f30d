//! A hold: one owner's possession of one key, shared by its guards, the watchdog and the releaser.
//!
//! # Invariants
//! 1. `count` is the number of live guards. Renewals state it to the server as an absolute number, and nothing waits
//!    for that. No command adds to a count in the server or subtracts from it.
//! 2. Nesting checks *closed?*, then *lost?*, then adds 1 to the count, in one section of the mutex. Closing a frame takes
//!    the same mutex, so that an ended scope is never mistaken for a lost hold.
//! 3. An owner is never used again once a release was sent for it: a hold is handed over, or taken back from a dropped guard,
//!    only before that.

mod flag;
mod grant;
mod hold_ref;
pub(crate) mod lease;
mod nesting;
mod term;
mod terms;
mod view;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::flag::Flag;
pub(crate) use self::grant::{Grant, InDoubtAttempt};
pub(crate) use self::hold_ref::{HoldRef, Origin};
use self::lease::{Answer, Due, Lease};
use self::nesting::EnclosingGuard;
pub(crate) use self::nesting::NestError;
use self::term::GuardTerm;
pub(crate) use self::term::Term;
pub(crate) use self::terms::HoldTerms;
pub(crate) use self::view::{HoldView, QuorumMembers};
use crate::backend::Target;
use crate::clock::Tick;
use crate::config::MOST_ENTRIES;
use crate::error::Loss;
use crate::mutex::Mutex;
use crate::resource::key::Resource;
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::telemetry::Meter;

/// One owner's possession of one key.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) permits: u32,
    /// The fencing token of the grant, if the kind has one.
    pub(crate) token: Option<u64>,
    /// An earlier attempt of this owner that was not answered: it may be carried out after the release.
    pub(crate) in_doubt: Option<InDoubtAttempt>,
    /// Epoch of the last connection on which the server confirmed this hold.
    asked_over: AtomicU64,
    pub(crate) meter: Meter,
    /// The connection over which its release was sent, while that is not answered; [`NOT_SENT`] otherwise.
    release_sent_over: AtomicU64,
    /// Set when the hold is lost, or freed and confirmed so.
    over: Flag,
    /// Whether code was run in a scope of its guard.
    in_a_scope: AtomicBool,
    state: Mutex<State>,
}

/// No connection has this number.
const NOT_SENT: u64 = u64::MAX;

#[derive(Debug)]
struct State {
    lease: Lease,
    /// Its last guard was dropped, and its release has not begun. The side that resets this decides what becomes of the hold.
    waits_for_release: bool,
    count: u32,
    /// The count that the server confirmed last.
    stated: u32,
    /// The key stays taken until then, also after its guards have ended.
    taken_until: Tick,
    /// When the guard that has the hold was granted it, or took it over.
    since: Tick,
    /// Where in the user's code that guard was acquired.
    call_site: &'static Location<'static>,
}

/// A hold at one moment.
pub(crate) struct ShownHold {
    pub(crate) held: Duration,
    /// How long it is still held, unless it is renewed.
    pub(crate) left: Duration,
    pub(crate) count: u32,
    pub(crate) call_site: &'static Location<'static>,
}

/// How a guard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardEnd {
    /// Other guards of the hold remain.
    Shared,
    /// It was the last guard, and the hold is still held.
    Last {
        /// The lease is fresh and was kept by the watchdog alone, so the hold can be handed over.
        may_pass_on: bool,
        /// How long the guard had the hold.
        held: Duration,
    },
    /// The hold was lost before. `last`: no guard is left to clean up later.
    Lost { loss: Loss, last: bool },
}

/// What the watchdog has to do about a hold.
pub(crate) enum WatchdogAction {
    /// Look again at this time.
    Later(Tick),
    /// Send a renewal that states this count.
    Renew { count: u32, lease: Duration },
    /// It was lost just now.
    Lost(Loss),
    /// Nothing: the hold is over.
    Over,
}

/// What an answer to a renewal has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    /// The hold is lost.
    Lost(Loss),
    /// The lease now lasts as long as the longest fixed term, which it did not before.
    Longer,
    /// Nothing that anybody waits for.
    AsBefore,
}

impl State {
    /// Whether the server still has another count. A count of 0 is stated only by a release.
    fn is_unstated(&self) -> bool {
        self.count != self.stated && self.count > 0
    }

    /// How a guard with this term lost the hold.
    fn loss_of(&self, term: Term, now: Tick) -> Loss {
        let of_guard = || term.has_ended(now).then(|| term.loss());
        let loss = self.lease.loss_at(now).or_else(of_guard);
        loss.unwrap_or(Loss::Expired)
    }

    /// Whether a guard or another hold may be nested into this enclosing guard.
    fn check(&self, enclosing: EnclosingGuard<'_>) -> Result<(), NestError> {
        if enclosing.has_ended() {
            return Err(NestError::Closed);
        }
        let EnclosingGuard {
            is_left_alone,
            term,
            now,
            ..
        } = enclosing;
        if is_left_alone {
            return Err(NestError::Lost(Loss::NewIdentity));
        }
        if term.has_ended(now) || !self.lease.is_held(now) {
            return Err(NestError::Lost(self.loss_of(term, now)));
        }
        Ok(())
    }
}

impl Hold {
    /// A hold that was granted to a guard with this term.
    fn granted(grant: Grant<'_>, term: Term) -> Arc<Self> {
        let Grant {
            attempt,
            terms,
            token,
            sent,
            now,
            watchdog,
            margin,
            in_doubt,
            epoch,
            meter,
        } = grant;
        let target = &attempt.target;
        let lease = attempt.lease;
        Arc::new(Self {
            resource: target.resource.clone(),
            owner: target.owner,
            permits: target.permits,
            token,
            in_doubt,
            asked_over: AtomicU64::new(epoch),
            meter,
            release_sent_over: AtomicU64::new(NOT_SENT),
            over: Flag::default(),
            in_a_scope: AtomicBool::new(false),
            state: Mutex::new(State {
                lease: Lease::granted(sent, lease, term, watchdog).with_margin(margin),
                waits_for_release: false,
                count: 1,
                stated: 1,
                taken_until: Tick::default(),
                since: now,
                call_site: terms.call_site,
            }),
        })
    }

    /// The hold as commands to the server name it.
    pub(crate) fn target(&self) -> Target {
        Target {
            permits: self.permits,
            in_doubt: self.in_doubt.is_some(),
            ..Target::of(&self.resource, self.owner)
        }
    }

    /// The entry of this hold in a snapshot; `None` if it has no guard.
    pub(crate) fn shown(&self, now: Tick) -> Option<ShownHold> {
        let state = self.state.lock();
        (state.count > 0).then(|| ShownHold {
            held: now.since(state.since),
            left: state.lease.end().left(now),
            count: state.count,
            call_site: state.call_site,
        })
    }

    /// Where in the user's code the guard that has the hold was acquired.
    pub(crate) fn call_site(&self) -> &'static Location<'static> {
        self.state.lock().call_site
    }

    /// How long the guard that has the hold has had it at `now`.
    pub(crate) fn held_for(&self, now: Tick) -> Duration {
        now.since(self.state.lock().since)
    }

    pub(crate) fn is_held(&self, now: Tick) -> bool {
        self.state.lock().lease.is_held(now)
    }

    /// Whether the server was not yet asked for the hold over connection `epoch`. Records that it is asked now.
    pub(crate) fn is_new_connection(&self, epoch: u64) -> bool {
        // Relaxed: the watchdog and the grant that is being watched may both ask, which does no harm.
        self.asked_over.swap(epoch, Ordering::Relaxed) != epoch
    }

    /// How a guard with this term lost the hold. Call it only if the guard no longer holds the key.
    fn loss_of(&self, term: Term, now: Tick) -> Loss {
        self.state.lock().loss_of(term, now)
    }

    pub(crate) fn deadline(&self) -> Tick {
        self.state.lock().lease.deadline()
    }

    /// When the hold is lost unless a renewal is confirmed before, or when `max_hold` ends it.
    pub(crate) fn end(&self) -> Tick {
        self.state.lock().lease.end()
    }

    /// When the lease ends in the server, by its last confirmation.
    pub(crate) fn server_end(&self) -> Tick {
        self.state.lock().lease.server_end()
    }

    /// The server has no copy of the hold after this time.
    pub(crate) fn latest_end(&self) -> Tick {
        self.state.lock().lease.latest_end()
    }

    /// Since when its renewals fail, if they do.
    pub(crate) fn failing_since(&self) -> Option<Tick> {
        self.state.lock().lease.failing_since()
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
        state.lease.keep_to_its_guards();
    }

    /// Until when the key stays taken after its guards have ended.
    pub(crate) fn taken_until(&self) -> Tick {
        self.state.lock().taken_until
    }

    /// The hold is never handed over: it is one of several that were granted together.
    pub(crate) fn keep_to_its_guards(&self) {
        self.state.lock().lease.keep_to_its_guards();
    }

    /// It is one of several that are acquired together, and is not renewed before there is a guard.
    pub(crate) fn wait_for_guard(&self) {
        self.state.lock().lease.wait_for_guard();
    }

    /// There is a guard. Returns whether it was waited for.
    pub(crate) fn has_guard(&self) -> bool {
        self.state.lock().lease.has_guard()
    }

    /// Completes when the hold is lost, or freed and confirmed so.
    pub(crate) async fn over(&self) {
        self.over.wait().await;
    }

    /// Completes when the hold is over, or when its release was sent.
    pub(crate) async fn over_or_release_sent(&self) {
        self.over.changed().await;
    }

    /// Records the connection over which its release was sent, while that is not answered; `None` if it has failed.
    pub(crate) fn note_release_sent(&self, over: Option<u64>) {
        // Release: pairs with the load in `is_release_sent_over`. What is sent after that load is sent after the release.
        self.release_sent_over
            .store(over.unwrap_or(NOT_SENT), Ordering::Release);
        if over.is_some() {
            self.over.announce_change();
        }
    }

    /// Whether its release was sent over the present connection, and is not answered yet. What is sent now is executed after
    /// the release.
    pub(crate) fn is_release_sent_over(&self, current: impl FnOnce() -> u64) -> bool {
        // Acquire: pairs with the store in `note_release_sent`. What follows is sent after the release.
        let sent_over = self.release_sent_over.load(Ordering::Acquire);
        sent_over != NOT_SENT && sent_over == current()
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
            state.lease.passed_on(now);
        }
        is_free
    }

    /// Begins the release of a hold that waits for it. Returns `false` if it does not: it was taken back.
    pub(crate) fn begin_release(&self) -> bool {
        std::mem::take(&mut self.state.lock().waits_for_release)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_set()
    }

    /// Records that a scope of its guard was entered.
    pub(crate) fn note_scope(&self) {
        // Relaxed, here and below: it only decides whether a warning is logged.
        self.in_a_scope.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_a_scope(&self) -> bool {
        self.in_a_scope.load(Ordering::Relaxed)
    }

    /// Wakes everything that waits for the end of the hold. Not under a mutex: a waker may run any code.
    pub(crate) fn announce_over(&self) {
        self.over.set();
    }

    /// Counts another guard inside an enclosing one, unless that is over or the hold is lost.
    fn nest(&self, enclosing: EnclosingGuard<'_>, term: Term) -> Result<(), NestError> {
        let mut state = self.state.lock();
        state.check(enclosing)?;
        if self.resource.kind == Kind::Read && state.count >= MOST_ENTRIES {
            return Err(NestError::TooMany);
        }
        state.count += 1;
        state.lease.join(term);
        Ok(())
    }

    /// Admits another hold of the key, which may outlive this one. From now on this one is never handed over.
    fn let_in(&self, enclosing: EnclosingGuard<'_>) -> Result<(), NestError> {
        let mut state = self.state.lock();
        state.check(enclosing)?;
        state.lease.keep_to_its_guards();
        Ok(())
    }

    /// Closes a frame: from now on nothing nests through it.
    pub(crate) fn close(&self, closed: &AtomicBool) {
        // Under the mutex: otherwise a nesting could pass its check of `closed` and count itself afterwards (invariant
        // 2). Release: pairs with `EnclosingScope::is_closed`, which reads without the mutex.
        let _section = self.state.lock();
        closed.store(true, Ordering::Release);
    }

    /// Counts the first guard of a hold that was handed over. Returns `false` if too little of its lease is left.
    fn succeed(&self, term: Term, call_site: &'static Location<'static>, now: Tick) -> bool {
        let mut state = self.state.lock();
        if !state.lease.may_pass_on(now) {
            return false;
        }
        // Relaxed, as in `note_scope`. The scopes were those of the guard before.
        self.in_a_scope.store(false, Ordering::Relaxed);
        state.count = 1;
        state.since = now;
        state.call_site = call_site;
        state.lease.pass_on(term);
        true
    }

    /// Moves the end of a guard's own lease to `end`, if that is later. The watchdog has to look at the hold after that.
    ///
    /// # Errors
    /// The loss, if the guard no longer holds the key.
    fn extend(
        &self,
        guard: EnclosingGuard<'_>,
        own: &GuardTerm,
        end: Tick,
    ) -> Result<(), NestError> {
        let mut state = self.state.lock();
        state.check(guard)?;
        let term = own.get();
        if matches!(term, Term::Until(earlier) if earlier < end) {
            state.lease.extend(term, end);
            own.extend(end);
        }
        Ok(())
    }

    /// Completes with the next confirmation of a longer lease, and when the hold is over. Make it before the check of what it
    /// waits for, so that it misses no change.
    pub(crate) fn next_change(&self) -> impl Future<Output = ()> {
        self.over.next_change()
    }

    /// Wakes those that wait for a longer lease. Not under a mutex: a waker may run any code.
    pub(crate) fn announce_longer_lease(&self) {
        self.over.announce_change();
    }

    /// Ends a guard with this term, and sets `ended`. Sends nothing and wakes no task.
    fn leave(&self, own: &GuardTerm, ended: &AtomicBool, now: Tick) -> GuardEnd {
        let mut state = self.state.lock();
        let term = own.get();
        // Release: pairs with the load in `HoldRef::has_ended`. Under the mutex, so that nothing nests into a guard that was
        // counted out (invariant 2).
        ended.store(true, Ordering::Release);
        let loss = state.loss_of(term, now);
        state.lease.leave(term);
        state.count = state.count.saturating_sub(1);
        let last = state.count == 0;
        match (state.lease.is_held(now), last) {
            (true, true) => GuardEnd::Last {
                may_pass_on: state.lease.may_pass_on(now),
                held: now.since(state.since),
            },
            (true, false) => GuardEnd::Shared,
            (false, last) => GuardEnd::Lost { loss, last },
        }
    }

    /// A guard has handed the hold over. The watchdog has to look at it after that.
    pub(crate) fn passed_on(&self, now: Tick) {
        self.state.lock().lease.passed_on(now);
    }

    /// How many guards have handed the hold over since the server confirmed it. They have ended, so if the server does not have
    /// the hold any more, none of them reports the loss.
    pub(crate) fn unconfirmed(&self) -> u32 {
        self.state.lock().lease.unconfirmed()
    }

    /// Something shows that the server may have lost the hold. The watchdog has to look at it after that.
    pub(crate) fn verify(&self, now: Tick) {
        // The server counts permits without a lease. It has no holds of theirs.
        if self.resource.kind.has_lease() {
            self.state.lock().lease.verify(now);
        }
    }

    /// Ends the renewals. Returns the deadline of the hold, or its loss if it was lost before.
    pub(crate) fn stop_renewals(&self, now: Tick) -> Result<Tick, Loss> {
        let mut state = self.state.lock();
        state.lease.release(now)?;
        Ok(state.lease.deadline())
    }

    /// When the watchdog should look at this hold next.
    pub(crate) fn next_check(&self) -> Tick {
        let state = self.state.lock();
        state.lease.next(state.is_unstated())
    }

    /// What the watchdog has to do at `now`. A renewal that is due by `soon` is sent already.
    pub(crate) fn next_action(&self, now: Tick, soon: Tick) -> WatchdogAction {
        let mut state = self.state.lock();
        let unstated = state.is_unstated();
        match state.lease.due(now, soon, unstated) {
            Due::Nothing(next) => WatchdogAction::Later(next),
            Due::Renew(lease) => WatchdogAction::Renew {
                count: state.count.max(1),
                lease,
            },
            Due::Lost(loss) => WatchdogAction::Lost(loss),
            Due::Over => WatchdogAction::Over,
        }
    }

    /// Takes the answer to a renewal that stated `count`.
    pub(crate) fn renewed(
        &self,
        sent: Tick,
        count: u32,
        lease: Duration,
        answer: Answer,
        now: Tick,
    ) -> Confirmed {
        let mut state = self.state.lock();
        if answer == Answer::Renewed {
            state.stated = count;
        }
        let was_short = !state.lease.reaches_its_terms();
        match state.lease.answered(sent, lease, answer, now) {
            Some(loss) => Confirmed::Lost(loss),
            None if was_short && state.lease.reaches_its_terms() => Confirmed::Longer,
            None => Confirmed::AsBefore,
        }
    }

    pub(crate) fn forget_in_flight(&self) {
        self.state.lock().lease.forget_in_flight();
    }
}

#[cfg(test)]
mod tests;
