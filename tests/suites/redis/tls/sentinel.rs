//! Sentinels and the servers behind them, each with TLS or without.

use distlock::{Client, Error};
use distlock_tests::server::sentinel::{SERVICE, SentinelSet};
use distlock_tests::{Authority, eventually_eq, lock_once};

use super::{SOON, only_own_certificates_are_taken, refused, trusting};

#[tokio::test]
async fn servers_and_sentinels_of_a_trusted_authority_serve_and_the_client_follows_a_failover() {
    let authority = Authority::new();
    let set = SentinelSet::builder().tls(&authority).start().await;
    let client = trusting(&authority).connect(&set.tls_url()).await.unwrap();
    lock_once(&client, "k").await;
    let old = set.master().await;
    set.fail_over().await;
    let left = || async {
        let calls = set.server(old).command_calls("evalsha").await;
        let acquired = client.lock("k").acquire().wait(SOON).await;
        let released = match acquired {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        };
        released && set.server(old).command_calls("evalsha").await == calls
    };
    eventually_eq(SOON * 2, "the client to leave the old master", true, left).await;
}

#[tokio::test]
async fn wrong_certificate_of_sentinels_or_servers_denies_the_login_at_once_with_the_reason() {
    let (authority, other) = (Authority::new(), Authority::new());
    let set = SentinelSet::builder()
        .patient()
        .tls(&authority)
        .start()
        .await;
    let plain = set.hosts();
    // In the second the Sentinels are asked without TLS, and name servers with it.
    let without_tls = format!("rediss+sentinel://{plain}/{SERVICE}?sentinel_tls=false");
    for (url, whom) in [(set.tls_url(), "Sentinel"), (without_tls, "server")] {
        let error = refused(trusting(&other), &url).await;
        let text = error.to_string();
        assert!(
            matches!(error, Error::LoginDenied { .. }) && error.is_permanent(),
            "{text}"
        );
        assert!(
            text.contains("UnknownIssuer") && text.contains(&format!("{whom} 127.0.0.1:")),
            "{text}"
        );
        lock_once(&trusting(&authority).connect(&url).await.unwrap(), "k").await;
    }
    let url = format!("{}#insecure", set.tls_url());
    lock_once(&Client::connect(&url).await.unwrap(), "k").await;
}

#[tokio::test]
async fn sentinels_may_speak_tls_where_servers_do_not() {
    let authority = Authority::new();
    let builder = SentinelSet::builder().patient().sentinel_tls(&authority);
    let set = builder.start().await;
    let hosts = set.tls_hosts();
    let url = format!("redis+sentinel://{hosts}/{SERVICE}?sentinel_tls=true");
    lock_once(&trusting(&authority).connect(&url).await.unwrap(), "k").await;
    let error = refused(trusting(&Authority::new()), &url).await;
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    // As the servers, which speak none.
    let url = format!("rediss+sentinel://{hosts}/{SERVICE}");
    let error = refused(trusting(&authority), &url).await;
    assert!(
        matches!(error, Error::UnsupportedServer { .. })
            && error.to_string().contains("speaks no TLS"),
        "{error}"
    );
    let url = format!("redis+sentinel://{hosts}/{SERVICE}");
    let error = refused(Client::builder(), &url).await;
    assert!(
        matches!(error, Error::UnsupportedServer { .. })
            && error.to_string().contains("speaks TLS"),
        "{error}"
    );
}

#[tokio::test]
async fn mutual_tls_is_for_sentinels_as_well() {
    let authority = Authority::new();
    let builder = SentinelSet::builder().patient().mutual_tls(&authority);
    let set = builder.start().await;
    let own = authority.client();
    let builder = trusting(&authority).tls_client_pem(own.cert, own.key);
    lock_once(&builder.connect(&set.tls_url()).await.unwrap(), "k").await;

    only_own_certificates_are_taken(&authority, &set.tls_url()).await;
}
