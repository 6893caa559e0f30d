//! Clients that do not wait for their server: it starts later, refuses them, or cannot be used.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Error, Health, MultiLock, Quorum};
use distlock_tests::certificates::Authority;
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::server::free_port;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{
    Flow, Proxy, RedisCluster, RedisServer, Select, Way, drop_after, eventually, eventually_eq,
    lock_once,
};
use tokio::time::{Instant, timeout};

use crate::redis::{SOON, client, ms};

/// Longer than any wait of these tests: an error before it comes at once.
const LATE: Duration = Duration::from_secs(300);

/// How long acquisitions go on without a connection.
const OUTAGE: Duration = ms(1_000);

in_real_time!(
    OUTAGE / 2;
    certificate_of_another_authority_is_told_to_the_first_acquisition,
    wrong_password_is_told_to_the_first_acquisition,
    wrong_password_of_a_cluster_is_told_to_the_first_acquisition,
);

async fn is_connected(client: &Client) {
    eventually_eq(SOON, "health", Health::Connected, || async {
        client.health()
    })
    .await;
}

/// Completes when the reason for which the client is disconnected contains this text.
async fn is_disconnected(client: &Client, text: &str) {
    let state = async || match client.health() {
        Health::Disconnected { reason, .. } if reason.contains(text) => Ok(()),
        other => Err(other.to_string()),
    };
    eventually(SOON, text, state).await;
}

#[tokio::test]
async fn client_that_is_dropped_while_a_try_to_connect_hangs_leaves_no_connection() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let _hangs = proxy.flow(Select::NEW, Way::Down, Flow::Stall);
    let connections = || async {
        let clients = server.client_list().await;
        clients.iter().filter(|line| !line.is_harness()).count()
    };
    for (scheme, path) in [
        ("redis", ""),
        ("redis+cluster", ""),
        ("redis+sentinel", "/locks"),
    ] {
        let url = format!("{scheme}://{}{path}", proxy.addr());
        let builder = Client::builder().connect_timeout(LATE);
        let client = builder.connect_lazy(&url).unwrap();
        eventually_eq(SOON, &url, true, || async { connections().await > 0 }).await;
        drop(client);
        eventually_eq(SOON, &url, 0, connections).await;
    }
}

#[tokio::test]
async fn server_that_starts_later_is_waited_for() {
    let mut server = RedisServer::start().await;
    let url = server.url();
    server.kill();
    let lazy = Client::builder()
        .unavailable_after(LATE)
        .connect_lazy(&url)
        .unwrap();
    let tried = lazy.lock("k").try_acquire().await.unwrap_err();
    assert!(matches!(tried, Error::Unavailable { .. }), "{tried}");
    let waited = lazy.lock("k").acquire().wait(ms(300)).await.unwrap_err();
    assert!(matches!(waited, Error::Unavailable { .. }), "{waited}");
    let pinged = lazy.ping().await.unwrap_err();
    assert!(matches!(pinged, Error::Unreachable { .. }), "{pinged}");
    is_disconnected(&lazy, "refused").await;
    let waits = tokio::spawn(lazy.lock("k").acquire().wait(LATE).into_future());
    let unlimited = tokio::spawn(lazy.lock("k").acquire().into_future());
    tokio::time::sleep(ms(300)).await;
    assert!(!waits.is_finished() && !unlimited.is_finished());
    server.restart().await;
    for waits in [waits, unlimited] {
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
    is_connected(&lazy).await;
    lazy.ping().await.unwrap();
    // From here on it is a client like others: it listens, renews and connects again.
    let other = client(&server).await;
    let guard = other.lock("k").acquire().await.unwrap();
    let waits = tokio::spawn(lazy.lock("k").acquire().wait(SOON * 2).into_future());
    crate::redis::listened(&server, "k", 1).await;
    guard.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn acquisition_without_a_wait_of_its_own_fails_by_the_usual_limit() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let lazy = Client::builder().unavailable_after(ms(300));
    let lazy = lazy.connect_lazy(&url).unwrap();
    let error = lazy.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn server_is_connected_to_without_any_call() {
    let mut server = RedisServer::start().await;
    let url = server.url();
    server.kill();
    let lazy = Client::connect_lazy(&url).unwrap();
    assert!(!lazy.is_connected());
    server.restart().await;
    is_connected(&lazy).await;
}

#[test]
fn client_that_is_made_outside_of_a_runtime_connects_when_it_is_used() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let runtime = runtime();
    let server = runtime.block_on(RedisServer::start());
    let cluster = runtime.block_on(RedisCluster::builder().replicas(false).start());
    for url in [server.url(), cluster.url()] {
        let lazy = Client::connect_lazy(&url).unwrap();
        runtime.block_on(lock_once(&lazy, "k"));
        assert!(lazy.is_connected());
    }
}

#[tokio::test]
async fn wrong_url_or_setting_is_told_at_once() {
    for url in [
        "redis://",
        "http://h",
        "redis://h:0",
        "redis://h?no=1",
        "redis+sentinel://h",
        "redis+cluster://h/three",
    ] {
        let error = Client::connect_lazy(url).unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }), "{url}: {error}");
    }
    let builder = Client::builder().response_timeout(Duration::ZERO);
    let error = builder.connect_lazy("redis://127.0.0.1:1").unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    let builder = Client::builder().tls_ca_pem("no certificate");
    let error = builder.connect_lazy("rediss://127.0.0.1:1").unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
}

