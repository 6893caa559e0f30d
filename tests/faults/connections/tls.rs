//! Handshakes of TLS that stall, certificates that are wrong, and a server with TLS that is killed.

use std::time::Duration;

use distlock::{Builder, Client, Error};
use distlock_tests::{Authority, RedisServer, eventually_eq};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::row::{Row, rows};
use crate::support::{SOON, free, ms, waiting};

fn trusting(authority: &Authority) -> Builder {
    Client::builder().tls_ca_pem(authority.pem())
}

async fn f65_handshake_that_stalls_ends_by_the_connect_timeout(row: &Row) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let connect_timeout = ms(500);
    let builder = trusting(&Authority::new()).connect_timeout(connect_timeout);
    let connecting = tokio::spawn(async move { builder.connect(&url).await });
    let mut silent = Vec::new();
    let error = async {
        while !connecting.is_finished() {
            if let Ok(accepted) = timeout(ms(10), listener.accept()).await {
                silent.push(accepted.unwrap());
            }
        }
        connecting.await.unwrap().unwrap_err()
    };
    let error = row
        .timeout(2 * connect_timeout, error)
        .await
        .expect("ended");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    row.injected("handshake unanswered", silent.len() as u64);
}

async fn f65_wrong_certificate_is_told_at_once(row: &Row) {
    let (ours, other) = (Authority::new(), Authority::new());
    let wrong = [
        ("certificate of an unknown authority", other.server()),
        (
            "certificate of another name",
            ours.server_named("other.example"),
        ),
        ("expired certificate", ours.expired_server()),
    ];
    for (what, certificate) in wrong {
        let server = RedisServer::builder().tls(&certificate).start().await;
        // Far longer than the test waits.
        let builder = trusting(&ours).connect_timeout(Duration::from_secs(300));
        let url = server.tls_url();
        let connecting = timeout(SOON, builder.connect(&url));
        let error = connecting.await.expect("told").unwrap_err();
        assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
        row.injected(what, 1);
    }
}

async fn f65_certificate_that_expires_under_a_client_costs_the_hold_at_its_deadline(row: &Row) {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let mut server = builder.start().await;
    let builder = trusting(&authority).watchdog_timeout(ms(1_500));
    let client = builder.connect(&server.tls_url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    server.renew_certificate(&authority.expired_server()).await;
    row.injected("connection ended", server.kill_clients("normal").await);
    timeout(SOON, guard.lost()).await.expect("told");
    // It looks again and again. Nobody has to ask for that.
    let refused = || server.log().matches("certificate expired").count();
    let before = refused();
    let again = || async { refused() > before };
    eventually_eq(SOON, "tried again", true, again).await;
    row.injected("expired certificate", refused() as u64);
    server.renew_certificate(&authority.server()).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
}

async fn f42_holder_is_told_soon_when_a_server_with_tls_comes_back_empty(row: &Row) {
    // Far longer than the test waits: no renewal finds the loss.
    const LONG: Duration = Duration::from_secs(600);
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let mut server = builder.start().await;
    let builder = trusting(&authority).watchdog_timeout(LONG);
    let builder = builder.unavailable_after(SOON * 3);
    let client = builder.connect(&server.tls_url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    // Another key: a grant of the same key would reveal that the hold before it is gone.
    let awaited = client.lock("awaited").acquire().await.unwrap();
    let waits = tokio::spawn(client.lock("awaited").acquire().into_future());
    waiting(&client, 1).await;
    server.restart().await;
    row.injected("server killed that loses its data", 1);
    for guard in [guard, awaited] {
        let lost = row.timeout(SOON, guard.lost()).await;
        lost.expect("the holder is told");
    }
    let next = row.timeout(SOON, waits).await;
    let next = next.expect("the waiter is granted").unwrap().unwrap();
    next.release().await.unwrap();
    free(&server, &[&client]).await;
}

rows! {
    Real: f42_holder_is_told_soon_when_a_server_with_tls_comes_back_empty,
        f65_handshake_that_stalls_ends_by_the_connect_timeout,
        f65_wrong_certificate_is_told_at_once,
        f65_certificate_that_expires_under_a_client_costs_the_hold_at_its_deadline;
}
