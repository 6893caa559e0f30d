//! The settings that a layer, its services and their requests share.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Acquire, Error, Guard, LockSource, Mode};
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{Method, Request};
use tokio::sync::Semaphore;

use crate::key::{ErasedKey, Keys};
use crate::request_body::{self, BodyClock, Watched};
use crate::respond::{self, Answer, Answers, LastHolds, Pace};

/// How long a request waits for its lock if neither the layer nor the client says it. Few clients wait longer for an answer, and the number of waiting
/// requests must have a limit.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// How long a request's body may take by default while the lock is held. A client whose connection is
/// slower must not keep the lock from the others.
const DEFAULT_REQUEST_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How many acquisitions may wait for one key if neither the layer nor the client says it. The number of waiting requests must have a limit.
const DEFAULT_MAX_WAITERS: u32 = 1024;

/// Where locks come from, and how long a request waits for one and holds it.
#[derive(Clone)]
pub(crate) struct LockSettings {
    pub(crate) source: LockSource,
    /// Where the user has given the layer its key: its acquisitions are reported to be made there.
    pub(crate) call_site: &'static Location<'static>,
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    /// Zero: the key is free when the hold is released.
    pub(crate) hold_at_least: Duration,
    pub(crate) max_waiters: Option<u32>,
    pending: Option<PendingLimit>,
}

/// How many requests may be pending at once, counted over all clones of a layer.
#[derive(Clone)]
struct PendingLimit {
    slots: Arc<Semaphore>,
    limit: u32,
}

impl PendingLimit {
    fn new(limit: u32) -> Self {
        let slots = usize::try_from(limit).unwrap_or(usize::MAX);
        // Tokio's semaphore panics with more.
        let slots = Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)));
        Self { slots, limit }
    }
}

/// Why a request has no lock.
pub(crate) enum NotAcquired {
    /// The layer's limit of pending requests is reached, and a single attempt found the lock held.
    TooManyPending { limit: u32, busy: Error },
    /// The acquisition failed.
    Failed(Error),
}

impl LockSettings {
    pub(crate) fn new(source: LockSource, call_site: &'static Location<'static>) -> Self {
        respond::count_no_answer();
        Self {
            source,
            call_site,
            wait: None,
            lease: None,
            max_hold: None,
            hold_at_least: Duration::ZERO,
            max_waiters: None,
            pending: None,
        }
    }

    pub(crate) fn set_max_pending_requests(&mut self, limit: u32) {
        self.pending = Some(PendingLimit::new(limit));
    }

    /// How long a request waits: what the layer says, or the client, or the default.
    fn wait(&self) -> Duration {
        let wait = self.wait.or_else(|| self.source.default_wait());
        wait.unwrap_or(DEFAULT_WAIT)
    }

    fn max_waiters(&self) -> u32 {
        let most = self.max_waiters.or_else(|| self.source.max_waiters());
        most.unwrap_or(DEFAULT_MAX_WAITERS)
    }

    pub(crate) async fn acquire(&self, mode: Mode, keys: Keys) -> Result<Guard, NotAcquired> {
        let wait = self.wait();
        let Some(PendingLimit { slots, limit }) = &self.pending else {
            let acquired = self.acquire_within(wait, mode, keys).await;
            return acquired.map_err(NotAcquired::Failed);
        };
        match slots.try_acquire() {
            // With a name, so that it is kept until the lock is granted or refused.
            Ok(_slot) => self.acquire_within(wait, mode, keys).await,
            // Without a slot the request makes one attempt, because its lock may be free. It must not retry while the
            // server does not answer: it would be one more pending request.
            Err(_) => match self.acquire_within(Duration::ZERO, mode, keys).await {
                Err(busy) if busy.is_held_by_another() && !wait.is_zero() => {
                    let limit = *limit;
                    return Err(NotAcquired::TooManyPending { limit, busy });
                }
                attempted => attempted,
            },
        }
        .map_err(NotAcquired::Failed)
    }