/// Acquisitions with a wrong password are denied, and those of the right one are not after it was corrected. `tell` tells all
/// servers a command.
async fn password_is_told(url: &str, tell: impl AsyncFn(&[&str])) {
    let lazy = Client::builder()
        .unavailable_after(OUTAGE)
        .key_prefix("shop:")
        .connect_lazy(url)
        .unwrap();
    for error in [
        lazy.lock("k").acquire().await.unwrap_err(),
        lazy.lock("k").try_acquire().await.unwrap_err(),
        lazy.lock("k").acquire().wait(OUTAGE / 2).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Denied { .. }), "{error}");
        assert!(!error.to_string().contains(PASSWORD), "{error}");
    }
    let pinged = lazy.ping().await.unwrap_err();
    assert!(matches!(pinged, Error::LoginDenied { .. }), "{pinged}");
    is_disconnected(&lazy, "login denied").await;
    let since = Instant::now();
    let waits = lazy.lock("k").acquire().wait(SOON * 3).into_future();
    let waits = tokio::spawn(waits);
    let password = format!(">{PASSWORD}");
    tell(&["ACL", "SETUSER", "lazy", "resetpass", &password]).await;
    match waits.await.unwrap() {
        Ok(guard) => guard.release().await.unwrap(),
        // The time for an outage was over before.
        Err(error) => {
            let is_told = matches!(error, Error::Denied { .. }) || error.is_unavailable();
            let after = since.elapsed();
            assert!(is_told && after >= OUTAGE, "{error}, after {after:?}");
        }
    }
    is_connected(&lazy).await;
    lock_once(&lazy, "k").await;
}

async fn wrong_password_is_told_to_the_first_acquisition() {
    let server = RedisServer::start().await;
    server.set_user("lazy", &rights::all()).await;
    let other = ["ACL", "SETUSER", "lazy", "resetpass", ">other"];
    server.cli(&other).await;
    let url = format!("redis://lazy:{PASSWORD}@{}", server.addr());
    password_is_told(&url, async |words: &[&str]| {
        server.cli(words).await;
    })
    .await;
}

/// The other member, of a client that has a connection, is granted and given back each time.
#[tokio::test]
async fn multi_lock_waits_while_the_server_of_one_member_refuses_logins() {
    let (server, refusing) = (RedisServer::start().await, RedisServer::start().await);
    refusing.set_user("lazy", &rights::all()).await;
    let set = async |password: &str| {
        let set = ["ACL", "SETUSER", "lazy", "resetpass", password];
        refusing.cli(&set).await;
    };
    set(">other").await;
    let url = format!("redis://lazy:{PASSWORD}@{}", refusing.addr());
    let patient = Client::builder()
        .unavailable_after(LATE)
        .key_prefix("shop:");
    let (one, two) = (client(&server).await, patient.connect_lazy(&url).unwrap());
    let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
    let tried = multi.try_acquire().await.unwrap_err();
    assert!(matches!(tried, Error::Denied { .. }), "{tried}");
    let waits = tokio::spawn(multi.acquire().into_future());
    let before = refusing.command_calls("hello").await;
    let refused = async || refusing.command_calls("hello").await >= before + 3;
    eventually(SOON, "refused logins", refused).await;
    assert!(!waits.is_finished(), "{:?}", waits.await);
    set(&format!(">{PASSWORD}")).await;
    let guard = timeout(SOON * 3, waits).await.expect("it waits");
    guard.unwrap().unwrap().release().await.unwrap();
}

