//! What a layer, its services and their requests share: its settings, and the way from a request to its lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use distlock::{Error, Guard, LockSource, Mode};
use http::Method;
use http::request::Parts;
use http_body::Body;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::BoxError;
use crate::body::HoldUntil;
use crate::info::LockInfo;
use crate::key::{self, ErasedKey, Named, Read, WholeBody};
use crate::respond::{self, Answer, Answers, is_grpc};

/// How long a request waits for its lock where nothing else was said. Strangers' requests must not pile up without
/// bound, and few of them wait longer for an answer.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// How many requests wait for one key at most where nothing else was said: for the same reason.
const DEFAULT_MAX_WAITERS: u32 = 1024;

/// Which lock a request takes, and for how long it waits and holds.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) locks: LockSource,
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: u32,
    places: Option<Places>,
}

/// One for each request that may wait, of all clones of a layer together.
#[derive(Clone)]
struct Places {
    free: Arc<Semaphore>,
    most: u32,
}

impl Places {
    fn new(most: u32) -> Self {
        let places = usize::try_from(most).unwrap_or(usize::MAX);
        let free = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { free, most }
    }
}

impl Terms {
    pub(crate) fn new(locks: LockSource) -> Self {
        Self {
            locks,
            wait: DEFAULT_WAIT,
            lease: None,
            max_hold: None,
            max_waiters: DEFAULT_MAX_WAITERS,
            places: None,
        }
    }

    pub(crate) fn max_total_waiters(&mut self, most: u32) {
        self.places = Some(Places::new(most));
    }

    pub(crate) async fn acquire(&self, mode: Mode, keys: Vec<String>) -> Result<Guard, Error> {
        let Some(places) = &self.places else {
            return self.acquire_within(self.wait, mode, keys).await;
        };
        match places.free.try_acquire() {
            Ok(_place) => self.acquire_within(self.wait, mode, keys).await,
            // Who finds no place may still find the lock free. Asked once: who asks again while nobody answers would be
            // one more that waits.
            Err(_) => match self.acquire_within(Duration::ZERO, mode, keys).await {
                Err(Error::Timeout { key, .. }) if !self.wait.is_zero() => {
                    Err(Error::overloaded(key, places.most))
                }
                tried => tried,
            },
        }
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
    fn of(self, method: &Method) -> Mode {
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
    pub(crate) terms: Terms,
    pub(crate) modes: Modes,
    pub(crate) key: ErasedKey,
    pub(crate) when: Option<When>,
    pub(crate) optional: bool,
    pub(crate) hold_until: HoldUntil,
    pub(crate) answers: Answers,
}

/// What came of a request's key.
pub(crate) enum Entry {
    Unlocked,
    Locked { guard: Guard, waited: Duration },
    Answered(Answer),
}

impl Settings {
    pub(crate) fn new(locks: LockSource, key: ErasedKey) -> Self {
        Self {
            terms: Terms::new(locks),
            modes: Modes::All(Mode::default()),
            key,
            when: None,
            optional: false,
            hold_until: HoldUntil::Response,
            answers: Answers::default(),
        }
    }

    /// Whether this request is one to lock for, by what it says of itself.
    fn concerns(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|when| when(parts))
    }

    /// Reads the body first, which its key is to come from, and answers it anew.
    pub(crate) async fn enter_with<B>(
        &self,
        parts: &mut Parts,
        body: B,
        reads: WholeBody,
    ) -> (Entry, Option<B>)
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + From<Bytes>,
    {
        if !self.concerns(parts) {
            return (Entry::Unlocked, Some(body));
        }
        match reads.read(body).await {
            Ok(read) => {
                parts.extensions.insert(Read(read.clone()));
                (self.enter_keyed(parts).await, Some(B::from(read)))
            }
            Err(bad) => {
                let answer = self.answers.refuse_keys(&bad, is_grpc(&parts.headers));
                (Entry::Answered(answer), None)
            }
        }
    }

    pub(crate) async fn enter(&self, parts: &mut Parts) -> Entry {
        if self.concerns(parts) {
            self.enter_keyed(parts).await
        } else {
            Entry::Unlocked
        }
    }

    async fn enter_keyed(&self, parts: &mut Parts) -> Entry {
        let grpc = is_grpc(&parts.headers);
        let keys = match self.key.of(parts).await {
            Named::Keys(keys) => key::distinct(keys),
            Named::Missing(_) if self.optional => return Entry::Unlocked,
            Named::Missing(what) => Err(key::BadKeys::Missing { what }),
            Named::Unclear(what) => Err(key::BadKeys::Unclear { what }),
            Named::Nothing => return Entry::Unlocked,
            Named::Answer(answer) => return Entry::Answered(respond::own_answer(answer, grpc)),
        };
        match keys {
            Ok(keys) => self.lock(self.modes.of(&parts.method), keys, grpc).await,
            Err(bad) => Entry::Answered(self.answers.refuse_keys(&bad, grpc)),
        }
    }

    async fn lock(&self, mode: Mode, keys: Vec<String>, grpc: bool) -> Entry {
        let since = Instant::now();
        let acquired = self.terms.acquire(mode, keys).await;
        let waited = since.elapsed();
        match acquired {
            Ok(guard) => Entry::Locked { guard, waited },
            Err(error) => {
                let mut answer = self.answers.refuse(&error, grpc);
                let held = Duration::ZERO;
                answer.extensions_mut().insert(LockInfo { waited, held });
                Entry::Answered(answer)
            }
        }
    }
}
