//! The options of one call, and the way from them to a hold, or to none where the body is to run without.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::keys::Keys;
use crate::acquire::Acquire;
use crate::client::{self, Client};
use crate::error::Error;
use crate::guard::Guard;
use crate::run::{Acquiring, Guarded};
use crate::telemetry;

/// What may stand behind `client =`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a distlock client",
    label = "expected a `Client`, a reference to one, or a type that is `AsRef<Client>`"
)]
pub trait AsClient {
    /// The client.
    fn client(&self) -> &Client;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<Client> + ?Sized> AsClient for T {
    fn client(&self) -> &Client {
        self.as_ref()
    }
}

/// The options of one call, on the way to a guard.
pub struct Enter {
    keys: Keys,
    client: Option<Client>,
    wait: Option<Duration>,
    lease: Option<Duration>,
    run_without_lock: bool,
}

impl Enter {
    /// No options yet.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        let (client, wait, lease) = (None, None, None);
        Self {
            keys,
            client,
            wait,
            lease,
            run_without_lock: false,
        }
    }

    /// `client = ..`; else the scoped one, else the installed one.
    #[must_use]
    pub fn client<C: AsClient + ?Sized>(mut self, client: &C) -> Self {
        self.client = Some(client.client().clone());
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
        let Keys {
            mut keys,
            several,
            wrong,
        } = self.keys;
        wrong.map_or(Ok(()), Err)?;
        let client = self.client.map_or_else(client::current, Ok)?;
        let mut acquire = match keys.pop() {
            Some(key) if !several => client.lock(key).acquire(),
            last => client.multi_lock(keys.into_iter().chain(last)).acquire(),
        };
        if let Some(wait) = self.wait {
            acquire = acquire.wait(wait);
        }
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
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