async fn wrong_password_of_a_cluster_is_told_to_the_first_acquisition() {
    let cluster = RedisCluster::shared().await;
    let rights = rights::all_in_cluster(cluster.has_sharded_messages().await);
    cluster.set_user("lazy", &rights).await;
    let other = ["ACL", "SETUSER", "lazy", "resetpass", ">other"];
    cluster.each(&other).await;
    let url = cluster.url();
    let (_, hosts) = url.split_once('@').expect("a user");
    let url = format!("redis+cluster://lazy:{PASSWORD}@{hosts}");
    password_is_told(&url, async |words: &[&str]| {
        cluster.each(words).await;
    })
    .await;
}

#[tokio::test]
async fn server_that_cannot_be_used_is_told_to_the_first_acquisition() {
    let set = SentinelSet::shared().await;
    let cluster = RedisCluster::shared().await;
    let server = RedisServer::builder()
        .arg("--rename-command", "EVALSHA nothing")
        .start()
        .await;
    let single = format!("redis+cluster://{}", server.addr());
    let nobody = set.url().replace("/locks", "/nobody");
    for (url, says) in [
        (server.url(), "EVALSHA"),
        (cluster.node(0).url(), "redis+cluster://"),
        (single, "write `redis://`"),
        (nobody, "no service"),
    ] {
        let lazy = Client::builder().unavailable_after(LATE);
        let lazy = lazy.connect_lazy(&url).unwrap();
        let acquired = tokio::time::timeout(SOON, lazy.lock("k").acquire().into_future());
        let error = acquired.await.expect("told at once").unwrap_err();
        assert!(
            matches!(error, Error::UnsupportedServer { .. }),
            "{url}: {error}"
        );
        assert!(error.to_string().contains(says), "{url}: {error}");
        assert!(!lazy.is_connected());
    }
}

