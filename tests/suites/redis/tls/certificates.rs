//! Certificates of servers and of clients, right and wrong ones.

use distlock::{Client, Error};
use distlock_tests::{Authority, RedisServer, lock_once};

use super::super::listened;
use super::{SOON, only_own_certificates_are_taken, refused, server, trusting};

#[tokio::test]
async fn server_of_a_trusted_authority_serves_commands_and_messages() {
    let (server, authority) = server().await;
    let url = server.tls_url().replace("127.0.0.1", "localhost");
    // A dot behind a name says that no domain is to be added, as in Kubernetes.
    let whole = url.replace("localhost", "LocalHost.");
    let database = format!("{}/3", server.tls_url());
    for url in [server.tls_url(), url, whole, database] {
        let (holder, waiter) = (trusting(&authority), trusting(&authority));
        let holder = holder.connect(&url).await.unwrap();
        let waiter = waiter.connect(&url).await.unwrap();
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.lock("k").acquire().wait(SOON).into_future());
        listened(&server, "k", 1).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        // The subscription lingers, and the next server of the list is the same one.
        drop(waiter);
        listened(&server, "k", 0).await;
    }
}

#[tokio::test]
async fn wrong_certificate_of_the_server_denies_the_login_at_once_with_the_reason() {
    let authority = Authority::new();
    for (certificate, trusted, reason) in [
        (authority.server(), &Authority::new(), "UnknownIssuer"),
        (
            authority.server_named("other.example"),
            &authority,
            "not valid for name",
        ),
        (authority.expired_server(), &authority, "expired"),
    ] {
        let server = RedisServer::builder().tls(&certificate).start().await;
        let error = refused(trusting(trusted), &server.tls_url()).await;
        let text = error.to_string();
        assert!(
            matches!(error, Error::LoginDenied { .. }) && error.is_permanent(),
            "{text}"
        );
        assert!(
            text.contains(reason) && text.contains(&server.tls_addr().to_string()),
            "{text}"
        );
    }
}

#[tokio::test]
async fn without_an_authority_of_ones_own_those_of_the_system_are_asked() {
    let (server, _) = server().await;
    let error = refused(Client::builder(), &server.tls_url()).await;
    let text = error.to_string();
    assert!(
        text.contains("UnknownIssuer") && text.contains("tls_ca_pem"),
        "{text}"
    );
}

#[tokio::test]
async fn insecure_url_takes_any_certificate() {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.expired_server());
    let server = builder.start().await;
    let url = format!("{}#insecure", server.tls_url());
    lock_once(&Client::connect(&url).await.unwrap(), "k").await;
}

#[tokio::test]
async fn mutual_tls_needs_a_certificate_of_the_servers_authority() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let builder = RedisServer::builder().mutual_tls(&servers.server(), &clients);
    let server = builder.start().await;
    let url = server.tls_url();
    let own = clients.client();
    let builder = trusting(&servers).tls_client_pem(own.cert, own.key);
    lock_once(&builder.connect(&url).await.unwrap(), "k").await;

    only_own_certificates_are_taken(&servers, &url).await;
}

#[tokio::test]
async fn certificate_of_another_name_is_valid_with_that_server_name() {
    let authority = Authority::new();
    let certificate = authority.server_named("locks.example.com");
    let server = RedisServer::builder().tls(&certificate).start().await;
    let url = server.tls_url();
    let error = refused(trusting(&authority), &url).await;
    assert!(
        error.to_string().contains("set `tls_server_name`"),
        "{error}"
    );
    let builder = trusting(&authority).tls_server_name("locks.example.com");
    lock_once(&builder.connect(&url).await.unwrap(), "k").await;
    let url = format!("{url}?tls_server_name=locks.example.com");
    lock_once(&trusting(&authority).connect(&url).await.unwrap(), "k").await;
    let other = trusting(&authority).tls_server_name("other.example.com");
    let error = refused(other, &url).await;
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let none = trusting(&authority).tls_server_name("no name");
    let error = refused(none, &url).await;
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
}

#[tokio::test]
async fn odd_certificates_are_refused_with_what_to_do() {
    let authority = Authority::new();
    for (certificate, advice) in [
        (
            authority.server_that_is_an_authority(),
            "issue one with CA:FALSE",
        ),
        (
            authority.server_with_an_unknown_extension(),
            "a critical extension",
        ),
    ] {
        let server = RedisServer::builder().tls(&certificate).start().await;
        let error = refused(trusting(&authority), &server.tls_url()).await;
        let text = error.to_string();
        assert!(matches!(error, Error::LoginDenied { .. }), "{text}");
        assert!(text.contains(advice), "{text}");
    }
}
