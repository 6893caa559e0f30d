//! One guard's reference into a hold, from its grant to its end or to the loss of the hold.
//!
//! Views (`lost()`, `is_held()`, scopes, the layer's `Held`) look at this reference and not at the hold. After a
//! hand-over the hold belongs to another guard. A view that was made before must then report that its own guard has
//! ended.

use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::grant::{Grant, HoldSettings};
use super::lease::Lease;
use super::nesting::{EnclosingGuard, NestError};
use super::term::{GuardTerm, Term};
use super::timer::Timer;
use super::{GuardEnd, Hold};
use crate::clock::Tick;
use crate::config::MOST_ENTRIES;
use crate::error::{Error, Loss};
use crate::resource::kind::Kind;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Flag, OnceBox, Semaphore};

/// The number of permits of a gate: more than a scope can have branches.
const GATE_PERMITS: u32 = 1 << 20;

const NANOS_PER_MILLI: u128 = 1_000_000;

/// One guard's reference into a [`Hold`].
#[derive(Debug)]
pub(crate) struct HoldRef {
    hold: Arc<Hold>,
    term: GuardTerm,
    /// The guard stops counting as held this number of milliseconds before its deadline, because the clocks of several servers may
    /// drift. Zero except for a quorum.
    margin_ms: u32,
    /// Written by [`State::leave`](super::state::State::leave), under the hold's mutex.
    ended: AtomicBool,
    /// Set when the guard ends. The hold has a flag of its own, for when it is lost or freed.
    over: Flag,
    /// Admits one nested hold of the key at a time, or any number of shared ones. Made for the first one.
    gate: OnceBox<Arc<Semaphore>>,
}

// A panic leaves nothing half-changed here: no foreign code runs under the mutex of a hold.
impl RefUnwindSafe for HoldRef {}

impl HoldRef {
    /// The first guard's reference to a hold that was granted.
    pub(crate) fn granted(grant: Grant<'_>) -> Arc<Self> {
        let term = grant.term();
        let margin = grant.settings.margin;
        Self::new(Hold::granted(grant, term), margin, term)
    }

    /// The first guard's reference to a hold that was handed over, if enough of its lease is left.
    pub(crate) fn succeed(hold: &Arc<Hold>, settings: &HoldSettings) -> Option<Arc<Self>> {
        let now = hold.client.clock.now();
        // Without a fixed lease: a waiter that has one takes no hold over.
        let term = Term::kept(now, settings.max_hold);
        let mut state = hold.state.lock();
        let is_taken = state.succeed(term, settings.call_site, now);
        if is_taken {
            // The scopes were those of the guard before.
            hold.in_a_scope.reset();
        }
        drop(state);
        is_taken.then(|| Self::new(Arc::clone(hold), Duration::ZERO, term))
    }

    fn new(hold: Arc<Hold>, margin: Duration, term: Term) -> Arc<Self> {
        let margin_ms = margin.as_nanos().div_ceil(NANOS_PER_MILLI);
        Arc::new(Self {
            hold,
            term: GuardTerm::new(term),
            // That of the longest lease fits.
            margin_ms: u32::try_from(margin_ms).unwrap_or(u32::MAX),
            ended: AtomicBool::new(false),
            over: Flag::default(),
            gate: OnceBox::new(),
        })
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The id of the client that acquired the hold.
    pub(crate) fn client(&self) -> Uuid {
        self.hold.owner().client_id()
    }

    pub(crate) fn term(&self) -> Term {
        self.term.get()
    }

    /// Moves the end of this guard's own lease to `end`, if that is later. The watchdog has to look at the hold after that.
    ///
    /// # Errors
    /// [`Error::Lost`] if this guard no longer holds the key.
    pub(crate) fn extend(&self, end: Tick) -> Result<(), Error> {
        // The guard itself asks, and not a scope that could have ended.
        let open = AtomicBool::new(false);
        let guard = self.enclosing(&open);
        let extended = self.hold.state.lock().extend(guard, &self.term, end);
        extended.map_err(|error| {
            let key = self.hold.resource.key.text();
            let ended = || Error::lost(key, Loss::Expired);
            error.into_error(key).unwrap_or_else(ended)
        })
    }

    /// What the client's clock shows.
    pub(crate) fn now(&self) -> Tick {
        self.hold.client.clock.now()
    }

    /// The time to compare with deadlines: the current time plus the margin.
    fn judged_at(&self) -> Tick {
        self.now().after(self.margin())
    }

    /// The gate, and how many of its permits a nested hold takes: all of them, or one if it is shared.
    pub(crate) fn gate(&self, shared: bool) -> (Arc<Semaphore>, u32) {
        let gate = self
            .gate
            .get_or_init(|| Box::new(Arc::new(Semaphore::new(GATE_PERMITS as usize))));
        (Arc::clone(gate), if shared { 1 } else { GATE_PERMITS })
    }

    /// Takes over the gate of the part that this one replaces: branches of a scope that have passed it stay inside.
    pub(crate) fn take_gate_of(&self, old: &Self) {
        let (gate, _) = old.gate(false);
        // This part is not in any scope yet, so it has no gate.
        let _first = self.gate.set(Box::new(gate));
    }

    /// Whether the guard has ended. This does not say whether the hold is lost.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with the store in `State::leave`. Where a count depends on it, the hold's mutex orders both.
        self.ended.load(Ordering::Acquire)
    }

