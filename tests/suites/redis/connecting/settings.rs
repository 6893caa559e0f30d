//! Settings in the query of a URL, in a file, and by the builder: what each means to a client, and which one counts.

use std::time::Duration;

use distlock::{Builder, Client, Error, Settings};
use distlock_tests::{RedisCluster, RedisServer, SentinelSet, eventually};

use crate::redis::{SOON, ms};

/// Completes when an acquisition has waited for as long as the setting says. Without an answer by then, it is not that.
async fn waits_in_vain(client: &Client) {
    let tried = || async {
        match client.lock("k").acquire().await {
            Err(Error::Timeout { .. }) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    eventually(SOON, "the end of the wait", tried).await;
}

/// What the server calls the connections of a client of this builder and URL, without their ids.
async fn name(server: &RedisServer, builder: Builder, url: &str) -> String {
    let client = builder.connect(url).await.unwrap();
    let id = client.id().to_string();
    let clients = server.client_list().await;
    let ours = clients.iter().find(|one| one.field("name").ends_with(&id));
    let name = ours.expect("a connection").field("name");
    name.split(':').next().unwrap().to_owned()
}

#[tokio::test]
async fn builder_counts_more_than_the_url_and_the_last_call_more_than_the_first() {
    let server = RedisServer::start().await;
    let plain = server.url();
    let url = format!("{plain}?name=of-url&wait=50ms");
    let file: Settings = serde_json::from_str(r#"{ "name": "of-file" }"#).unwrap();
    let builder = Client::builder;
    for (built, url, expected) in [
        (builder(), &url, "of-url"),
        (builder().name("of-call"), &url, "of-call"),
        (builder().settings(file.clone()), &url, "of-file"),
        (Builder::from(file.clone()), &plain, "of-file"),
        (
            builder().name("of-call").settings(file.clone()),
            &url,
            "of-file",
        ),
        (builder().settings(file).name("of-call"), &url, "of-call"),
        (builder().settings(Settings::default()), &url, "of-url"),
    ] {
        assert_eq!(name(&server, built, url).await, expected);
    }
    // A setting that the builder does not set comes from the URL, one by one.
    let holder = Client::connect(&plain).await.unwrap();
    let _held = holder.lock("k").acquire().await.unwrap();
    let waits = builder().name("of-call").connect(&url).await.unwrap();
    waits_in_vain(&waits).await;
}

#[tokio::test]
async fn url_of_each_arrangement_has_settings() {
    let server = RedisServer::start().await;
    let (cluster, set) = (RedisCluster::shared().await, SentinelSet::shared().await);
    for url in [server.url(), cluster.url(), set.url()] {
        let between = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{between}wait=1s&key_prefix=settings%3A");
        let (holder, waits) = (
            Client::connect(&url).await.unwrap(),
            Client::connect_lazy(&url).unwrap(),
        );
        // It connects before the wait begins.
        waits.ping().await.unwrap();
        let held = holder.lock("k").acquire().await.unwrap();
        waits_in_vain(&waits).await;
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn lease_of_the_url_is_the_one_that_the_server_gets() {
    let server = RedisServer::start().await;
    let url = format!("{}?watchdog_timeout=10m", server.url());
    let client = Client::connect(&url).await.unwrap();
    let held = client.lock("k").acquire().await.unwrap();
    let left = server.pttl("k").await;
    assert!((60_000..=600_000).contains(&left), "{left} ms");
    held.release().await.unwrap();
}

#[tokio::test]
async fn settings_that_cannot_work_are_told_by_name_before_anything_is_sent() {
    // No server listens there: a connection would fail with another error.
    let refused = async |query: &str| {
        let url = format!("redis://shop:SeCrEt@127.0.0.1:1?{query}");
        let lazy = Client::connect_lazy(&url).unwrap_err().to_string();
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.to_string(), lazy);
        assert!(!lazy.contains("SeCrEt"), "{lazy}");
        (error, lazy)
    };
    for (query, setting) in [
        ("response_timeout=0", "response_timeout"),
        ("max_hold=0", "max_hold"),
        ("name=", "name"),
        ("name=a%20b", "name"),
        ("connect_timeout=9000h", "connect_timeout"),
        ("replicas=2", "replicas_timeout"),
        ("replicas=0&replicas_timeout=1s", "replicas"),
        ("replicas=1&replicas_timeout=0", "replicas_timeout"),
        ("watchdog_timeout=0", "watchdog_timeout"),
        ("wait=9000h", "default_wait"),
        // They would have no effect: there is no TLS.
        ("tls_ca_file=ca.pem", "tls_ca_file"),
        ("tls_server_name=h", "tls_server_name"),
        (
            "tls_client_cert_file=c&tls_client_key_file=k",
            "tls_client_cert_file",
        ),
    ] {
        let (error, text) = refused(query).await;
        assert!(
            matches!(error, Error::InvalidConfig { .. }),
            "{query}: {text}"
        );
        let told = format!("invalid setting {setting} = ");
        assert!(text.starts_with(&told), "{query}: {text}");
    }
    for query in ["wait=SeCrEt", "weit=5s", "nodelay=yes", "max_waiters=1.5"] {
        let (error, text) = refused(query).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{query}: {text}");
    }
    // Whether a value is out of range is looked at after the builder has had its say.
    let url = "redis://127.0.0.1:1?response_timeout=0";
    let builder = Client::builder().response_timeout(ms(100));
    builder.connect_lazy(url).unwrap();
    let most = Duration::MAX;
    let builder = Client::builder().default_wait(most);
    builder
        .connect_lazy("redis://127.0.0.1:1?wait=9000h")
        .unwrap();
}
