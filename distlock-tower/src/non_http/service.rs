//! The guarded service of any request, and its future.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use distlock::Guard;
use futures_core::future::BoxFuture;
use tower_service::Service;

use super::{LockError, Settings};
use crate::key::{self, Named};
use crate::respond;

/// A service whose requests run under a lock; made by [`ServiceLockLayer`](super::ServiceLockLayer).
///
/// Ready when the inner service is; the lock is acquired by the response future.
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
        // The service that was polled ready goes into the future: a fresh clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let keys = (self.settings.key)(&request);
        let handling = handle(Arc::clone(&self.settings), keys, ready, request);
        ServiceLockFuture(Box::pin(handling))
    }
}

async fn handle<S: Service<R>, R>(
    settings: Arc<Settings<R>>,
    keys: Named,
    mut service: S,
    request: R,
) -> Result<S::Response, LockError<S::Error>> {
    let keys = match keys {
        Named::Nothing => return service.call(request).await.map_err(LockError::Inner),
        Named::Keys(keys) => key::distinct(keys).map_err(|bad| LockError::Keys(bad.to_string()))?,
        Named::Missing(what) | Named::Unclear(what) => {
            return Err(LockError::Keys(format!("no {what} to make a key of")));
        }
        Named::Answer(answer) => {
            let reason = format!("the key function answered {}", answer.status());
            return Err(LockError::Keys(reason));
        }
    };
    let guard = settings.lock.acquire(settings.mode, keys).await?;
    let output = guard
        .scope(async move { service.call(request).await })
        .await;
    finish(guard, output.map_err(LockError::Lock)?).await
}

/// A response that was not alone must not pass for one that was. The service's own error stays.
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
/// Dropping it while it waits gives up the request's place in line. Dropping it later drops the inner service's future
/// first, inside the critical section, and then releases the lock in the background.
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
