//! The state of a client that probes ask for: its server goes away, and refuses its renewals.

use std::time::Instant;

use distlock::{Client, Error, Health, MemoryServer};
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{RedisCluster, RedisServer, eventually, eventually_eq, lock_once};

use crate::redis::{SOON, ms};

/// The user whose rights change. The servers of a set that other tests share know it as well.
const USER: &str = "health";

/// What takes renewals away from a user, and gives them back.
const DENIED: [&str; 2] = ["-evalsha", "-eval"];
const ALLOWED: [&str; 2] = ["+evalsha", "+eval"];

/// Completes when the client is in such a state.
async fn is(client: &Client, what: &str, is_it: impl Fn(&Health) -> bool) -> Health {
    let state = async || match client.health() {
        health if is_it(&health) => Ok(health),
        health => Err(health.to_string()),
    };
    eventually(SOON, what, state).await
}

async fn is_connected(client: &Client) {
    eventually_eq(SOON, "health", Health::Connected, || async {
        client.health()
    })
    .await;
}

#[tokio::test]
async fn client_of_a_killed_server_is_disconnected_for_longer_and_longer_until_it_is_back() {
    let mut server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    assert_eq!(client.health(), Health::Connected);
    server.kill();
    let is_away = |health: &Health| matches!(health, Health::Disconnected { .. });
    is(&client, "disconnected", is_away).await;
    let lasts = |health: &Health| matches!(health, Health::Disconnected { lasted, .. } if *lasted >= ms(300));
    let text = is(&client, "disconnected for long", lasts)
        .await
        .to_string();
    assert!(text.contains(&server.addr().to_string()), "{text}");
    // It is about a connection, and no command was sent.
    assert!(!text.contains("not executed"), "{text}");
    server.restart().await;
    is_connected(&client).await;
    // The next outage counts from its own beginning.
    let killed = Instant::now();
    server.kill();
    let first = is(&client, "disconnected again", is_away).await;
    let since_then =
        matches!(first, Health::Disconnected { lasted, .. } if lasted <= killed.elapsed());
    assert!(since_then, "{first}, {:?} after the end", killed.elapsed());
    tokio::time::sleep(ms(50)).await;
    match (first, client.health()) {
        (Health::Disconnected { lasted: first, .. }, Health::Disconnected { lasted, .. }) => {
            assert!(lasted >= first + ms(50), "{first:?}, then {lasted:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn client_of_a_stopped_server_is_disconnected_once_commands_go_unanswered() {
    let mut server = RedisServer::start().await;
    let builder = Client::builder().response_timeout(ms(1_000));
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    server.stop();
    // Nothing is sent for the state itself.
    assert_eq!(client.health(), Health::Connected);
    let waits = tokio::spawn(client.lock("other").acquire().wait(SOON * 2).into_future());
    let is_away = |health: &Health| matches!(health, Health::Disconnected { .. });
    is(&client, "disconnected", is_away).await;
    server.cont();
    is_connected(&client).await;
    waits.await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// `tell` tells all servers a command.
async fn refused_renewals_are_told(url: &str, keys: [&str; 2], tell: impl AsyncFn(&[&str])) {
    let client = Client::builder()
        .key_prefix("shop:")
        .connect(url)
        .await
        .unwrap();
    let idle = Client::connect(url).await.unwrap();
    let [one, other] = keys;
    let one = client.lock(one).acquire().await.unwrap();
    let other = client.lock(other).acquire().await.unwrap();
    tell(&[&["ACL", "SETUSER", USER][..], &DENIED].concat()).await;
    // Holds are renewed at once over new connections.
    tell(&["CLIENT", "KILL", "USER", USER]).await;
    let fail = |health: &Health| matches!(health, Health::RenewalsFail { holds: 2, lasted, .. } if *lasted >= ms(200));
    is(&client, "two holds that are not renewed", fail).await;
    assert!(one.is_held() && other.is_held());
    assert!(client.is_connected());
    is_connected(&idle).await;
    // What is over is not renewed.
    drop(other);
    let fail = |health: &Health| matches!(health, Health::RenewalsFail { holds: 1, .. });
    is(&client, "one hold that is not renewed", fail).await;
    tell(&[&["ACL", "SETUSER", USER][..], &ALLOWED].concat()).await;
    is_connected(&client).await;
    assert!(one.is_held());
    one.release().await.unwrap();
    client.close(SOON).await.unwrap();
    assert_eq!(client.health(), Health::Closed);
}

#[tokio::test]
async fn renewals_that_the_server_refuses_are_told_with_their_number() {
    let server = RedisServer::start().await;
    server.set_user(USER, &rights::all()).await;
    let url = format!("redis://{USER}:{PASSWORD}@{}", server.addr());
    refused_renewals_are_told(&url, ["health:1", "health:2"], async |words: &[&str]| {
        server.cli(words).await;
    })
    .await;
}

#[tokio::test]
async fn renewals_that_some_nodes_of_a_cluster_refuse_are_told_with_their_number() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    cluster
        .set_user(
            USER,
            &rights::all_in_cluster(cluster.has_sharded_messages().await),
        )
        .await;
    let url = cluster
        .url()
        .replace("//", &format!("//{USER}:{PASSWORD}@"));
    let keys = [
        cluster.key_at(0, "shop:health:").await,
        cluster.key_at(1, "shop:health:").await,
    ];
    let keys = keys.each_ref().map(|key| key.trim_start_matches("shop:"));
    refused_renewals_are_told(&url, keys, async |words: &[&str]| {
        cluster.each(words).await;
    })
    .await;
}

#[tokio::test]
async fn one_killed_node_of_a_cluster_is_the_one_that_is_named() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    for node in 0..3 {
        let key = cluster.key_at(node, "health:").await;
        lock_once(&client, &key).await;
    }
    assert_eq!(client.health(), Health::Connected);
    let addr = cluster.node(1).addr().to_string();
    cluster.node_mut(1).kill();
    let named =
        |health: &Health| matches!(health, Health::Disconnected { server, .. } if *server == addr);
    is(&client, "the node that was killed", named).await;
}

#[tokio::test]
async fn node_that_is_away_for_the_longest_time_is_the_one_that_is_named() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    for [first, second] in [[1, 2], [2, 1]] {
        let client = Client::connect(&cluster.url()).await.unwrap();
        let keys = [
            cluster.key_at(first, "health:").await,
            cluster.key_at(second, "health:").await,
        ];
        for key in &keys {
            lock_once(&client, key).await;
        }
        let addr = cluster.node(first).addr().to_string();
        let named = |health: &Health| matches!(health, Health::Disconnected { server, .. } if *server == addr);
        cluster.node_mut(first).kill();
        is(&client, "the first node", named).await;
        cluster.node_mut(second).kill();
        let away = || async { client.lock(&keys[1]).try_acquire().await.is_err() };
        eventually_eq(SOON, "the second node is away", true, away).await;
        let health = client.health();
        assert!(named(&health), "{addr} was the first one: {health}");
        for node in [first, second] {
            cluster.node_mut(node).restart().await;
        }
        is_connected(&client).await;
    }
}

// A node that is silent for half a second is not waited for: the next one is asked for the map.
in_real_time!(
    ms(500);
    node_that_could_not_be_reached_is_away_once_it_was_tried,
    node_that_was_never_used_is_not_the_one_that_is_away,
);

/// A client that knows all nodes of a cluster, and has used the first one alone.
async fn of_first_node(cluster: &RedisCluster) -> Client {
    let url = format!("redis+cluster://{}", cluster.node(0).addr());
    let builder = Client::builder().response_timeout(ms(1_000));
    let client = builder.connect(&url).await.unwrap();
    let key = cluster.key_at(0, "health:").await;
    lock_once(&client, &key).await;
    assert_eq!(client.health(), Health::Connected);
    client
}

async fn node_that_was_never_used_is_not_the_one_that_is_away() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let client = of_first_node(&cluster).await;
    let addr = cluster.node(0).addr().to_string();
    cluster.node_mut(0).kill();
    let is_away = |health: &Health| matches!(health, Health::Disconnected { .. });
    let away = is(&client, "disconnected", is_away).await;
    let named = matches!(&away, Health::Disconnected { server, .. } if *server == addr);
    assert!(named, "{addr} was used: {away}");
}

