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
mod state;
mod term;
mod terms;
mod view;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::flag::Flag;
pub(crate) use self::grant::{Grant, InDoubtAttempt};
pub(crate) use self::hold_ref::{GuardClient, HoldRef, Origin};
use self::lease::{Answer, Lease};
use self::nesting::EnclosingGuard;
pub(crate) use self::nesting::NestError;
use self::state::State;
pub(crate) use self::state::{AtRelease, Confirmed, GuardEnd, ShownHold, WatchdogAction};
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
    /// Whether the server is asked to tell of changes of its key.
    is_tracked: AtomicBool,
    state: Mutex<State>,
}

/// No connection has this number.
const NOT_SENT: u64 = u64::MAX;

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
            is_tracked: AtomicBool::new(false),
            state: Mutex::new(State::granted(
                Lease::granted(sent, lease, term, watchdog).with_margin(margin),
                now,
                terms.call_site,
            )),
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
        self.state.lock().shown(now)
    }

    /// Where in the user's code the guard that has the hold was acquired.
    pub(crate) fn call_site(&self) -> &'static Location<'static> {
        self.state.lock().call_site
    }

    /// When the guard that has the hold was granted it, or took it over.
    pub(crate) fn since(&self) -> Tick {
        self.state.lock().since
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
        // Relaxed: the watchdog and the grant that is being watched may both ask, which does no harm. Read first: nearly always it
        // was asked over this connection, and nothing is written.
        self.asked_over.load(Ordering::Relaxed) != epoch
            && self.asked_over.swap(epoch, Ordering::Relaxed) != epoch
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

    /// What its release has to know.
    pub(crate) fn at_release(&self) -> AtRelease {
        self.state.lock().at_release()
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
        self.state.lock().may_pass_on(now)
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
        self.state.lock().take_back(now)
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

    /// From now on the server is asked to tell of changes of its key.
    pub(crate) fn track(&self) {
        // Relaxed, here and below: the worst is one renewal more or less that has the key tracked.
        self.is_tracked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.is_tracked.load(Ordering::Relaxed)
    }

    /// A read has found that the server does not have the hold any more. Returns the loss, unless the hold was over before.
    pub(crate) fn gone(&self) -> Option<Loss> {
        self.state.lock().lease.gone()
    }

    /// Wakes everything that waits for the end of the hold. Not under a mutex: a waker may run any code.
    pub(crate) fn announce_over(&self) {
        self.over.set();
    }

    /// Counts another guard inside an enclosing one, unless that is over or the hold is lost.
    fn nest(&self, enclosing: EnclosingGuard<'_>, term: Term) -> Result<(), NestError> {
        let most = if self.resource.kind == Kind::Read {
            MOST_ENTRIES
        } else {
            u32::MAX
        };
        self.state.lock().nest(enclosing, term, most)
    }

    /// Admits another hold of the key, which may outlive this one. From now on this one is never handed over.
    fn let_in(&self, enclosing: EnclosingGuard<'_>) -> Result<(), NestError> {
        self.state.lock().let_in(enclosing)
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
        let is_taken = state.succeed(term, call_site, now);
        if is_taken {
            // Relaxed, as in `note_scope`. The scopes were those of the guard before.
            self.in_a_scope.store(false, Ordering::Relaxed);
        }
        is_taken
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
        self.state.lock().extend(guard, own, end)
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
        self.state.lock().leave(own, ended, now)
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
        self.state.lock().next_action(now, soon)
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
        self.state.lock().renewed(sent, count, lease, answer, now)
    }

    pub(crate) fn forget_in_flight(&self) {
        self.state.lock().lease.forget_in_flight();
    }
}

#[cfg(test)]
mod tests;
