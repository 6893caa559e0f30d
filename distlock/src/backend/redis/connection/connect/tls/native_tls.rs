//! TLS by the system's library.

use std::io;

use native_tls::{Certificate, Identity, TlsConnector};
use redis::RedisError;
use tokio::net::TcpStream;

use super::certificates::Read;
use super::errors::{find, invalid_pem};
use crate::backend::redis::connection::connect::stream::Stream;
use crate::config::pem::{ClientPem, Pem};
use crate::error::Error;

/// What a certificate begins with in a PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// A client with its certificates.
pub(super) type Client = tokio_native_tls::TlsConnector;

/// The system's library, which has its own store of authorities.
#[derive(Debug)]
pub(super) struct Library;

impl Library {
    pub(super) fn new(_insecure: bool, _has_authorities: bool) -> Result<Self, Error> {
        Ok(Self)
    }

    pub(super) fn client(&self, certificates: &Read) -> Result<Client, Error> {
        let mut builder = TlsConnector::builder();
        if let Some(pem) = &certificates.authorities {
            // No other authority is trusted then.
            builder.disable_built_in_roots(true);
            for authority in authorities(pem)? {
                builder.add_root_certificate(authority);
            }
        }
        if let Some(own) = &certificates.own {
            builder.identity(identity(own)?);
        }
        // Some systems compare the certificate and the key only here.
        let connector = builder.build().map_err(|error| not_together(&error));
        connector.map(Client::from)
    }
}

fn authorities(pem: &Pem) -> Result<Vec<Certificate>, Error> {
    let text = String::from_utf8_lossy(pem.bytes());
    let mut certificates = Vec::new();
    for (at, _) in text.match_indices(BEGIN) {
        let certificate = Certificate::from_pem(&text.as_bytes()[at..]);
        certificates.push(certificate.map_err(|error| {
            invalid_pem(
                "tls_ca_pem",
                &format!("a certificate that cannot be used: {error}"),
            )
        })?);
    }
    if certificates.is_empty() {
        return Err(invalid_pem("tls_ca_pem", "a PEM without a certificate"));
    }
    Ok(certificates)
}

fn identity(own: &ClientPem) -> Result<Identity, Error> {
    let identity = Identity::from_pkcs8(own.certificate.bytes(), own.key.bytes());
    identity.map_err(|error| not_together(&error))
}

fn not_together(error: &native_tls::Error) -> Error {
    let text = format!("a certificate and a key that cannot be used together: {error}");
    invalid_pem("tls_client_pem", &text)
}

/// Each library has its own rules for names, and applies them at the handshake.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid_config(
            "tls_server_name",
            format!("{name:?}"),
            "the name of a host, or an address",
        ));
    }
    Ok(())
}

/// TLS over this socket, to a server of this name.
pub(super) async fn handshake(
    client: &Client,
    name: &str,
    socket: TcpStream,
) -> io::Result<Box<dyn Stream>> {
    let stream = client.connect(name, socket).await;
    Ok(Box::new(stream.map_err(io::Error::other)?))
}

/// Why a handshake failed, if it fails again until a certificate or a setting is another one.
///
/// The systems' libraries have no common way to say it, so each of their errors counts.
pub(super) fn refusal(error: &RedisError) -> Option<String> {
    let reason = match find::<native_tls::Error>(error) {
        Some(reason) if !is_no_tls(error) => reason.to_string(),
        Some(_) => return None,
        None => alert(error)?,
    };
    Some(format!(
        "TLS failed: {reason}; see `tls_ca_pem` and `tls_client_pem`"
    ))
}

/// What the server says of the client's certificate. With TLS 1.3 it says so only after the handshake, so that reading fails.
fn alert(error: &RedisError) -> Option<String> {
    let reading = find::<io::Error>(error)?.get_ref()?.to_string();
    reading.contains(" alert ").then_some(reading)
}

/// Whether what the server sent was no TLS.
pub(super) fn is_no_tls(error: &RedisError) -> bool {
    find::<native_tls::Error>(error)
        .is_some_and(|error| error.to_string().contains("wrong version number"))
}
