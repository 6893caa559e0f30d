//! The options of one call, and the way from them to a hold, or to none where the body is to run without.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::keys::Keys;
use crate::acquire::Acquire;
use crate::client::Client;
use crate::client::installed;
use crate::client::quorum::Quorum;
use crate::client::source::LockSource;
use crate::error::Error;
use crate::guard::Guard;
use crate::guard::run::{Acquiring, Guarded};
use crate::mode::Mode;
use crate::telemetry;

/// What may stand behind `client =`. `By` tells the implementations apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a distlock client",
    label = "expected a `Client` or a `Quorum`, a reference to one, or a type that is `AsRef<Client>`"
)]
pub trait AsLockSource<By> {
    /// Where its locks come from.
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

/// The options of one call, on the way to a guard.
pub struct Enter {
    keys: Keys,
    locks: Option<LockSource>,
    mode: Mode,
    wait: Option<Duration>,
    lease: Option<Duration>,
    hold_at_least: Option<Duration>,
    run_without_lock: bool,
}

impl Enter {
    /// No options yet.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        let (locks, wait, lease) = (None, None, None);
        Self {
            keys,
            locks,
            mode: Mode::default(),
            wait,
            lease,
            hold_at_least: None,
            run_without_lock: false,
        }
    }

    /// `client = ..`; else the scoped one, else the installed one.
    #[must_use]
    pub fn client<By, C: AsLockSource<By> + ?Sized>(mut self, client: &C) -> Self {
        self.locks = Some(client.locks());
        self
    }

    /// `mode = ..`
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// `wait = ..`
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// `lease = ..`
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// `hold_at_least = ..`
    #[must_use]
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.hold_at_least = Some(time);
        self
    }

    /// `on_unavailable = "run"`
    #[must_use]
    pub fn or_run_without_lock(mut self) -> Self {
        self.run_without_lock = true;
        self
    }

    /// Acquires the lock.
    #[must_use]
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

    fn acquire(self) -> Result<Acquire, Error> {
        let Keys { keys, wrong } = self.keys;
        wrong.map_or(Ok(()), Err)?;
        let locks = match self.locks {
            Some(locks) => locks,
            None => installed::current()?.into(),
        };
        let mut acquire = locks.acquire(self.mode, keys);
        if let Some(wait) = self.wait {
            acquire = acquire.wait(wait);
        }
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        if let Some(time) = self.hold_at_least {
            acquire = acquire.hold_at_least(time);
        }
        Ok(acquire)
    }
}

/// A lock being acquired, or none.
pub struct Entering {
    acquiring: Option<Acquiring>,
    run_without_lock: bool,
}

impl Entering {
    /// `condition = false`
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

/// The hold under which the body runs, if any.
pub struct Held(Option<Guard>);

impl Held {
    /// The token of the grant. The macro asks for it where the lock is a fenced one and the body never runs without.
    #[must_use]
    pub fn token(&self) -> u64 {
        let token = self.0.as_ref().and_then(Guard::token);
        token.unwrap_or_default()
    }
}

/// Uses a parameter, so that the body's future takes it.
pub fn mention<T: ?Sized>(_: &T) {}

/// Runs the body in the guard's scope, then releases; what the release said stands beside the body's output. Without a
/// guard just runs it.
///
/// # Errors
/// `Lost`, with the body cut short.
pub fn hold<F: Future>(
    Held(guard): Held,
    body: F,
) -> impl Future<Output = Result<(F::Output, Result<(), Error>), Error>> {
    Guarded::held(guard, body)
}
