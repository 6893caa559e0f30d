//! The options of one call, and the acquisition that they describe.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::keys::Keys;
use super::output::{Handler, LostOutput, settle};
use crate::acquire::Acquire;
use crate::acquire::path::Acquiring;
use crate::client::Client;
use crate::client::installed;
use crate::client::quorum::Quorum;
use crate::client::source::LockSource;
use crate::error::{Error, polled_after_completion};
use crate::guard::Guard;
use crate::guard::run::Guarded;
use crate::resource::mode::Mode;
use crate::telemetry;

/// A type that can be the value of `client = ..`. `By` keeps the implementations apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a distlock client",
    label = "expected a `Client` or a `Quorum`, a reference to one, or a type that is `AsRef<Client>`",
    note = "a client in a field is `client = app.locks`; a program makes a client of a URL once, when it starts: `Client::connect(url).await?`"
)]
pub trait AsLockSource<By> {
    /// Returns the source of the locks.
    fn locks(&self) -> LockSource;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<Client> + ?Sized> AsLockSource<Client> for T {
    fn locks(&self) -> LockSource {
        LockSource::Client(self.as_ref().clone())
    }
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<Quorum> + ?Sized> AsLockSource<Quorum> for T {
    fn locks(&self) -> LockSource {
        LockSource::Quorum(self.as_ref().clone())
    }
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<LockSource> + ?Sized> AsLockSource<LockSource> for T {
    fn locks(&self) -> LockSource {
        self.as_ref().clone()
    }
}

/// The options of one call.
pub struct Enter {
    keys: Keys,
    locks: Option<LockSource>,
    mode: Mode,
    wait: Option<Duration>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    max_waiters: Option<u32>,
    hold_at_least: Option<Duration>,
    run_without_lock: bool,
}

impl Enter {
    /// Starts with the default options.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        let locks = None;
        let wait = None;
        let lease = None;
        Self {
            keys,
            locks,
            mode: Mode::default(),
            wait,
            lease,
            max_hold: None,
            max_waiters: None,
            hold_at_least: None,
            run_without_lock: false,
        }
    }

    /// Sets `client = ..`. Without it the scoped client is used, or else the installed one.
    #[must_use]
    pub fn client<By, C: AsLockSource<By> + ?Sized>(mut self, client: &C) -> Self {
        self.locks = Some(client.locks());
        self
    }

    /// Sets `mode = ..`.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets `wait = ..`.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets `lease = ..`.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets `max_hold = ..`.
    #[must_use]
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// Sets `max_waiters = ..`.
    #[must_use]
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.max_waiters = Some(most);
        self
    }

    /// Sets `hold_at_least = ..`.
    #[must_use]
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.hold_at_least = Some(time);
        self
    }

    /// Sets `on_unavailable = "run"`.
    #[must_use]
    pub fn or_run_without_lock(mut self) -> Self {
        self.run_without_lock = true;
        self
    }

    /// Acquires the lock.
    #[must_use]
    #[track_caller]
    pub fn enter(self) -> Entering {
        let run_without_lock = self.run_without_lock;
        let acquiring = match self.acquire() {
            Ok(acquire) => acquire.into_future(),
            Err(error) => Acquiring::new(std::future::ready(Err(error))),
        };
        Entering {
            acquiring: Some(acquiring),
            run_without_lock,
        }
    }

    #[track_caller]
    fn acquire(self) -> Result<Acquire, Error> {
        let Keys { keys, wrong } = self.keys;
        wrong.map_or(Ok(()), Err)?;
        let locks = match self.locks {
            Some(locks) => locks,
            None => installed::current()?,
        };
        let mut acquire = locks.acquire(self.mode, keys);
        if let Some(wait) = self.wait {
            acquire = acquire.wait(wait);
        }
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        if let Some(most) = self.max_hold {
            acquire = acquire.max_hold(most);
        }
        if let Some(most) = self.max_waiters {
            acquire = acquire.max_waiters(most);
        }
        if let Some(time) = self.hold_at_least {
            acquire = acquire.hold_at_least(time);
        }
        Ok(acquire)
    }
}

/// The acquisition of one call, which may run without a lock.
pub struct Entering {
    acquiring: Option<Acquiring>,
    run_without_lock: bool,
}

impl Entering {
    /// Returns the acquisition of a call with `condition = false`, which completes at once without a lock.
    #[must_use]
    pub fn without_lock() -> Self {
        Self {
            acquiring: None,
            run_without_lock: true,
        }
    }
}

impl Future for Entering {
    type Output = Result<Held, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(acquiring) = &mut self.acquiring else {
            return Poll::Ready(Ok(Held(None)));
        };
        match ready!(Pin::new(acquiring).poll(cx)) {
            Err(error) if self.run_without_lock && error.is_unavailable() => {
                telemetry::runs_without_lock(&error);
                Poll::Ready(Ok(Held(None)))
            }
            acquired => Poll::Ready(acquired.map(|guard| Held(Some(guard)))),
        }
    }
}

/// The guard under which the body runs, if there is one.
pub struct Held(Option<Guard>);

impl Held {
    /// Returns the fencing token of the grant. The macro only uses it with fenced locks whose body never runs without.
    #[must_use]
    pub fn token(&self) -> u64 {
        let token = self.0.as_ref().and_then(Guard::fencing_token);
        token.unwrap_or_default()
    }
}

/// Mentions a parameter, so that the future of the body captures it.
pub fn mention<T: ?Sized>(_: &T) {}

/// Does what [`mention`] does, for a parameter such as `_unused`. The attribute assigns to what this returns. The lint
/// `clippy::used_underscore_binding`, which a user may forbid, does not count an assignment as a use of the parameter.
pub fn place_of<T: ?Sized>(_: &T) -> &'static mut () {
    // It has no size, so nothing is allocated.
    Box::leak(Box::new(()))
}

/// Runs the body inside the guard's scope, then releases the guard. Without a guard it only runs the body.
///
/// `failed` tells whether an output is an `Err`. The handler makes the output if the hold was lost.
pub fn hold<F: Future, H>(
    Held(guard): Held,
    body: F,
    failed: fn(&F::Output) -> bool,
    on_error: Handler<H, F::Output>,
) -> impl Future<Output = F::Output> {
    hold_value(Held(guard), body, failed, on_error, ())
}

/// Does the same as [`hold`], and gives the output to `on_lost` if the body has not failed and its lock was lost.
pub fn hold_value<F: Future, H, L: LostOutput<F::Output>>(
    Held(guard): Held,
    body: F,
    failed: fn(&F::Output) -> bool,
    on_error: Handler<H, F::Output>,
    on_lost: L,
) -> impl Future<Output = F::Output> {
    Holding {
        guarded: Guarded::held(guard, body),
        failed,
        handlers: Some((on_error, on_lost)),
    }
}

pin_project! {
    /// The future of [`hold`].
    struct Holding<F: Future, H, L> {
        #[pin]
        guarded: Guarded<F>,
        failed: fn(&F::Output) -> bool,
        // Taken when the body has ended.
        handlers: Option<(Handler<H, F::Output>, L)>,
    }
}

impl<F: Future, H, L: LostOutput<F::Output>> Future for Holding<F, H, L> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let ended = ready!(this.guarded.poll(cx));
        let Some((on_error, on_lost)) = this.handlers.take() else {
            polled_after_completion();
        };
        Poll::Ready(match ended {
            Ok((output, released)) => match settle(released, (this.failed)(&output)) {
                Ok(()) => output,
                Err(lost) => on_lost.make(output, lost, on_error),
            },
            Err(lost) => on_error.make(lost),
        })
    }
}