    /// Panics if no request could get a lock of this kind with these settings. They are constants of the program, so it is told when
    /// it starts, and not at each request.
    #[track_caller]
    pub(crate) fn check(&self, mode: Mode) {
        let sample = self.source.acquire(mode, ["k"]).wait(self.wait());
        match self.held_as_set(sample).check() {
            Ok(()) => {}
            // The lease of the client's watchdog: one that fits may follow.
            Err(
                Error::InvalidLease { .. }
                | Error::InvalidConfig {
                    setting: "lease", ..
                },
            ) if self.lease.is_none() => {}
            // The key is the sample's.
            Err(Error::Unsupported { reason, .. }) => panic!("{reason}"),
            Err(error) => panic!("{error}"),
        }
    }

    async fn acquire_within(&self, wait: Duration, mode: Mode, keys: Keys) -> Result<Guard, Error> {
        let acquire = self.source.acquire(mode, keys).wait(wait);
        let acquire = acquire.called_from(self.call_site);
        let acquire = acquire.max_waiters(self.max_waiters());
        self.held_as_set(acquire).await
    }

    fn held_as_set(&self, mut acquire: Acquire) -> Acquire {
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        if let Some(max_hold) = self.max_hold {
            acquire = acquire.max_hold(max_hold);
        }
        if !self.hold_at_least.is_zero() {
            acquire = acquire.hold_at_least(self.hold_at_least);
        }
        acquire
    }

    pub(crate) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("locks", &self.source)
            .field("wait", &self.wait())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// When the hold of a request ends. Used by [`LockLayer::hold_until`](crate::LockLayer::hold_until).
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
    /// The hold ends before the response is returned. The response body is sent without the lock.
    #[default]
    Response,
    /// The hold continues with the response body. It ends at the body's end or error, or when the body is dropped, for
    /// example because the client disconnects.
    ///
    /// The body runs inside the critical section. Its last frame is passed on only after the release is confirmed, or
    /// has failed without a loss, or after the hold has gone to another request of the process that waits for the key. Otherwise a client
    /// that has the whole response finds the lock free. A frame is known to be the
    /// last one if
    ///
    /// * the body reports its end after this frame, or
    /// * the frame contains the trailers, or
    /// * the frame completes the size that `Content-Length` or the body's size hint announced. Trailers that are not
    ///   ready at once are passed on when they arrive. The code that makes them then runs without the lock.
    ///
    /// If no frame is known to be the last one, the end of the body is passed on after the release.
    ///
    /// If the body is empty from the start, as for an upgrade, or is never sent, as for a HEAD request, a 204 or a 304, the hold
    /// ends before the response is returned. A body that is never sent is dropped without the lock.
    ///
    /// If the hold is lost, the body ends in an error, so the client sees that the response is incomplete.
    ///
    /// If the body is read outside a tokio runtime, nothing wakes the reader when the hold is lost: its next read finds that. At
    /// the end of the body, the release is not waited for, and happens in the background.
    ///
    /// A client that reads slowly keeps the lock held. Set [`max_hold`](crate::LockLayer::max_hold) to bound this.
    Body,
}

/// Whether to lock for a request.
pub(crate) type Condition = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// Which kind of lock a request takes.
#[derive(Clone, Copy)]
pub(crate) enum ModeSetting {
    Fixed(Mode),
    /// A read lock for the safe methods, a write lock for others.
    ByMethod,
}

impl ModeSetting {
    pub(crate) fn of(self, method: &Method) -> Mode {
        match self {
            Self::Fixed(mode) => mode,
            Self::ByMethod if method.is_safe() => Mode::Read,
            Self::ByMethod => Mode::Write,
        }
    }
}

/// Whether a line was logged. Shared by all clones of a layer.
///
/// A `std::sync::Once` would be poisoned by a subscriber that panics, and have other requests wait for it.
#[derive(Clone, Default)]
struct Logged(Arc<AtomicBool>);

