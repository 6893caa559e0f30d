//! The settings of connections with TLS.

use std::path::PathBuf;

#[cfg(feature = "_tls")]
use super::pem::{ClientPem, Pem};
#[cfg(feature = "_tls")]
use super::source::Source;
use crate::error::Error;

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

impl TlsSettings {
    /// Refuses these settings for a connection without TLS, because the user who has set one counts on it.
    pub(crate) fn check_unused(&self) -> Result<(), Error> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let set = [
            ("tls_ca_file", path(&self.files.ca)),
            ("tls_client_cert_file", path(&self.files.client_cert)),
            ("tls_server_name", self.server_name.clone()),
            #[cfg(feature = "_tls")]
            (
                "tls_ca_pem",
                self.ca_pem.as_ref().map(|_| "a PEM".to_owned()),
            ),
            #[cfg(feature = "_tls")]
            (
                "tls_client_pem",
                self.client_pem.as_ref().map(|_| "a PEM".to_owned()),
            ),
        ];
        let mut set = set
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name, value)));
        match set.next() {
            None => Ok(()),
            Some((setting, value)) => {
                let expected = "a URL with TLS, such as `rediss://`, or no such setting";
                Err(Error::invalid_config(setting, value, expected))
            }
        }
    }
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