async fn node_that_could_not_be_reached_is_away_once_it_was_tried() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let client = of_first_node(&cluster).await;
    let (addr, key) = (
        cluster.node(1).addr().to_string(),
        cluster.key_at(1, "health:").await,
    );
    cluster.node_mut(1).kill();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(client.health(), Health::Connected);
    let tried = Instant::now();
    let error = client.lock(&key).try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let is_away = |health: &Health| matches!(health, Health::Disconnected { .. });
    match is(&client, "disconnected", is_away).await {
        Health::Disconnected { server, lasted, .. } => {
            assert_eq!(server, addr);
            assert!(lasted <= tried.elapsed(), "{lasted:?} since the first try");
        }
        other => panic!("{addr} could not be reached: {other}"),
    }
    cluster.node_mut(1).restart().await;
    is_connected(&client).await;
}

#[tokio::test]
async fn renewals_that_the_master_of_a_service_refuses_are_told_with_their_number() {
    let set = SentinelSet::shared().await;
    let master = set.server(set.master().await);
    master.set_user(USER, &rights::all()).await;
    let url = set.url();
    let (_, rest) = url.split_once('@').expect("a user");
    let url = format!("redis+sentinel://{USER}:{PASSWORD}@{rest}");
    refused_renewals_are_told(&url, ["health:1", "health:2"], async |words: &[&str]| {
        master.cli(words).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn server_in_memory_that_was_taken_down_is_told_with_the_time() {
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    server.take_down();
    tokio::time::advance(ms(1_500)).await;
    server.take_down();
    let lasts =
        matches!(client.health(), Health::Disconnected { lasted, .. } if lasted == ms(1_500));
    assert!(lasts, "{}", client.health());
    let json = serde_json::to_value(client.health()).unwrap();
    assert_eq!(
        (&json["state"], &json["lasted_ms"]),
        (&"disconnected".into(), &1_500.into())
    );
    server.bring_up();
    assert_eq!(client.health(), Health::Connected);
    // The first renewal after a third of the lease of 30 s is refused, and a later one is not.
    tokio::time::sleep(ms(1_000)).await;
    server.fail_next(1);
    let fails = |health: &Health| matches!(health, Health::RenewalsFail { holds: 1, .. });
    is(&client, "a renewal that has failed", fails).await;
    is_connected(&client).await;
    guard.release().await.unwrap();
}
