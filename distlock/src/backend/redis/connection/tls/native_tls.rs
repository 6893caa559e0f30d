//! TLS by the system's library.

use std::io;

use native_tls::{Certificate, Identity, TlsConnector};
use redis::RedisError;

use super::errors::{find, invalid_pem};
use crate::config::pem::{ClientPem, Pem};
use crate::error::Error;

/// What a certificate begins with in a PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Checks the certificates of a client.
pub(super) fn check(authorities: Option<&Pem>, own: Option<&ClientPem>) -> Result<(), Error> {
    if let Some(pem) = authorities {
        let text = String::from_utf8_lossy(pem.bytes());
        let mut certificates = text.match_indices(BEGIN).peekable();
        if certificates.peek().is_none() {
            return Err(invalid_pem("tls_ca_pem", "a PEM without a certificate"));
        }
        for (at, _) in certificates {
            Certificate::from_pem(&text.as_bytes()[at..]).map_err(|error| {
                invalid_pem(
                    "tls_ca_pem",
                    &format!("a certificate that cannot be used: {error}"),
                )
            })?;
        }
    }
    let Some(own) = own else { return Ok(()) };
    let identity = Identity::from_pkcs8(own.certificate.bytes(), own.key.bytes());
    // Some systems compare the certificate and the key only when a connector is made.
    let connector = identity.and_then(|own| TlsConnector::builder().identity(own).build());
    connector.map(drop).map_err(|error| {
        let text = format!("a certificate and a key that cannot be used together: {error}");
        invalid_pem("tls_client_pem", &text)
    })
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
