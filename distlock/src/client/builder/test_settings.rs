//! Settings for the workspace's tests.

use std::sync::Arc;
use std::time::Duration;

use super::Builder;
use crate::backend::Backend;
use crate::clock::Clock;

impl Builder {
    /// Puts a decorator between the client and its backend. With `nearest` it is nearest to the server, otherwise
    /// nearest to the client.
    #[doc(hidden)]
    pub fn decorate_backend(
        mut self,
        nearest: bool,
        decorate: impl Fn(Arc<dyn Backend>, &Clock, Duration) -> Arc<dyn Backend>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.decorators.insert(nearest, Arc::new(decorate));
        self
    }

    /// Asks this function for the addresses of names, and not the system.
    #[cfg(feature = "redis")]
    #[doc(hidden)]
    pub fn look_up_by<F>(mut self, look_up: impl Fn(&str, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::io::Result<Vec<std::net::SocketAddr>>> + Send + 'static,
    {
        use crate::config::look_up::{LookUp, LookedUp};

        let ask = move |host: &str, port| Box::pin(look_up(host, port)) as LookedUp;
        self.config.look_up = LookUp::Asked(Arc::new(ask));
        self
    }
}
