//! Clients of a lock server inside this process.

use std::sync::Arc;
use std::time::Duration;

use super::builder::Builder;
use super::{Client, new_registry};
use crate::backend::Backend;
use crate::backend::memory::MemoryServer;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::local::Lives;
use crate::resource::identity::Identity;

impl Client {
    /// Creates a client of a new lock server inside this process, with default settings.
    ///
    /// The server behaves like Redis and needs no installation. It is meant for examples, tests and programs of a single
    /// process. It uses tokio's clock, so tests can pause time. To connect several clients to one such server, use
    /// [`Builder::in_memory`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn in_memory() -> Self {
        Self::on(Config::default(), MemoryServer::new(), None, undecorated)
    }

    /// A client whose clock is not that of its server.
    #[cfg(test)]
    pub(crate) fn on_clock(clock: Clock, server: &MemoryServer) -> Self {
        Self::on(Config::default(), server.clone(), Some(clock), undecorated)
    }

    /// A client of a lock server inside this process, with something between the two. `clock`: if it is not the server's.
    fn on(
        config: Config,
        server: MemoryServer,
        clock: Option<Clock>,
        decorate: impl Fn(Arc<dyn Backend>, &Clock) -> Arc<dyn Backend> + Send + Sync + 'static,
    ) -> Self {
        let make = move || {
            let identity = Identity::new();
            let clock = clock.clone().unwrap_or_else(|| server.clock());
            let backend = Arc::new(server.connect(&config, identity.id()));
            let backend = decorate(backend, &clock);
            new_registry(identity, &config, clock, backend)
        };
        Self {
            lives: Lives::new(make(), Box::new(move || Ok(make()))),
        }
    }
}

fn undecorated(backend: Arc<dyn Backend>, _clock: &Clock) -> Arc<dyn Backend> {
    backend
}

impl Builder {
    /// Creates a client of a lock server inside this process. Several clients can share one server.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`]: a setting has a value that cannot
    /// work.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let (one, two) = (Client::builder().in_memory(&server)?, Client::builder().in_memory(&server)?);
    /// let _guard = one.lock("order:42").acquire().await?;
    /// assert!(two.lock("order:42").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn in_memory(self, server: &MemoryServer) -> Result<Client, Error> {
        let config = self.config.clone().with(self.settings.clone())?;
        let config = config.validated()?;
        let patience = config.response_timeout;
        Ok(Client::on(
            config,
            server.clone(),
            None,
            move |backend, clock| self.decorate(backend, clock, patience),
        ))
    }

    /// Puts the tests' decorators around a backend.
    #[cfg(feature = "test-util")]
    pub(super) fn decorate(
        &self,
        backend: Arc<dyn Backend>,
        clock: &Clock,
        response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        self.decorators.around(backend, clock, response_timeout)
    }

    #[cfg(not(feature = "test-util"))]
    pub(super) fn decorate(
        &self,
        backend: Arc<dyn Backend>,
        _clock: &Clock,
        _response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        backend
    }
}
