//! TLS: which certificates a client accepts, and what it says of others.

mod certificates;
mod changing;
mod cluster;
mod mixed_up;
mod pem;
mod renewal;
mod sentinel;
mod whole_process;

use std::time::Duration;

use distlock::{Builder, Client, Error};
use distlock_tests::{Authority, RedisServer};

use super::SOON;

/// A client that trusts this authority alone.
fn trusting(authority: &Authority) -> Builder {
    Client::builder().tls_ca_pem(authority.pem())
}

/// A server, and the authority of its certificate.
async fn server() -> (RedisServer, Authority) {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    (builder.start().await, authority)
}

/// The error of a client that must not be made, at once: long before the end of its connect timeout.
async fn refused(builder: Builder, url: &str) -> Error {
    let builder = builder.connect_timeout(Duration::from_secs(300));
    let connecting = tokio::time::timeout(SOON, builder.connect(url));
    connecting.await.expect("told at once").unwrap_err()
}

/// Nobody gets in without a certificate, or with one that another authority than that of the servers has issued.
async fn only_own_certificates_are_taken(servers: &Authority, url: &str) {
    let error = refused(trusting(servers), url).await;
    let text = error.to_string();
    assert!(matches!(error, Error::LoginDenied { .. }), "{text}");
    assert!(
        text.contains("CertificateRequired") && text.contains("tls_client_pem"),
        "{text}"
    );
    let strange = Authority::new().client();
    let builder = trusting(servers).tls_client_pem(strange.cert, strange.key);
    let error = refused(builder, url).await;
    assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
}
