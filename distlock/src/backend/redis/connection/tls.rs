//! TLS: the certificates of a client, and what the errors of a handshake mean.
//!
//! The driver speaks TLS, by `rustls` or by the system's library. It reports wrong certificates late or not at all, so they
//! are checked here when a client is made.

#[cfg(feature = "_tls")]
mod errors;
#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
mod native_tls;
#[cfg(feature = "tls-rustls")]
mod rustls;

use redis::{ConnectionAddr, RedisError};

#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
use self::native_tls as library;
#[cfg(feature = "tls-rustls")]
use self::rustls as library;
use crate::config::Config;
use crate::error::Error;

/// How TLS connections are made.
#[derive(Debug)]
pub(super) struct TlsConnector {
    /// An address with the certificates, of no server: the driver has no other public name for them.
    certificates: ConnectionAddr,
}

impl TlsConnector {
    /// Reads the client's certificates. With `insecure`, those of the servers are not checked.
    #[cfg(feature = "_tls")]
    pub(super) fn new(insecure: bool, config: &Config) -> Result<Self, Error> {
        use redis::{Client, ClientTlsConfig, TlsCertificates};

        if insecure && !cfg!(feature = "tls-rustls-insecure") {
            return Err(invalid_url(
                "`#insecure` needs the feature `tls-rustls-insecure` of the crate `distlock` as well",
            ));
        }
        let (authorities, own) = (config.tls_ca_pem.as_ref(), config.tls_client_pem.as_ref());
        library::check(authorities, own)?;
        let certificates = TlsCertificates {
            client_tls: own.map(|own| ClientTlsConfig {
                client_cert: own.certificate.bytes().to_vec(),
                client_key: own.key.bytes().to_vec(),
            }),
            root_cert: authorities.map(|pem| pem.bytes().to_vec()),
        };
        let no_server = ConnectionAddr::TcpTls {
            host: String::new(),
            port: 0,
            insecure,
            tls_params: None,
        };
        let client = Client::build_with_tls(no_server, certificates);
        // They were checked, so this is about something that this crate does not know of.
        let client = client.map_err(|error| invalid_url(&error.to_string()))?;
        Ok(Self {
            certificates: client.get_connection_info().addr().clone(),
        })
    }

    #[cfg(not(feature = "_tls"))]
    pub(super) fn new(_insecure: bool, _config: &Config) -> Result<Self, Error> {
        Err(invalid_url(
            "TLS needs a feature of the crate `distlock`: turn on `tls-rustls`, or `tls-native-tls`",
        ))
    }

    /// The driver's address of a server.
    pub(super) fn address(&self, server: &str, server_port: u16) -> ConnectionAddr {
        let mut address = self.certificates.clone();
        if let ConnectionAddr::TcpTls { host, port, .. } = &mut address {
            *host = server.to_owned();
            *port = server_port;
        }
        address
    }
}

/// Why a TLS handshake failed, if it fails again until a certificate or a setting is another one.
#[cfg(feature = "_tls")]
pub(super) fn refusal(error: &RedisError) -> Option<String> {
    library::refusal(error)
}

#[cfg(not(feature = "_tls"))]
pub(super) fn refusal(_error: &RedisError) -> Option<String> {
    None
}

/// Whether what the server sent was no TLS.
#[cfg(feature = "_tls")]
pub(super) fn is_no_tls(error: &RedisError) -> bool {
    library::is_no_tls(error)
}

#[cfg(not(feature = "_tls"))]
pub(super) fn is_no_tls(_error: &RedisError) -> bool {
    false
}

fn invalid_url(reason: &str) -> Error {
    Error::InvalidUrl {
        reason: reason.to_owned(),
    }
}
