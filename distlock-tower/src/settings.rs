//! What a layer, its services and their requests share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Error, Guard, LockSource, Mode};
use http::Method;
use http::request::Parts;
use tokio::sync::Semaphore;

use crate::key::ErasedKey;
use crate::respond::Answers;

/// How long a request waits for its lock where nothing else was said. Strangers' requests must not pile up without
/// bound, and few of them wait longer for an answer.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// How many requests wait for one key at most where nothing else was said: for the same reason.
const DEFAULT_MAX_WAITERS: u32 = 1024;

/// Which lock a request takes, and for how long it waits and holds.
#[derive(Clone)]
pub(crate) struct LockSettings {
    pub(crate) locks: LockSource,
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: u32,
    pending: Option<PendingLimit>,
}

/// How many requests of all clones of a layer may be acquiring their lock at once.
#[derive(Clone)]
struct PendingLimit {
    slots: Arc<Semaphore>,
    limit: u32,
}

impl PendingLimit {
    fn new(limit: u32) -> Self {
        let slots = usize::try_from(limit).unwrap_or(usize::MAX);
        let slots = Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)));
        Self { slots, limit }
    }
}

/// Why a request has no lock.
pub(crate) enum NotAcquired {
    /// As many requests of this layer as its limit allows are acquiring a lock, and one attempt found this one's held:
    /// `busy` says by whom.
    TooManyPending { limit: u32, busy: Error },
    /// The acquisition failed.
    Failed(Error),
}

impl LockSettings {
    pub(crate) fn new(locks: LockSource) -> Self {
        Self {
            locks,
            wait: DEFAULT_WAIT,
            lease: None,
            max_hold: None,
            max_waiters: DEFAULT_MAX_WAITERS,
            pending: None,
        }
    }

    pub(crate) fn set_max_pending_requests(&mut self, limit: u32) {
        self.pending = Some(PendingLimit::new(limit));
    }

    pub(crate) async fn acquire(
        &self,
        mode: Mode,
        keys: Vec<String>,
    ) -> Result<Guard, NotAcquired> {
        let Some(PendingLimit { slots, limit }) = &self.pending else {
            let acquired = self.acquire_within(self.wait, mode, keys).await;
            return acquired.map_err(NotAcquired::Failed);
        };
        match slots.try_acquire() {
            Ok(_slot) => self.acquire_within(self.wait, mode, keys).await,
            // Without a slot the request makes one attempt, since its lock may be free. It does not retry while the
            // server is silent: then it would be one more pending request.
            Err(_) => match self.acquire_within(Duration::ZERO, mode, keys).await {
                Err(busy) if busy.is_busy() && !self.wait.is_zero() => {
                    let limit = *limit;
                    return Err(NotAcquired::TooManyPending { limit, busy });
                }
                attempted => attempted,
            },
        }
        .map_err(NotAcquired::Failed)
    }

    async fn acquire_within(
        &self,
        wait: Duration,
        mode: Mode,
        keys: Vec<String>,
    ) -> Result<Guard, Error> {
        let mut acquire = self.locks.acquire(mode, keys).wait(wait);
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        if let Some(most) = self.max_hold {
            acquire = acquire.max_hold(most);
        }
        acquire.max_waiters(self.max_waiters).await
    }

    pub(crate) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("locks", &self.locks)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// When a request's hold ends; for [`LockLayer::hold_until`](crate::LockLayer::hold_until).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use distlock_tower::{HoldUntil, LockLayer};
///
/// let client = distlock::Client::in_memory();
/// let while_it_streams = LockLayer::new(client)
///     .key(|_: &http::request::Parts| "export")
///     .hold_until(HoldUntil::Body)
///     .max_hold(Duration::from_secs(600));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Before the response is returned, once the release was confirmed: its body is sent without the lock.
    #[default]
    Response,
    /// With the response's body: at its end, at its error, or when it is dropped, as it is when the client hangs up.
    ///
    /// The body runs inside the critical section. Its last frame, or its end where that cannot be known before, is
    /// passed on after the release was confirmed. The last frame is what the body says is its last, trailers, or the one
    /// that fills the size that the body or `Content-Length` announced: trailers may follow that if they are ready by
    /// then, and nothing else does. A body that is empty from the start, such as that of a 204 or of an upgrade, ends
    /// the hold before the response is returned. When the hold is lost, the body ends in an error, so that the client
    /// sees that something is missing.
    ///
    /// A client that reads slowly holds the lock for as long; set [`max_hold`](crate::LockLayer::max_hold), and it cannot
    /// hold on for ever.
    Body,
}

/// Whether a request is one to lock for.
pub(crate) type When = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// Which kind of lock requests take.
#[derive(Clone, Copy)]
pub(crate) enum Modes {
    All(Mode),
    /// Readers and writers, by the request's method.
    ByMethod,
}

impl Modes {
    pub(crate) fn of(self, method: &Method) -> Mode {
        match self {
            Self::All(mode) => mode,
            Self::ByMethod if matches!(*method, Method::GET | Method::HEAD) => Mode::Read,
            Self::ByMethod => Mode::Write,
        }
    }
}

/// What a layer for HTTP was set to.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) lock: LockSettings,
    pub(crate) modes: Modes,
    pub(crate) key: ErasedKey,
    pub(crate) when: Option<When>,
    pub(crate) optional: bool,
    pub(crate) hold_until: HoldUntil,
    pub(crate) answers: Answers,
}

impl Settings {
    pub(crate) fn new(locks: LockSource, key: ErasedKey) -> Self {
        Self {
            lock: LockSettings::new(locks),
            modes: Modes::All(Mode::default()),
            key,
            when: None,
            optional: false,
            hold_until: HoldUntil::Response,
            answers: Answers::default(),
        }
    }
}
