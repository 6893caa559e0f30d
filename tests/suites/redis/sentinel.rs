//! Sentinel: how a client finds the master, and what it says where it finds none.

use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::server::ClientLine;
use distlock_tests::server::sentinel::{SERVICE, SentinelSet};
use distlock_tests::{BY_MESSAGE, eventually_eq};
use tokio::time::timeout;

use super::{SOON, listened};

/// The error of a client that must not be made, at once: long before the end of its connect timeout.
async fn refused(url: &str) -> Error {
    let builder = Client::builder().connect_timeout(Duration::from_secs(300));
    let connecting = tokio::time::timeout(SOON, builder.connect(url));
    connecting.await.expect("told at once").unwrap_err()
}

#[tokio::test]
async fn locks_live_on_the_master_and_waiters_are_woken_there() {
    let set = SentinelSet::shared().await;
    let (holder, waiter) = (
        Client::connect(&set.url()).await.unwrap(),
        Client::connect(&set.url()).await.unwrap(),
    );
    let key = "sentinel:woken";
    let guard = holder.lock(key).acquire().await.unwrap();
    assert!(waiter.lock(key).try_acquire().await.unwrap().is_none());
    let lock = waiter.lock(key);
    let waiting = tokio::spawn(async move { lock.acquire().wait(SOON * 2).await });
    let master = set.server(set.master().await);
    listened(master, key, 1).await;
    guard.release().await.unwrap();
    let guard = timeout(BY_MESSAGE, waiting).await.expect("woken");
    guard.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn service_that_no_sentinel_knows_is_an_error_at_connect() {
    let set = SentinelSet::shared().await;
    let url = set.url().replace(&format!("/{SERVICE}?"), "/nobody?");
    let error = refused(&url).await;
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    assert!(text.contains("no service `nobody`"), "{text}");
}

#[tokio::test]
async fn sentinel_and_server_that_are_mixed_up_say_what_to_write() {
    let set = SentinelSet::shared().await;
    let error = refused(&set.sentinel(0).url()).await;
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    assert!(
        text.contains("it is a Sentinel") && text.contains("`redis+sentinel://"),
        "{text}"
    );
    // Its user has the same name and password at the servers.
    let url = set.url();
    let (_, rest) = url.split_once('?').unwrap();
    let server = set.server(0).addr();
    let error = refused(&format!("redis+sentinel://{server}/{SERVICE}?{rest}")).await;
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    assert!(
        text.contains("it is no Sentinel") && text.contains("`redis://`"),
        "{text}"
    );
}

#[tokio::test]
async fn servers_and_sentinels_have_users_of_their_own() {
    let builder = SentinelSet::builder()
        .patient()
        .credentials("shop", "s:c/t");
    let set = builder
        .sentinel_credentials("watcher", "other")
        .start()
        .await;
    let client = Client::connect(&set.url()).await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    let wrong = set
        .url()
        .replace("sentinel_password=other", "sentinel_password=hidden");
    assert_ne!(wrong, set.url());
    let error = refused(&wrong).await;
    let text = error.to_string();
    assert!(matches!(error, Error::LoginDenied { .. }), "{text}");
    assert!(
        text.contains("Sentinel 127.0.0.1:") && !text.contains("hidden"),
        "{text}"
    );
}

#[tokio::test]
async fn password_for_sentinels_is_read_from_its_file_and_again_at_each_connection() {
    let builder = SentinelSet::builder()
        .patient()
        .sentinel_credentials("watcher", "other");
    let set = builder.start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let by_file = format!("sentinel_password_file={}", path.replace('/', "%2F"));
    let url = set.url().replace("sentinel_password=other", &by_file);
    assert!(url.contains("sentinel_user=watcher&sentinel_password_file="));
    std::fs::write(file.path(), "hidden\n").unwrap();
    let error = refused(&url).await;
    assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
    std::fs::write(file.path(), "other\n").unwrap();
    for client in [
        Client::connect(&url).await.unwrap(),
        Client::builder()
            .sentinel_password_file(file.path())
            .connect(&set.url().replace("&sentinel_password=other", ""))
            .await
            .unwrap(),
    ] {
        let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
        guard.release().await.unwrap();
    }
    let alone = set.url().replace("&sentinel_password=other", "");
    let error = Client::connect_lazy(&alone).unwrap_err().to_string();
    assert!(error.contains("`sentinel_password_file`"), "{error}");
}

#[tokio::test]
async fn sentinels_that_do_not_answer_are_passed_over() {
    let mut set = SentinelSet::builder().patient().start().await;
    set.sentinel_mut(0).stop();
    set.sentinel_mut(1).kill();
    let client = Client::connect(&set.url()).await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
}

in_real_time!(CONNECT; client_whose_sentinels_do_not_answer_says_so);

/// How long a client goes on whose Sentinels do not answer.
const CONNECT: Duration = Duration::from_secs(1);

async fn client_whose_sentinels_do_not_answer_says_so() {
    let mut set = SentinelSet::builder().patient().start().await;
    for at in 0..3 {
        set.sentinel_mut(at).kill();
    }
    let builder = Client::builder().connect_timeout(CONNECT);
    let error = builder.connect(&set.url()).await.unwrap_err();
    let text = format!(
        "{error}: {:?}",
        std::error::Error::source(&error).map(ToString::to_string)
    );
    assert!(matches!(error, Error::Unreachable { .. }), "{text}");
    let port = set.sentinel(2).port().to_string();
    assert!(text.contains(SERVICE) && text.contains(&port), "{text}");
}

#[tokio::test]
async fn client_that_is_gone_leaves_no_connection() {
    let set = SentinelSet::builder().patient().start().await;
    let client = Client::connect(&set.url()).await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    // Those of the harness and of Sentinels have names, and those between servers have flags.
    let is_ours = |line: &ClientLine| {
        line.field("name").is_empty() && !line.field("flags").contains(['S', 'M'])
    };
    let connections = || async {
        let mut left = 0;
        for at in 0..3 {
            for of in [set.server(at), set.sentinel(at)] {
                left += of
                    .client_list()
                    .await
                    .iter()
                    .filter(|line| is_ours(line))
                    .count();
            }
        }
        left
    };
    assert!(connections().await > 0);
    drop(client);
    eventually_eq(SOON, "connections of the client", 0, connections).await;
}
