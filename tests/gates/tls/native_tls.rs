//! TLS by the system's library: certificates of servers and of clients, right and wrong ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::time::Duration;

use distlock::{Builder, Client, Error};
use distlock_tests::{Authority, RedisServer, eventually_eq};

/// Long enough for a busy machine, and far shorter than the connect timeout here.
const SOON: Duration = Duration::from_secs(30);

/// A client that trusts this authority alone.
fn trusting(authority: &Authority) -> Builder {
    Client::builder()
        .connect_timeout(Duration::from_secs(300))
        .tls_ca_pem(authority.pem())
}

/// The error of a client that must not be made, at once: long before the end of its connect timeout.
async fn refused(builder: Builder, url: &str) -> Error {
    let connecting = tokio::time::timeout(SOON, builder.connect(url));
    connecting.await.expect("told at once").unwrap_err()
}

/// Acquires and releases once.
async fn works(client: &Client) {
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
}

/// The client says at `connect` that TLS failed.
fn denies(error: &Error) {
    let text = error.to_string();
    assert!(
        matches!(error, Error::LoginDenied { .. }) && error.is_permanent(),
        "{error:?}"
    );
    assert!(
        text.contains("TLS failed") && text.contains("tls_ca_pem"),
        "{text}"
    );
}

#[tokio::test]
async fn server_of_an_authority_of_ones_own_is_trusted_and_others_are_denied_with_the_reason() {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let server = builder.start().await;
    let url = server.tls_url();
    works(&trusting(&authority).connect(&url).await.unwrap()).await;
    let by_name = url.replace("127.0.0.1", "localhost");
    works(&trusting(&authority).connect(&by_name).await.unwrap()).await;

    let of_the_system = Client::builder().connect_timeout(Duration::from_secs(300));
    for builder in [trusting(&Authority::new()), of_the_system] {
        denies(&refused(builder, &url).await);
    }
    for wrong in [
        authority.server_named("other.example"),
        authority.expired_server(),
    ] {
        let server = RedisServer::builder().tls(&wrong).start().await;
        denies(&refused(trusting(&authority), &server.tls_url()).await);
    }
}

#[tokio::test]
async fn mutual_tls_needs_a_certificate_of_the_servers_authority() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let builder = RedisServer::builder().mutual_tls(&servers.server(), &clients);
    let server = builder.start().await;
    let url = server.tls_url();
    let own = clients.client();
    let builder = trusting(&servers).tls_client_pem(own.cert, own.key);
    works(&builder.connect(&url).await.unwrap()).await;

    denies(&refused(trusting(&servers), &url).await);
    let strange = Authority::new().client();
    let builder = trusting(&servers).tls_client_pem(strange.cert, strange.key);
    denies(&refused(builder, &url).await);
}

#[tokio::test]
async fn connected_client_is_denied_while_the_certificate_is_wrong_and_then_goes_on() {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let mut server = builder.start().await;
    let client = trusting(&authority)
        .connect(&server.tls_url())
        .await
        .unwrap();
    works(&client).await;
    server.renew_certificate(&authority.expired_server()).await;
    assert!(server.kill_clients("normal").await >= 1);
    // The connection that was ended may still take one command, whose outcome is unknown then.
    let denied = || async {
        let tried = client.lock("k").acquire().wait(Duration::ZERO).await;
        matches!(&tried, Err(Error::Denied { .. }))
            && tried.unwrap_err().to_string().contains("TLS failed")
    };
    eventually_eq(SOON, "denied with the reason", true, denied).await;
    server.renew_certificate(&authority.server()).await;
    works(&client).await;
}

#[tokio::test]
async fn tls_and_plain_ports_that_are_mixed_up_say_what_to_write() {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let server = builder.start().await;
    let tls_to_plain = format!("rediss://{}", server.addr());
    let plain_to_tls = format!("redis://{}", server.tls_addr());
    for (builder, url, text) in [
        (trusting(&authority), tls_to_plain, "speaks no TLS"),
        (Client::builder(), plain_to_tls, "speaks TLS"),
    ] {
        let error = refused(builder, &url).await;
        assert!(
            matches!(error, Error::UnsupportedServer { .. }) && error.to_string().contains(text),
            "{error}"
        );
    }
}

#[tokio::test]
async fn pem_without_a_certificate_or_with_another_key_is_refused() {
    let authority = Authority::new();
    let (own, other) = (authority.client(), authority.client());
    let url = "rediss://127.0.0.1:1";
    for (builder, setting) in [
        (
            Client::builder().tls_ca_pem(own.key.as_str()),
            "tls_ca_pem = a PEM without a certificate",
        ),
        (
            trusting(&authority).tls_client_pem(own.cert, other.key.as_str()),
            "tls_client_pem = a certificate and a key that cannot be used together",
        ),
    ] {
        let error = refused(builder, url).await;
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{text}");
        assert!(text.contains(setting), "{text}");
        assert!(!text.contains(other.key.lines().nth(1).unwrap()), "{text}");
    }
    let insecure = refused(Client::builder(), "rediss://127.0.0.1:1#insecure").await;
    // The feature `tls-rustls-insecure` is on here, and does not bring rustls.
    assert!(
        insecure.to_string().contains("features `tls-rustls` and"),
        "{insecure}"
    );
}
