//! Where a server listens.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

use crate::backend::Fault;

/// The pending address of a server.
pub(crate) type Located<'a> = Pin<Box<dyn Future<Output = Result<Address, Fault>> + Send + 'a>>;

/// Says which server to connect to.
pub(crate) trait Locate: Send + Sync {
    /// The server's address. It is asked for before each connection.
    fn locate(&self) -> Located<'_>;

    /// Whether a connection that was made to this address may be used.
    fn is_current(&self, _address: &Address) -> bool {
        true
    }

    /// What errors and logs call the server.
    fn name(&self) -> String;
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Address {
    /// A host and a port.
    Tcp {
        /// A name or an IP address, without brackets.
        host: String,
        port: u16,
    },
    /// The file of a socket.
    Unix(PathBuf),
}

/// A server that stays where it is.
impl Locate for Address {
    fn locate(&self) -> Located<'_> {
        Box::pin(async { Ok(self.clone()) })
    }

    fn name(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
