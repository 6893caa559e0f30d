//! How the name of a server becomes addresses.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;

/// The pending answer to a look-up.
pub(crate) type LookedUp = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Asks for the addresses of a name, in place of the system.
#[cfg(feature = "test-util")]
type Ask = dyn Fn(&str, u16) -> LookedUp + Send + Sync;

/// Who is asked for the addresses of a name: the system, or in tests a function in its place.
#[derive(Clone, Default)]
pub(crate) enum LookUp {
    /// It takes a thread of the runtime's blocking pool.
    #[default]
    System,
    #[cfg(feature = "test-util")]
    Asked(Arc<Ask>),
}

impl LookUp {
    /// Asks for the addresses of a name.
    pub(crate) fn ask(&self, host: Arc<str>, port: u16) -> LookedUp {
        match self {
            Self::System => Box::pin(async move {
                let found = tokio::net::lookup_host((&*host, port)).await?;
                Ok(found.collect())
            }),
            #[cfg(feature = "test-util")]
            Self::Asked(ask) => ask(&host, port),
        }
    }
}

impl fmt::Debug for LookUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            #[cfg(feature = "test-util")]
            Self::Asked(_) => "Asked(..)",
        })
    }
}

// The function is shared and never changed, as a client's other callbacks.
impl UnwindSafe for LookUp {}
impl RefUnwindSafe for LookUp {}
