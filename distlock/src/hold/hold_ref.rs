//! One guard's part in a hold: from its grant to its end, or to the loss of the hold.
//!
//! Views (`lost()`, `is_held()`, frames, the layer's `Held`) look at a tenure and not at the hold: after a hand-over
//! the hold goes on with another guard, and a view kept from before must say that its own part has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::lease::Term;
use super::{Hold, NestError};
use crate::clock::{Clock, Tick};
use crate::error::{Error, Loss};

/// More than a scope has branches.
const GATE_PLACES: u32 = 1 << 20;

/// One guard's part in a [`Hold`].
#[derive(Debug)]
pub(crate) struct HoldRef {
    hold: Arc<Hold>,
    term: Term,
    /// Written under the hold's mutex; see [`Hold::nest`].
    ended: AtomicBool,
    /// Cancelled when the guard ends. The hold has a token of its own, for when it is lost or freed.
    over: CancellationToken,
    /// Lets one nested hold of the key in at a time, or any number of shared ones; made when the first one comes.
    gate: OnceLock<Arc<Semaphore>>,
}

impl HoldRef {
    pub(super) fn new(hold: Arc<Hold>, term: Term) -> Arc<Self> {
        Arc::new(Self {
            hold,
            term,
            ended: AtomicBool::new(false),
            over: CancellationToken::new(),
            gate: OnceLock::new(),
        })
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn term(&self) -> Term {
        self.term
    }

    /// The gate, and how many of its places a nested hold takes: all, or one if it is shared.
    pub(crate) fn gate(&self, shared: bool) -> (Arc<Semaphore>, u32) {
        let gate = self
            .gate
            .get_or_init(|| Arc::new(Semaphore::new(GATE_PLACES as usize)));
        (Arc::clone(gate), if shared { 1 } else { GATE_PLACES })
    }

    /// Has the guard ended? Not whether the hold is lost.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Marks the guard as ended, under the hold's mutex; [`announce_end`](Tenure::announce_end) follows outside it.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Wakes whoever watches this tenure. Not under a mutex: a waker may run any code.
    pub(crate) fn announce_end(&self) {
        self.over.cancel();
    }

    /// Is the key this guard's, as far as this process's clock can tell?
    pub(crate) fn is_held(&self, now: Tick) -> bool {
        !self.has_ended() && !self.term.has_ended(now) && self.hold.is_held(now)
    }

    /// Why the key is no longer this guard's, if it is not.
    pub(crate) fn loss(&self, now: Tick) -> Option<Loss> {
        if self.is_held(now) {
            None
        } else {
            Some(self.hold.loss_of(self, now))
        }
    }

    pub(crate) fn lost_error(&self, now: Tick) -> Option<Error> {
        self.loss(now)
            .map(|loss| Error::lost(self.hold.resource.key.text(), loss))
    }

    /// Another guard of the same hold, unless `closed`, this tenure or the hold is over.
    pub(crate) fn nest(
        &self,
        closed: &AtomicBool,
        term: Term,
        now: Tick,
    ) -> Result<Arc<Self>, NestError> {
        self.hold.nest(self, closed, term, now)
    }

    /// Lets another hold of the key in beside this guard's, unless `closed`, this tenure or the hold is over.
    pub(crate) fn let_in(&self, closed: &AtomicBool, now: Tick) -> Result<(), NestError> {
        self.hold.let_in(self, closed, now)
    }

    /// Completes when the key is no longer this guard's: released, handed on, lost, or its lease over by the clock.
    ///
    /// Does not rely on the watchdog: it sleeps to the deadline by itself.
    pub(crate) async fn over(self: Arc<Self>, clock: Clock) {
        while self.is_held(clock.now()) {
            let deadline = self.hold.deadline().min(self.term.end());
            tokio::select! {
                () = self.over.cancelled() => return,
                () = self.hold.over() => return,
                () = clock.sleep_until(deadline) => {}
            }
        }
    }
}
