//! The service whose requests of any type run under a lock, and its future.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use distlock::Guard;
use futures_core::future::BoxFuture;
use tower_service::Service;

use super::{LockError, Settings};
use crate::key::{self, Keys, NoKeys};
use crate::respond;

/// A service whose requests run under a lock. Made by [`ServiceLockLayer`](super::ServiceLockLayer).
///
/// It is ready when the inner service is ready. The lock is acquired in the response future.
///
/// # Errors
/// [`LockError`]: the inner service's error, or the reason why the request has no lock or lost it.
///
/// # Examples
/// See [`ServiceLockLayer`](super::ServiceLockLayer).
pub struct ServiceLock<S, R> {
    inner: S,
    settings: Arc<Settings<R>>,
}

impl<S, R> ServiceLock<S, R> {
    pub(super) fn new(inner: S, settings: Arc<Settings<R>>) -> Self {
        Self { inner, settings }
    }
}

impl<S, R> Service<R> for ServiceLock<S, R>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = LockError<S::Error>;
    type Future = ServiceLockFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(LockError::Inner)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The service that was polled ready moves into the future. A fresh clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let keys = (self.settings.key)(&request);
        let handling = handle(Arc::clone(&self.settings), keys, ready, request);
        ServiceLockFuture(Box::pin(async {
            let outcome = handling.await;
            if let Some(reason) = outcome.as_ref().err().and_then(LockError::reason) {
                respond::count_answer(reason);
            }
            outcome
        }))
    }
}

async fn handle<S: Service<R>, R>(
    settings: Arc<Settings<R>>,
    keys: Result<Keys, NoKeys>,
    mut service: S,
    request: R,
) -> Result<S::Response, LockError<S::Error>> {
    let keys = match keys {
        Ok(keys) => key::distinct(keys),
        Err(NoKeys::Error(error)) if settings.optional && error.is_absent() => {
            return service.call(request).await.map_err(LockError::Inner);
        }
        Err(NoKeys::Error(error)) => Err(error),
        Err(NoKeys::Answer(answer)) => {
            let status = answer.status();
            let reason = format!("the key function returned a response ({status}) instead of keys");
            return Err(LockError::Keys(reason));
        }
    };
    let keys = keys.map_err(|error| LockError::Keys(error.to_string()))?;
    let guard = settings.lock.acquire(settings.mode, keys).await?;
    let output = guard
        .scope(async move { service.call(request).await })
        .await;
    finish(guard, output.map_err(LockError::Lock)?).await
}

/// Releases, and replaces the response if the hold was lost, since others may have been inside the critical section.
/// The inner service's error stays.
async fn finish<T, E>(guard: Guard, output: Result<T, E>) -> Result<T, LockError<E>> {
    let released = guard.release().await;
    match (&output, released) {
        (_, Ok(())) => {}
        (Ok(_), Err(lost)) if lost.is_lost() => return Err(LockError::Lock(lost.after_body())),
        (_, Err(error)) => respond::release_failed(&error),
    }
    output.map_err(LockError::Inner)
}

impl<S: Clone, R> Clone for ServiceLock<S, R> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.settings))
    }
}

impl<S, R> fmt::Debug for ServiceLock<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.lock.fmt_as("ServiceLock", f)
    }
}

/// The response future of a [`ServiceLock`].
///
/// # Cancel safety
/// Dropping the future while it waits gives up the request's place in line. Dropping it later drops the inner service's
/// future inside the critical section, and then releases the lock in the background.
///
/// # Examples
/// See [`ServiceLockLayer`](super::ServiceLockLayer).
#[must_use = "futures do nothing unless awaited"]
pub struct ServiceLockFuture<T, E>(BoxFuture<'static, Result<T, LockError<E>>>);

impl<T, E> Future for ServiceLockFuture<T, E> {
    type Output = Result<T, LockError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T, E> fmt::Debug for ServiceLockFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceLockFuture").finish_non_exhaustive()
    }
}