#[tokio::test]
async fn cluster_that_starts_later_is_waited_for() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let url = cluster.url();
    for node in 0..cluster.size() {
        cluster.node_mut(node).kill();
    }
    let lazy = Client::builder().unavailable_after(LATE);
    let lazy = lazy.connect_lazy(&url).unwrap();
    let tried = lazy.lock("k").try_acquire().await.unwrap_err();
    assert!(matches!(tried, Error::Unavailable { .. }), "{tried}");
    let pinged = lazy.ping().await.unwrap_err();
    assert!(matches!(pinged, Error::Unreachable { .. }), "{pinged}");
    let named = cluster.node(0).addr().to_string();
    assert!(pinged.to_string().contains(&named), "{pinged}");
    let away = lazy.health().to_string();
    assert!(away.contains(&named), "{away}");
    let keys = ["one", "two", "three", "four"];
    let waits = keys.map(|key| tokio::spawn(lazy.lock(key).acquire().into_future()));
    // A latch is listened to before it is asked for.
    let latch = lazy.count_down_latch("latch");
    let opened = tokio::spawn(latch.wait().into_future());
    for node in 0..cluster.size() {
        cluster.node_mut(node).restart().await;
    }
    cluster.wait_until_stable().await;
    for waits in waits {
        let guard = waits.await.unwrap().unwrap();
        // Messages are as in a cluster that was there from the start.
        let key = guard.keys().next().unwrap().to_owned();
        let other = lazy.lock(&key);
        let next = tokio::spawn(async move { other.acquire().wait(SOON * 2).await });
        guard.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
    }
    opened.await.unwrap().unwrap();
    is_connected(&lazy).await;
    // Also at the node that was asked before it was known how the nodes publish.
    let eager = Client::connect(&url).await.unwrap();
    for node in 0..cluster.size() {
        let key = cluster.key_at(node, "later:").await;
        let guard = eager.lock(&key).acquire().await.unwrap();
        let next = lazy.lock(&key).acquire().wait(SOON * 2).into_future();
        let next = tokio::spawn(next);
        let listeners = async || lazy.inspect(&key).await.unwrap().listeners;
        eventually_eq(SOON, "listeners", Some(1), listeners).await;
        guard.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn sentinels_and_servers_that_start_later_are_waited_for() {
    let mut set = SentinelSet::builder().patient().start().await;
    let url = set.url();
    for at in 0..3 {
        set.sentinel_mut(at).kill();
    }
    let lazy = Client::builder().unavailable_after(LATE);
    let lazy = lazy.connect_lazy(&url).unwrap();
    let tried = lazy.lock("k").try_acquire().await.unwrap_err();
    assert!(matches!(tried, Error::Unavailable { .. }), "{tried}");
    assert!(!lazy.is_connected());
    let waits = tokio::spawn(lazy.lock("k").acquire().into_future());
    for at in 0..3 {
        set.sentinel_mut(at).restart().await;
    }
    waits.await.unwrap().unwrap().release().await.unwrap();
    is_connected(&lazy).await;
}

/// Drops acquisitions at the server of a key while each of them waits, and returns how many releases they leave.
async fn left_by_dropped(client: &Client, key: &str) -> usize {
    for polls in [1, 1, 1, 2] {
        let acquired = drop_after(polls, client.lock(key).acquire().into_future());
        let _dropped = tokio::time::timeout(ms(20), acquired).await;
        let multi = client.multi_lock([key.to_owned(), format!("{{{key}}}:2")]);
        let _dropped = drop_after(1, multi.acquire().into_future()).await;
    }
    sizes(client).pending_releases
}

#[tokio::test]
async fn acquisition_that_was_dropped_before_it_was_sent_leaves_no_release() {
    let mut server = RedisServer::start().await;
    let url = server.url();
    server.kill();
    let lazy = Client::connect_lazy(&url).unwrap();
    assert_eq!(left_by_dropped(&lazy, "k").await, 0);
    server.restart().await;
    is_connected(&lazy).await;
    lock_once(&lazy, "k").await;
    // Nor does one that waits for the next connection.
    server.kill();
    is_disconnected(&lazy, "").await;
    assert_eq!(left_by_dropped(&lazy, "k").await, 0);
    server.restart().await;
    is_connected(&lazy).await;
    lock_once(&lazy, "k").await;
    // A server that does not answer may carry it out later.
    server.stop();
    assert_ne!(left_by_dropped(&lazy, "k").await, 0);
    server.cont();
    let none = async || sizes(&lazy).pending_releases;
    eventually_eq(SOON, "pending releases", 0, none).await;
}

#[tokio::test]
async fn acquisition_that_was_dropped_before_it_was_sent_to_a_cluster_leaves_no_release() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let (url, key) = (cluster.url(), cluster.key_at(1, "unsent:").await);
    let kept = cluster.key_at(0, "unsent:").await;
    for node in 0..cluster.size() {
        cluster.node_mut(node).kill();
    }
    let lazy = Client::connect_lazy(&url).unwrap();
    assert_eq!(left_by_dropped(&lazy, &key).await, 0);
    for node in 0..cluster.size() {
        cluster.node_mut(node).restart().await;
    }
    cluster.wait_until_stable().await;
    lock_once(&lazy, &kept).await;
    // Neither does one at a node that is away. On a slow machine it was asked for the map, and has a connection.
    cluster.node_mut(1).kill();
    let address = cluster.node(1).addr().to_string();
    let is_away = async || {
        let seen = distlock::test_util::connections(&lazy);
        let mut of_node = seen.iter().filter(|seen| seen.name.ends_with(&address));
        of_node.all(|seen| seen.in_use.is_none())
    };
    eventually_eq(SOON, "the node is away", true, is_away).await;
    assert_eq!(left_by_dropped(&lazy, &key).await, 0);
}

async fn certificate_of_another_authority_is_told_to_the_first_acquisition() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = RedisServer::builder()
        .tls(&authority.server())
        .start()
        .await;
    let lazy = |trusted: &Authority| {
        let builder = Client::builder().unavailable_after(OUTAGE);
        let builder = builder.tls_ca_pem(trusted.pem());
        builder.connect_lazy(&server.tls_url()).unwrap()
    };
    let error = lazy(&other).lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    lock_once(&lazy(&authority), "k").await;
}

#[tokio::test]
async fn quorum_of_lazy_clients_works_while_a_minority_was_never_there() {
    let (one, two) = (RedisServer::start().await, RedisServer::start().await);
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let urls = [one.url(), two.url(), nobody];
    let clients = urls.map(|url| Client::connect_lazy(&url).unwrap());
    let lock = Quorum::new(clients).lock("k");
    let guard = lock.acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
}