impl Logged {
    fn once(&self, log: impl FnOnce()) {
        // Relaxed: nothing else is read after it.
        if !self.0.swap(true, Ordering::Relaxed) {
            log();
        }
    }
}

/// The settings of a layer for HTTP services.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) lock: LockSettings,
    pub(crate) mode: ModeSetting,
    pub(crate) key: ErasedKey,
    pub(crate) condition: Option<Condition>,
    /// The methods whose requests are locked, if not all are.
    pub(crate) methods: Option<Arc<[Method]>>,
    pub(crate) optional: bool,
    pub(crate) hold_until: HoldUntil,
    /// [`Duration::MAX`]: without limit.
    pub(crate) request_body_timeout: Duration,
    /// Whether a body of unknown type was logged.
    unknown_body: Logged,
    /// Whether a preflight of CORS was logged.
    preflight: Logged,
    pub(crate) answers: Answers,
    /// Shared by all clones of a layer.
    pub(crate) last_holds: Arc<LastHolds>,
    /// How many bytes of a body that nobody reads are thrown away before an answer.
    pub(crate) drain_limit: u64,
}

impl Settings {
    pub(crate) fn new(lock: LockSettings, key: ErasedKey) -> Self {
        Self {
            lock,
            mode: ModeSetting::Fixed(Mode::default()),
            key,
            condition: None,
            methods: None,
            optional: false,
            hold_until: HoldUntil::Response,
            request_body_timeout: DEFAULT_REQUEST_BODY_TIMEOUT,
            unknown_body: Logged::default(),
            preflight: Logged::default(),
            answers: Answers::default(),
            last_holds: Arc::default(),
            drain_limit: request_body::DRAIN_LIMIT,
        }
    }

    /// Panics if no request could get its lock: see [`LockSettings::check`].
    #[track_caller]
    pub(crate) fn check(&self) {
        match self.mode {
            ModeSetting::Fixed(mode) => self.lock.check(mode),
            ModeSetting::ByMethod => {
                self.lock.check(Mode::Read);
                self.lock.check(Mode::Write);
            }
        }
    }

    /// Notes a preflight of CORS, which takes the lock as any request does: whether it may run without the lock, only the
    /// inner service knows.
    pub(crate) fn note_preflight(&self, parts: &Parts) {
        let is_preflight = parts.method == Method::OPTIONS
            && parts.headers.contains_key(ORIGIN)
            && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if is_preflight {
            self.preflight.once(respond::preflight);
        }
    }

    /// The answer to a request that did not get its lock, or lost it.
    pub(crate) fn refuse(&self, error: &Error, grpc: bool) -> Answer {
        let pace = Pace::new(
            self.lock.lease.is_some(),
            self.lock.source.watchdog_timeout(),
            self.lock.hold_at_least,
            &self.last_holds,
        );
        self.answers.refuse(error, pace, grpc)
    }

    /// Bounds the time that the body of a request takes under its lock. Not to be used for a body that was read
    /// already.
    pub(crate) fn time_body<B: 'static>(
        &self,
        request: &mut Request<B>,
        guard: &Guard,
    ) -> Option<Arc<BodyClock>> {
        let limit = self.request_body_timeout;
        if limit == Duration::MAX {
            return None;
        }
        match request_body::watch(request.body_mut(), limit) {
            Watched::Timed(clock) => {
                clock.set_lock(guard.section());
                Some(clock)
            }
            Watched::Empty => None,
            Watched::Unknown => {
                let has_other_bound = self.lock.max_hold.or(self.lock.lease).is_some();
                let has_body = request_body::may_have_body(request);
                if !has_other_bound && has_body {
                    let log = || respond::unknown_request_body(std::any::type_name::<B>());
                    self.unknown_body.once(log);
                }
                None
            }
        }
    }
}
