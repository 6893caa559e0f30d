//! How long the reader of a request's body has waited for the client, while the lock was held.
//!
//! # Invariants
//! 1. Only the time counts in which the reader waits and the client has not sent anything: from a poll that finds no
//!    data to the wake-up that follows it, also if that brought bytes that are no piece yet. The time that a handler
//!    spends on other work never counts.
//! 2. The clock does not expire after it was stopped, or when the lock is no longer held.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use distlock::Section;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Shared by a request's body and by the hold of the request.
pub(crate) struct BodyClock {
    limit: Duration,
    /// Never entered. It reports whether the lock is held.
    lock: OnceLock<Section>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The time that the reader has waited in earlier waits.
    waited: Duration,
    waiting_since: Option<Instant>,
    /// The first wake-up of the current wait.
    woken_at: Option<Instant>,
    reader: Option<Waker>,
    hold: Option<Waker>,
}

impl State {
    /// Ends the current wait at its first wake-up, or now if it had none.
    fn end_wait(&mut self) {
        let woken_at = self.woken_at.take();
        if let Some(since) = self.waiting_since.take() {
            let until = woken_at.unwrap_or_else(Instant::now);
            self.waited += until.saturating_duration_since(since);
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Running,
    Expired,
    /// The body has ended, or the lock is released.
    Stopped,
}

/// What the reader has to do after a poll that found no data.
pub(super) enum Wait {
    Until(Instant),
    Unbounded,
    Expired,
}

impl BodyClock {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            limit,
            lock: OnceLock::new(),
            state: Mutex::default(),
        })
    }

    /// Names the lock that the reader's waits keep taken. Called once, before the body is read.
    pub(crate) fn set_lock(&self, lock: Section) {
        let _first = self.lock.set(lock);
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn is_running(&self) -> bool {
        self.state.lock().phase == Phase::Running
    }

    /// Ends the bound, because the body has ended or the lock is about to be released.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Running {
            state.phase = Phase::Stopped;
        }
        // The reader stays: the body has this clock's waker, and may still be read without the lock.
        let hold = state.hold.take();
        drop(state);
        // A waker runs code of others when it is dropped.
        drop(hold);
    }

    /// Whether the body has taken too long. If not, the caller is woken when it has.
    pub(crate) fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.state.lock();
        let is_known = match (state.phase, &state.hold) {
            (Phase::Expired, _) => return Poll::Ready(()),
            (Phase::Running, Some(hold)) => hold.will_wake(cx.waker()),
            (Phase::Running, None) => false,
            (Phase::Stopped, _) => true,
        };
        drop(state);
        if is_known {
            return Poll::Pending;
        }
        // Outside of the mutex: a waker runs code of others when it is cloned or dropped.
        let hold = cx.waker().clone();
        let mut state = self.state.lock();
        let (polled, unused) = match state.phase {
            Phase::Running => (Poll::Pending, state.hold.replace(hold)),
            Phase::Stopped => (Poll::Pending, Some(hold)),
            Phase::Expired => (Poll::Ready(()), Some(hold)),
        };
        drop(state);
        drop(unused);
        polled
    }

    /// Notes who is to be woken by the next data. Called before the body is polled.
    pub(super) fn reader_polls(&self, cx: &mut Context<'_>) {
        // Outside of the mutex, as in `poll_expired`.
        let reader = cx.waker().clone();
        let replaced = self.state.lock().reader.replace(reader);
        drop(replaced);
    }

    /// Notes that the client has sent something, or that the body has ended.
    pub(super) fn received(&self) {
        self.state.lock().end_wait();
    }

    /// Notes that the reader has found no data.
    pub(super) fn waits(&self) -> Wait {
        let mut state = self.state.lock();
        // Bytes may have arrived that are no piece yet. The reader came back for them when it liked.
        if state.woken_at.is_some() {
            state.end_wait();
        }
        let now = Instant::now();
        let since = *state.waiting_since.get_or_insert(now);
        let left = self.limit.saturating_sub(state.waited);
        match since.checked_add(left) {
            Some(until) if until <= now => Wait::Expired,
            Some(until) => Wait::Until(until),
            None => Wait::Unbounded,
        }
    }

    /// Notes that the body has taken too long, and wakes the task that has the hold. Returns `false` if the clock was
    /// stopped, or if the lock is no longer held.
    pub(super) fn expire(&self) -> bool {
        // The handler may have kept the guard and ended it.
        if self.lock.get().is_some_and(|lock| !lock.is_held()) {
            self.stop();
            return false;
        }
        let mut state = self.state.lock();
        if state.phase != Phase::Running {
            return false;
        }
        state.phase = Phase::Expired;
        let hold = state.hold.take();
        // The mutex first: a waker may poll the body at once, which locks it.
        drop(state);
        if let Some(hold) = hold {
            hold.wake();
        }
        true
    }
}

/// The waker that the body gets: it notes when the data arrived, because the reader may come back much later.
impl Wake for BodyClock {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.waiting_since.is_some() {
            state.woken_at.get_or_insert_with(Instant::now);
        }
        let reader = mem::take(&mut state.reader);
        // The mutex first, as in `expire`.
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}
