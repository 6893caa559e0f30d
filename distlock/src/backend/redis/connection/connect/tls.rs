//! TLS: the certificates of a client, the handshake, and what its errors mean.
//!
//! By `rustls` or by the system's library. The driver's own TLS is not used, and nothing is installed for the process, so
//! neither what other crates turn on nor what the program does with its own TLS changes this one, or is changed by it.

#[cfg(feature = "_tls")]
mod certificates;
#[cfg(feature = "_tls")]
mod errors;
#[cfg(all(feature = "_rustls", feature = "tls-rustls-insecure"))]
mod insecure;
#[cfg(all(feature = "tls-native-tls", not(feature = "_rustls")))]
mod native_tls;
#[cfg(feature = "_rustls")]
mod roots;
#[cfg(feature = "_rustls")]
mod rustls;

use std::io;

use redis::RedisError;
use tokio::net::TcpStream;

#[cfg(feature = "_tls")]
use self::certificates::Certificates;
#[cfg(all(feature = "tls-native-tls", not(feature = "_rustls")))]
use self::native_tls as library;
#[cfg(feature = "_rustls")]
use self::rustls as library;
use super::stream::Stream;
use crate::backend::Fault;
use crate::config::Config;
use crate::error::Error;

#[cfg(feature = "_tls")]
#[derive(Debug)]
pub(crate) struct TlsConnector {
    certificates: Certificates,
    /// What stays the same: whom to trust without an authority of the user's, and the cryptography.
    library: library::Library,
    /// Made of certificates that do not change.
    fixed: Option<library::Client>,
    server_name: Option<String>,
}

#[cfg(feature = "_tls")]
impl TlsConnector {
    /// Reads the client's certificates, as far as they are values or files. With `insecure`, those of the servers are not
    /// checked.
    pub(crate) fn new(insecure: bool, config: &Config) -> Result<Self, Error> {
        if insecure && !cfg!(all(feature = "_rustls", feature = "tls-rustls-insecure")) {
            return Err(invalid_url(
                "`#insecure` needs the features `tls-rustls` and `tls-rustls-insecure` of the crate `distlock`",
            ));
        }
        let certificates = Certificates::of(config);
        let library = library::Library::new(insecure, certificates.has_authorities())?;
        let server_name = config.tls.server_name.clone();
        if let Some(name) = &server_name {
            library::check_name(name)?;
        }
        // What is asked of a function is known at the first connection.
        let now = match certificates.now()? {
            Some(read) => {
                let client = library.client(&read);
                Some(client.map_err(|error| certificates.with_file(error))?)
            }
            None => None,
        };
        Ok(Self {
            fixed: now.filter(|_| certificates.are_fixed()),
            certificates,
            library,
            server_name,
        })
    }

    /// What the next connection needs: its files are read, and its functions asked.
    pub(crate) async fn prepare(&self) -> Result<Handshake, Fault> {
        let client = match &self.fixed {
            Some(client) => client.clone(),
            None => {
                let read = self.certificates.read().await?;
                let client = self.library.client(&read);
                client
                    .map_err(|error| certificates::unusable(&self.certificates.with_file(error)))?
            }
        };
        Ok(Handshake {
            client,
            server_name: self.server_name.clone(),
        })
    }
}

#[cfg(feature = "_tls")]
pub(crate) struct Handshake {
    client: library::Client,
    server_name: Option<String>,
}

#[cfg(feature = "_tls")]
impl Handshake {
    /// TLS over this socket, to a server of this name unless the user has set another one.
    pub(crate) async fn over(&self, socket: TcpStream, host: &str) -> io::Result<Box<dyn Stream>> {
        let name = self.server_name.as_deref().unwrap_or(host);
        library::handshake(&self.client, name, socket).await
    }
}

/// TLS in a build without it: there is none.
#[cfg(not(feature = "_tls"))]
#[derive(Debug)]
pub(crate) enum TlsConnector {}

#[cfg(not(feature = "_tls"))]
pub(crate) enum Handshake {}

#[cfg(not(feature = "_tls"))]
impl TlsConnector {
    pub(crate) fn new(_insecure: bool, _config: &Config) -> Result<Self, Error> {
        Err(invalid_url(
            "TLS needs a feature of the crate `distlock`: turn on `tls-rustls`, or `tls-native-tls`",
        ))
    }

    pub(crate) async fn prepare(&self) -> Result<Handshake, Fault> {
        match *self {}
    }
}

#[cfg(not(feature = "_tls"))]
impl Handshake {
    pub(crate) async fn over(
        &self,
        _socket: TcpStream,
        _host: &str,
    ) -> io::Result<Box<dyn Stream>> {
        match *self {}
    }
}

/// Why a TLS handshake failed, if it fails again until a certificate or a setting is another one.
#[cfg(feature = "_tls")]
pub(crate) fn refusal(error: &RedisError) -> Option<String> {
    library::refusal(error)
}

#[cfg(not(feature = "_tls"))]
pub(crate) fn refusal(_error: &RedisError) -> Option<String> {
    None
}

/// Whether what the server sent was no TLS.
#[cfg(feature = "_tls")]
pub(crate) fn is_no_tls(error: &RedisError) -> bool {
    library::is_no_tls(error)
}

#[cfg(not(feature = "_tls"))]
pub(crate) fn is_no_tls(_error: &RedisError) -> bool {
    false
}

fn invalid_url(reason: &str) -> Error {
    Error::InvalidUrl {
        reason: reason.to_owned(),
    }
}
