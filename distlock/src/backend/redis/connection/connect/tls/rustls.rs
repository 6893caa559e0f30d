//! TLS by `rustls`.

use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::certificates::Read;
use super::errors::{find, invalid_pem};
use super::roots::default_roots;
use crate::backend::redis::connection::connect::stream::Stream;
use crate::config::pem::{ClientPem, Pem};
use crate::error::Error;

/// A client with its certificates.
pub(super) type Client = Arc<ClientConfig>;

/// What all connections of a client have in common.
#[derive(Debug)]
pub(super) struct Library {
    provider: Arc<CryptoProvider>,
    /// Whom to trust without authorities of the user's. Read once.
    roots: Arc<RootCertStore>,
    insecure: bool,
}

impl Library {
    pub(super) fn new(insecure: bool, has_authorities: bool) -> Result<Self, Error> {
        // Those of the system are read only if they are needed: a system may have none.
        let roots = if insecure || has_authorities {
            RootCertStore::empty()
        } else {
            default_roots()?
        };
        Ok(Self {
            provider: provider()?,
            roots: Arc::new(roots),
            insecure,
        })
    }

    pub(super) fn client(&self, certificates: &Read) -> Result<Client, Error> {
        let roots = match &certificates.authorities {
            Some(pem) => Arc::new(roots(pem)?),
            None => Arc::clone(&self.roots),
        };
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| no_provider(&error.to_string()))?;
        let config = config.with_root_certificates(roots);
        let mut config = match &certificates.own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let (chain, key) = own_of(own)?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| {
                    let text =
                        format!("a certificate and a key that cannot be used together: {error}");
                    invalid_pem("tls_client_pem", &text)
                })?
            }
        };
        // A resumed session would not check the certificate that the server has by now.
        config.resumption = Resumption::disabled();
        if self.insecure {
            self.take_all(&mut config);
        }
        Ok(Arc::new(config))
    }

    #[cfg(feature = "tls-rustls-insecure")]
    fn take_all(&self, config: &mut ClientConfig) {
        let verifier = super::insecure::TakesAll::new(&self.provider);
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(verifier));
    }

    /// Refused when the connector is made.
    #[cfg(not(feature = "tls-rustls-insecure"))]
    fn take_all(&self, _config: &mut ClientConfig) {}
}

/// The cryptography. It is taken from the process only where a feature asks for that, and never installed.
///
/// Another crate may turn on further features, so the order goes from what is seldom asked for to what is usual.
fn provider() -> Result<Arc<CryptoProvider>, Error> {
    if cfg!(feature = "tls-rustls-no-provider")
        && let Some(installed) = CryptoProvider::get_default()
    {
        return Ok(Arc::clone(installed));
    }
    of_feature().ok_or_else(|| no_provider("the program has installed none"))
}

#[cfg(feature = "tls-rustls-aws-lc-rs")]
fn of_feature() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

#[cfg(all(feature = "tls-rustls", not(feature = "tls-rustls-aws-lc-rs")))]
fn of_feature() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::ring::default_provider()))
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-rustls-aws-lc-rs")))]
fn of_feature() -> Option<Arc<CryptoProvider>> {
    None
}

fn no_provider(why: &str) -> Error {
    Error::InvalidUrl {
        reason: format!(
            "TLS has no cryptography: {why}; install a `CryptoProvider` of rustls before the first client is made, or turn on the \
             feature `tls-rustls` or `tls-rustls-aws-lc-rs` of the crate `distlock`"
        ),
    }
}

fn roots(pem: &Pem) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    // Unlike those of the system, each of them has to be usable: the user has named them.
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

fn certificates(setting: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.bytes()).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(invalid_pem(setting, "a PEM without a certificate")),
        Err(error) => Err(invalid_pem(setting, &format!("not a PEM: {error}"))),
    }
}

fn own_of(
    own: &ClientPem,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let chain = certificates("tls_client_pem", &own.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(own.key.bytes());
    let key = key.map_err(|_| invalid_pem("tls_client_pem", "a PEM without a private key"))?;
    Ok((chain, key))
}

/// Whether a certificate can have this name.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let read = ServerName::try_from(name);
    read.map(drop).map_err(|_| {
        Error::invalid_config(
            "tls_server_name",
            format!("{name:?}"),
            "the name of a host, or an address",
        )
    })
}

/// TLS over this socket, to a server of this name.
pub(super) async fn handshake(
    client: &Client,
    name: &str,
    socket: TcpStream,
) -> io::Result<Box<dyn Stream>> {
    let name = ServerName::try_from(name.to_owned());
    let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let stream = TlsConnector::from(Arc::clone(client)).connect(name, socket);
    Ok(Box::new(stream.await?))
}

/// Why a handshake failed, if it fails again until a certificate or a setting is another one.
pub(super) fn refusal(error: &RedisError) -> Option<String> {
    use AlertDescription as Alert;
    use rustls::Error as Tls;

    match find::<Tls>(error)? {
        Tls::InvalidCertificate(reason) => Some(invalid(reason)),
        Tls::AlertReceived(alert @ (Alert::CertificateRequired | Alert::HandshakeFailure)) => {
            Some(format!(
                "the server ended TLS with the alert {alert:?}; if it asks for a client certificate, give one to `tls_client_pem`"
            ))
        }
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

/// What is wrong with the server's certificate, and what to do.
fn invalid(reason: &CertificateError) -> String {
    let advice = match reason {
        CertificateError::UnknownIssuer => {
            return "no trusted authority has issued the server's TLS certificate (UnknownIssuer); give the authority's \
                    certificate to `tls_ca_pem`"
                .to_owned();
        }
        CertificateError::Other(other) => other_advice(&format!("{:?}", other.0)),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some(
                "if the server is reached by another name than its own, set `tls_server_name` to a name of the certificate",
            )
        }
        _ => None,
    };
    let text = format!("the server's TLS certificate is not valid: {reason}");
    match advice {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// What to do about errors of the library that checks certificates, which have no names here.
fn other_advice(reason: &str) -> Option<&'static str> {
    [
        (
            "CaUsedAsEndEntity",
            "it is the certificate of an authority (CA:TRUE), which a server must not use as its own; issue one with CA:FALSE for the \
             server, signed by that authority",
        ),
        (
            "UnsupportedCertVersion",
            "it is of version 1 of X.509, which has no names of servers; issue one of version 3 with a subjectAltName",
        ),
        (
            "UnsupportedCriticalExtension",
            "it has a critical extension that rustls does not know; issue one without it, or mark the extension as not critical",
        ),
    ]
    .into_iter()
    .find_map(|(name, advice)| reason.contains(name).then_some(advice))
}

/// Whether what the server sent was no TLS.
pub(super) fn is_no_tls(error: &RedisError) -> bool {
    matches!(find(error), Some(rustls::Error::InvalidMessage(_)))
}
