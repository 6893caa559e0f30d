//! TLS by `rustls`.

use redis::RedisError;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::errors::{find, invalid_pem};
use crate::config::pem::{ClientPem, Pem};
use crate::error::Error;

/// Checks the certificates of a client, and that there is a provider of cryptography: without one the driver panics.
pub(super) fn check(authorities: Option<&Pem>, own: Option<&ClientPem>) -> Result<(), Error> {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster. Its provider is as good.
        let _installed = ring::default_provider().install_default();
    }
    let roots = authorities.map_or_else(system_roots, roots)?;
    own.map_or(Ok(()), |own| check_own(roots, own))
}

fn roots(pem: &Pem) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls_ca_pem", pem)? {
        roots.add(certificate).map_err(|error| {
            invalid_pem(
                "tls_ca_pem",
                &format!("a certificate that cannot be used: {error}"),
            )
        })?;
    }
    Ok(roots)
}

/// The driver takes the system's authorities, unless it was also built for the system's TLS.
fn system_roots() -> Result<RootCertStore, Error> {
    if cfg!(all(
        feature = "tls-native-tls",
        not(feature = "tls-rustls-webpki-roots")
    )) {
        return Err(invalid_pem(
            "tls_ca_pem",
            "none: with both features `tls-rustls` and `tls-native-tls` the system's authorities are not used; set it, turn one \
             of them off, or turn `tls-rustls-webpki-roots` on",
        ));
    }
    Ok(RootCertStore::empty())
}

fn certificates(setting: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.bytes()).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(invalid_pem(setting, "a PEM without a certificate")),
        Err(error) => Err(invalid_pem(setting, &format!("not a PEM: {error}"))),
    }
}

fn check_own(roots: RootCertStore, own: &ClientPem) -> Result<(), Error> {
    let chain = certificates("tls_client_pem", &own.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(own.key.bytes())
        .map_err(|_| invalid_pem("tls_client_pem", "a PEM without a private key"))?;
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = config.with_client_auth_cert(chain, key);
    config.map(drop).map_err(|error| {
        let text = format!("a certificate and a key that cannot be used together: {error}");
        invalid_pem("tls_client_pem", &text)
    })
}

/// Why a handshake failed, if it fails again until a certificate or a setting is another one.
pub(super) fn refusal(error: &RedisError) -> Option<String> {
    use AlertDescription as Alert;
    use rustls::Error as Tls;

    match find::<Tls>(error)? {
        Tls::InvalidCertificate(CertificateError::UnknownIssuer) => Some(
            "no trusted authority has issued the server's TLS certificate (UnknownIssuer); give the authority's certificate to \
             `tls_ca_pem`"
                .to_owned(),
        ),
        Tls::InvalidCertificate(reason) => {
            Some(format!("the server's TLS certificate is not valid: {reason}"))
        }
        Tls::AlertReceived(alert @ (Alert::CertificateRequired | Alert::HandshakeFailure)) => Some(format!(
            "the server ended TLS with the alert {alert:?}; if it asks for a client certificate, give one to `tls_client_pem`"
        )),
        // The server had a failure of its own, or ends as it should.
        Tls::AlertReceived(Alert::InternalError | Alert::CloseNotify | Alert::UserCanceled) => None,
        Tls::AlertReceived(alert) => Some(format!(
            "the server ended TLS with the alert {alert:?}; if that is about the client certificate, see `tls_client_pem`"
        )),
        reason @ (Tls::PeerIncompatible(_) | Tls::NoCertificatesPresented) => {
            Some(format!("TLS with this server is not possible: {reason}"))
        }
        _ => None,
    }
}

/// Whether what the server sent was no TLS.
pub(super) fn is_no_tls(error: &RedisError) -> bool {
    matches!(find(error), Some(rustls::Error::InvalidMessage(_)))
}