    /// Ends this guard and decreases the count. Sends nothing and wakes no task. The caller then calls
    /// [`announce_end`](HoldRef::announce_end), outside of all mutexes.
    pub(crate) fn leave(&self, now: Tick) -> GuardEnd {
        let mut state = self.hold.state.lock();
        state.leave(&self.term, &self.ended, now)
    }

    /// Ends a guard whose hold is left alone: nothing follows from it.
    pub(crate) fn end_alone(&self) {
        // Release: pairs with the load in `has_ended`. Without the hold's mutex: a thread that the copy of a process does not
        // have may have locked it.
        self.ended.store(true, Ordering::Release);
        self.announce_end();
    }

    /// Wakes everything that watches this guard. Not under a mutex: a waker may run any code.
    pub(crate) fn announce_end(&self) {
        self.over.set();
    }

    /// Whether this guard holds the key, by this process's clock.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held_at(self.judged_at())
    }

    /// Whether the hold is left to another process, or to a former identity of the client.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.hold.client.identity.is_known_invalid()
    }

    fn is_held_at(&self, now: Tick) -> bool {
        !self.has_ended()
            && !self.is_left_alone()
            && !self.term().has_ended(now)
            && self.hold.is_held(now)
    }

    /// Why this guard no longer holds the key; `None` if it does.
    pub(crate) fn loss(&self) -> Option<Error> {
        let now = self.judged_at();
        if self.is_held_at(now) {
            return None;
        }
        let loss = if self.is_left_alone() {
            Loss::NewIdentity
        } else {
            let term = self.term();
            self.hold.state.lock().loss_of(term, now)
        };
        Some(Error::lost(self.hold.resource.key.text(), loss))
    }

    /// How long ago its lease or its own term has ended by the clock: `None` while it is held, and the longest time if it was lost
    /// otherwise.
    pub(crate) fn expired_for(&self) -> Option<Duration> {
        match self.loss()? {
            Error::Lost {
                reason: Loss::Expired,
                ..
            } => Some(self.now().since(self.end_at())),
            _ => Some(Duration::MAX),
        }
    }

    /// When the guard stops counting as held, by its own client's clock, unless the hold is renewed.
    pub(crate) fn end_at(&self) -> Tick {
        match self.hold.lease(Lease::deadline).min(self.term().end()) {
            // A lease without an end has no margin before it.
            Tick::NEVER => Tick::NEVER,
            end => end.before(self.margin()),
        }
    }

    /// How long the guard still counts as held, unless the hold is renewed; zero if it does not, also if its lease would not be
    /// over yet. This is a duration and not a tick, because each client's clock has its own start.
    pub(crate) fn left(&self) -> Duration {
        if self.is_held() {
            self.end_at().left(self.now())
        } else {
            Duration::ZERO
        }
    }

    /// Completes when the guard ends.
    pub(crate) async fn ended(&self) {
        self.over.wait().await;
    }

    /// Sleeps for `time` by the client's clock.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now().after(time)).await;
    }

    fn sleep_until(&self, until: Tick) -> Timer<'_> {
        Timer::new(&self.hold.client.clock, until)
    }

    /// Another guard of the same hold, with this margin, unless `closed` is set or this guard or the hold is
    /// over.
    pub(crate) fn nest(
        &self,
        closed: &AtomicBool,
        term: Term,
        margin: Duration,
    ) -> Result<Arc<Self>, NestError> {
        let most = if self.hold.resource.kind == Kind::Read {
            MOST_ENTRIES
        } else {
            u32::MAX
        };
        let enclosing = self.enclosing(closed);
        self.hold.state.lock().nest(enclosing, term, most)?;
        Ok(Self::new(Arc::clone(&self.hold), margin, term))
    }

    /// This guard, for what is to be nested into it in a scope that ends when `closed` is set.
    fn enclosing<'a>(&'a self, closed: &'a AtomicBool) -> EnclosingGuard<'a> {
        EnclosingGuard {
            closed,
            ended: &self.ended,
            is_left_alone: self.is_left_alone(),
            term: self.term(),
            now: self.now(),
        }
    }

    /// The margin of this guard.
    pub(crate) fn margin(&self) -> Duration {
        Duration::from_millis(self.margin_ms.into())
    }

    /// Admits another hold of the key beside this guard's, unless `closed` is set or this guard or the hold is over.
    pub(crate) fn let_in(&self, closed: &AtomicBool) -> Result<(), NestError> {
        let enclosing = self.enclosing(closed);
        self.hold.state.lock().let_in(enclosing)
    }

    /// Completes when this guard no longer holds the key: it was released, handed over or lost, or its lease is over by
    /// the clock.
    ///
    /// Does not rely on the watchdog to find a loss: it sleeps to the deadline by itself, except while it is polled outside of a
    /// runtime.
    pub(crate) async fn over(self: Arc<Self>) {
        while self.is_held_at(self.now()) {
            crate::sync::select! {
                () = self.over.wait() => return,
                () = self.hold.over.wait() => return,
                // The lease may have been renewed during the sleep, so the loop looks again.
                () = self.sleep_until(self.hold.lease(Lease::deadline).min(self.term().end())) => {}
            }
        }
    }
}
