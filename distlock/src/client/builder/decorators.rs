//! The decorators that the workspace's tests put between a client and its server.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::clock::Clock;

/// The decorators between a client and its backend, the one nearest to the server first.
#[derive(Clone, Default)]
pub(crate) struct Decorators(Vec<Decorator>);

/// Makes a decorator. Its last argument is the response timeout, within which every backend answers.
pub(super) type Decorator =
    Arc<dyn Fn(Arc<dyn Backend>, &Clock, Duration) -> Arc<dyn Backend> + Send + Sync>;

// A panic of a decorator leaves nothing half done: the list is only read when a client is made.
impl UnwindSafe for Decorators {}
impl RefUnwindSafe for Decorators {}

impl Decorators {
    /// Adds a decorator, nearest to the server or nearest to the client.
    pub(super) fn insert(&mut self, nearest: bool, decorator: Decorator) {
        let at = if nearest { 0 } else { self.0.len() };
        self.0.insert(at, decorator);
    }

    pub(crate) fn around(
        &self,
        backend: Arc<dyn Backend>,
        clock: &Clock,
        response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        let decorators = self.0.iter();
        decorators.fold(backend, |inner, decorate| {
            decorate(inner, clock, response_timeout)
        })
    }
}

impl fmt::Debug for Decorators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decorators").field(&self.0.len()).finish()
    }
}
