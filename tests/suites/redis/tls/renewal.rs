//! Certificates that change while a client runs.

use std::time::Duration;

use distlock::Error;
use distlock_tests::{eventually_eq, lock_once};

use super::super::ms;
use super::{SOON, server, trusting};

#[tokio::test]
async fn server_whose_certificate_is_renewed_while_holds_live_loses_none() {
    let (mut server, authority) = server().await;
    // Long enough for a busy machine to connect again, TLS included, before a hold is lost.
    let builder = trusting(&authority).watchdog_timeout(ms(6_000));
    let client = builder.connect(&server.tls_url()).await.unwrap();
    let guards = [
        client.lock("a").acquire().await.unwrap(),
        client.lock("b").acquire().await.unwrap(),
    ];
    server.renew_certificate(&authority.server()).await;
    // The old connection goes on, and a new one takes the new certificate.
    for cut in [false, true] {
        if cut {
            assert!(server.kill_clients("normal").await >= 1);
        }
        let renewals = server.command_calls("pexpire").await;
        let renewed = || async { server.command_calls("pexpire").await >= renewals + 4 };
        eventually_eq(SOON, "both renewed twice", true, renewed).await;
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn connected_client_is_denied_at_once_while_the_certificate_is_wrong_and_then_goes_on() {
    let (mut server, authority) = server().await;
    let builder = trusting(&authority);
    let client = builder.connect(&server.tls_url()).await.unwrap();
    lock_once(&client, "k").await;
    server.renew_certificate(&authority.expired_server()).await;
    assert!(server.kill_clients("normal").await >= 1);
    // The connection that was ended may still take one command, whose outcome is unknown then.
    let denied = || async {
        let tried = client.lock("k").acquire().wait(Duration::ZERO).await;
        let error = tried.err();
        let expired = error
            .as_ref()
            .is_some_and(|error| error.to_string().contains("expired"));
        expired && matches!(error, Some(Error::Denied { .. }))
    };
    eventually_eq(SOON, "denied with the reason", true, denied).await;
    let waiting = tokio::spawn(client.lock("k").acquire().wait(2 * SOON).into_future());
    server.renew_certificate(&authority.server()).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
    lock_once(&client, "k").await;
}
