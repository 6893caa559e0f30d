//! The settings of connections with TLS.

use std::path::PathBuf;

#[cfg(feature = "_tls")]
use super::pem::{ClientPem, Pem};
#[cfg(feature = "_tls")]
use super::source::Source;

/// The certificates and the name that connections with TLS use.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "_tls"),
    allow(dead_code, reason = "without TLS they have no effect")
)]
pub(crate) struct TlsSettings {
    /// The certificates of the authorities that issue those of the servers, instead of the system's.
    #[cfg(feature = "_tls")]
    pub(crate) ca_pem: Option<Source<Pem>>,
    #[cfg(feature = "_tls")]
    pub(crate) client_pem: Option<Source<ClientPem>>,
    /// The files of certificates and keys, which are read again for each connection.
    pub(crate) files: TlsFiles,
    /// The name in the servers' certificates, instead of the host of each address.
    pub(crate) server_name: Option<String>,
}

/// The files of certificates and keys, which are read again for each connection.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "_tls"),
    allow(dead_code, reason = "without TLS they have no effect")
)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client_cert: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
}
