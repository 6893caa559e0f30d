//! Servers speak TLS with the certificate that they were given, and ask for one if they should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use distlock_tests::{Authority, Certificate, RedisServer};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::task::spawn_blocking;

use super::SOON;

/// Sends PING over TLS. Gives the server's certificate and its answer.
async fn ping(
    address: SocketAddr,
    trusted: &Authority,
    own: Option<&Certificate>,
) -> Result<(Vec<u8>, String), String> {
    let mut roots = RootCertStore::empty();
    roots.add(der(trusted.pem())).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            config
                .with_client_auth_cert(vec![der(&own.cert)], key)
                .unwrap()
        }
    };
    let ping = move || {
        let name = address.ip().into();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect(address).map_err(|error| error.to_string())?;
        tcp.set_read_timeout(Some(SOON)).unwrap();
        let mut stream = StreamOwned::new(tls, tcp);
        let mut answer = [0; 7];
        stream
            .write_all(b"PING\r\n")
            .and_then(|()| stream.read_exact(&mut answer))
            .map_err(|error| error.to_string())?;
        let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
        Ok((shown, String::from_utf8_lossy(&answer).into_owned()))
    };
    spawn_blocking(ping).await.unwrap()
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[tokio::test]
async fn server_speaks_tls_beside_its_plain_port_also_after_a_restart() {
    let (ours, other) = (Authority::new(), Authority::new());
    let certificate = ours.server();
    let mut server = RedisServer::builder().tls(&certificate).start().await;
    for _ in 0..2 {
        let (shown, answer) = ping(server.tls_addr(), &ours, None).await.unwrap();
        assert_eq!(
            (shown, answer.as_str()),
            (der(&certificate.cert).to_vec(), "+PONG\r\n")
        );
        let error = ping(server.tls_addr(), &other, None).await.unwrap_err();
        assert!(error.contains("UnknownIssuer"), "{error}");
        assert!(server.keys().await.is_empty());
        server.restart().await;
    }
}

#[tokio::test]
async fn bad_certificates_are_bad_in_the_way_that_they_say() {
    let authority = Authority::new();
    for (certificate, fault) in [
        (
            authority.server_named("other.example"),
            "not valid for name",
        ),
        (authority.expired_server(), "expired"),
    ] {
        let server = RedisServer::builder().tls(&certificate).start().await;
        let error = ping(server.tls_addr(), &authority, None).await.unwrap_err();
        assert!(error.contains(fault), "{error}");
    }
}

#[tokio::test]
async fn mutual_tls_admits_only_clients_with_a_certificate_of_the_authority() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let builder = RedisServer::builder().mutual_tls(&servers.server(), &clients);
    let server = builder.start().await;
    let address = server.tls_addr();
    let own = clients.client();
    assert!(ping(address, &servers, Some(&own)).await.is_ok());
    let error = ping(address, &servers, None).await.unwrap_err();
    assert!(error.contains("CertificateRequired"), "{error}");
    let strange = Authority::new().client();
    assert!(ping(address, &servers, Some(&strange)).await.is_err());
}

#[tokio::test]
async fn renewed_certificate_is_shown_to_new_connections_and_kept_over_a_restart() {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let mut server = builder.start().await;
    let renewed = authority.server();
    server.renew_certificate(&renewed).await;
    for _ in 0..2 {
        let (shown, _) = ping(server.tls_addr(), &authority, None).await.unwrap();
        assert_eq!(shown, der(&renewed.cert).to_vec());
        server.restart().await;
    }
}
