//! The layer for tower services that are no HTTP: what goes wrong is an error of the service.

mod error;
mod service;
mod setters;

use std::fmt;
use std::sync::Arc;

use distlock::{LockSource, Mode};
use tower_layer::Layer;

pub use self::error::LockError;
pub use self::service::{ServiceLock, ServiceLockFuture};
use crate::key::{IntoLockKeys, Named};
use crate::settings::LockSettings;

/// Runs the requests of any tower service under a distributed lock whose key comes from the request: consumers of
/// queues, clients, whatever is no HTTP server.
///
/// As [`LockLayer`](crate::LockLayer) does it: the inner service is called only while the lock is held, inside its
/// critical section, where [`distlock::current`] finds the hold; the lock is released, and that is confirmed, before the
/// response is returned; and a handler under which the hold is lost is dropped. But as there is nobody to answer for
/// `R`, what goes wrong is a [`LockError`], beside the inner service's own errors. In an axum router it needs a
/// `HandleErrorLayer` above it.
///
/// The key function is a closure over `&R` that returns what implements [`IntoLockKeys`]. `None` is no lock; an answer in
/// the place of keys, which nobody could send, is [`LockError::Keys`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock_tower::BoxError> {
/// use std::convert::Infallible;
/// use distlock_tower::ServiceLockLayer;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// struct Job { tenant: String }
///
/// async fn sweep(job: Job) -> Result<String, Infallible> {
///     Ok(format!("swept {}", job.tenant))
/// }
///
/// let client = distlock::Client::in_memory();
/// let layer = ServiceLockLayer::new(&client, |job: &Job| format!("sweep:{}", job.tenant));
/// let consumer = layer.layer(service_fn(sweep));
/// assert_eq!(consumer.oneshot(Job { tenant: "acme".into() }).await?, "swept acme");
/// # Ok(()) }
/// ```
#[must_use = "a layer does nothing until it is put around a service"]
pub struct ServiceLockLayer<R> {
    settings: Arc<Settings<R>>,
}

struct Settings<R> {
    lock: LockSettings,
    mode: Mode,
    key: KeyOf<R>,
}

type KeyOf<R> = Arc<dyn Fn(&R) -> Named + Send + Sync>;

impl<R> ServiceLockLayer<R> {
    /// A layer whose locks are those of a [`Client`](distlock::Client) or a [`Quorum`](distlock::Quorum), with this key
    /// function.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use distlock::Mode;
    /// use distlock_tower::ServiceLockLayer;
    ///
    /// struct Transfer { from: u64, to: u64 }
    ///
    /// let client = distlock::Client::in_memory();
    /// let both_accounts = |t: &Transfer| [format!("account:{}", t.from), format!("account:{}", t.to)];
    /// let layer = ServiceLockLayer::new(&client, both_accounts)
    ///     .mode(Mode::Write)
    ///     .wait(Duration::from_secs(30))
    ///     .max_hold(Duration::from_secs(60))
    ///     .max_waiters(100);
    /// ```
    pub fn new<F, K>(locks: impl Into<LockSource>, key: F) -> Self
    where
        F: Fn(&R) -> K + Send + Sync + 'static,
        K: IntoLockKeys,
    {
        let settings = Settings {
            lock: LockSettings::new(locks.into()),
            mode: Mode::default(),
            key: Arc::new(move |request| key(request).into_lock_keys().0),
        };
        Self {
            settings: Arc::new(settings),
        }
    }

    /// As [`LockLayer::mode`](crate::LockLayer::mode): the reentrant lock unless set.
    ///
    /// # Examples
    /// See [`new`](Self::new).
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.settings).mode = mode;
        self
    }
}

impl<S, R> Layer<S> for ServiceLockLayer<R> {
    type Service = ServiceLock<S, R>;

    fn layer(&self, inner: S) -> ServiceLock<S, R> {
        ServiceLock::new(inner, Arc::clone(&self.settings))
    }
}

// Not derived: that would ask the same of `R`.
impl<R> Clone for ServiceLockLayer<R> {
    fn clone(&self) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<R> Clone for Settings<R> {
    fn clone(&self) -> Self {
        Self {
            lock: self.lock.clone(),
            mode: self.mode,
            key: Arc::clone(&self.key),
        }
    }
}

impl<R> fmt::Debug for ServiceLockLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.lock.fmt_as("ServiceLockLayer", f)
    }
}
