//! The layer for tower services of any request type. It reports failures as errors, since it cannot make responses.

mod error;
mod service;
mod setters;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use distlock::{LockSource, Mode};
use tower_layer::Layer;

pub use self::error::LockError;
pub use self::service::{ServiceLock, ServiceLockFuture};
use crate::key::{IntoLockKeys, Keys, NoKeys};
use crate::settings::LockSettings;

/// A layer that runs the requests of any tower service under a distributed lock, such as a queue consumer or a client.
///
/// Like [`LockLayer`](crate::LockLayer), it guarantees:
///
/// * The inner service is called only while the lock is held. It runs inside the critical section, where
///   [`distlock::current`] finds the hold.
/// * The lock is released, and the release is confirmed, before the response is returned. If another request of the process waits
///   for the key, the hold may go to that request without an answer of the server.
/// * If the hold is lost, the inner service's future is dropped.
///
/// The layer cannot make responses of an unknown type, so it reports failures as [`LockError`], which also wraps the
/// inner service's errors. In an axum router it needs a `HandleErrorLayer` around it.
///
/// The key function is a closure over `&R` that returns an [`IntoLockKeys`]. For `None` the request fails with
/// [`LockError::Keys`], or runs unlocked if the layer is [optional](Self::optional). If the function returns an answer in place of keys, the request fails with [`LockError::Keys`].
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
    key: ErasedKeyFn<R>,
    optional: bool,
}

impl<R> Settings<R> {
    #[track_caller]
    fn check(&self) {
        self.lock.check(self.mode);
    }
}

type ErasedKeyFn<R> = Arc<dyn Fn(&R) -> Result<Keys, NoKeys> + Send + Sync>;

impl<R> ServiceLockLayer<R> {
    /// Creates a layer that takes its locks from a [`Client`](distlock::Client) or a [`Quorum`](distlock::Quorum).
    /// `key` returns the key of a request.
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
    #[track_caller]
    pub fn new<F, K>(locks: impl Into<LockSource>, key: F) -> Self
    where
        F: Fn(&R) -> K + Send + Sync + 'static,
        K: IntoLockKeys,
    {
        let settings = Settings {
            lock: LockSettings::new(locks.into(), Location::caller()),
            mode: Mode::default(),
            key: Arc::new(move |request| key(request).into_lock_keys().0),
            optional: false,
        };
        Self {
            settings: Arc::new(settings),
        }
    }

    /// Sets the kind of lock to take: [`Mode::Reentrant`] by default.
    ///
    /// If the kind is not supported for the keys, requests fail with [`Error::Unsupported`](distlock::Error::Unsupported):
    /// several keys with [`Mode::Fenced`], for example.
    ///
    /// # Panics
    /// If a [`Quorum`](distlock::Quorum) does not support the mode, or if it cannot be combined with
    /// [`hold_at_least`](Self::hold_at_least).
    ///
    /// # Examples
    /// See [`new`](Self::new).
    #[track_caller]
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.settings).mode = mode;
        self.settings.check();
        self
    }

    /// Lets requests run unlocked for which the key function returns `None`. By default they fail with
    /// [`LockError::Keys`].
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::ServiceLockLayer;
    ///
    /// struct Job { tenant: Option<u64> }
    ///
    /// let client = distlock::Client::in_memory();
    /// let of_tenant = |job: &Job| job.tenant.map(|tenant| format!("sweep:{tenant}"));
    /// let layer = ServiceLockLayer::new(&client, of_tenant).optional();
    /// ```
    pub fn optional(mut self) -> Self {
        Arc::make_mut(&mut self.settings).optional = true;
        self
    }
}

impl<S, R> Layer<S> for ServiceLockLayer<R> {
    type Service = ServiceLock<S, R>;

    fn layer(&self, inner: S) -> ServiceLock<S, R> {
        ServiceLock::new(inner, Arc::clone(&self.settings))
    }
}

// Not derived, because a derived impl would require `R: Clone`.
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
            optional: self.optional,
        }
    }
}

impl<R> fmt::Debug for ServiceLockLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.lock.fmt_as("ServiceLockLayer", f)
    }
}
