//! What only a cluster shows: the URLs, the nodes that a client connects to, and what locks cost there.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Error, PubSub};
use distlock_tests::{Pulse, RedisCluster, RedisServer, eventually_eq, lock_once, rights, size};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{SOON, ms};

/// How often all nodes were asked to run a script.
async fn scripts(cluster: &RedisCluster) -> u64 {
    let mut calls = 0;
    for at in 0..cluster.size() {
        calls += cluster.node(at).command_calls("evalsha").await;
    }
    calls
}

in_real_time!(
    LEASE / 6;
    // A node that is silent for half a second is not waited for: the next one is asked for the map.
    client_connects_to_the_nodes_that_it_uses,
    idle_holds_cost_one_renewal_in_a_third_of_the_lease,
);

/// Of the idle holds.
const LEASE: Duration = Duration::from_millis(1_500);

async fn idle_holds_cost_one_renewal_in_a_third_of_the_lease() {
    const HOLDS: u64 = 30;
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let builder = Client::builder().watchdog_timeout(LEASE);
    let client = builder.connect(&cluster.url()).await.unwrap();
    let locks: Vec<_> = (0..HOLDS)
        .map(|n| client.lock(format!("idle:{n}")))
        .collect();
    let guards: Vec<_> = join_all(locks.iter().map(|lock| lock.acquire().into_future())).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    let (before, begun) = (scripts(&cluster).await, Instant::now());
    sleep(LEASE * 3).await;
    let calls = timeout(SOON, scripts(&cluster))
        .await
        .expect("an idle client is busy")
        - before;
    let thirds = (begun.elapsed().as_millis() * 3).div_ceil(LEASE.as_millis());
    let thirds = u64::try_from(thirds).unwrap();
    println!("{calls} scripts for {HOLDS} holds in {thirds} thirds of the lease");
    // One more each: the connection that a hold was granted over may have been made for its attempt.
    assert!(calls <= HOLDS * (thirds + 2), "{calls} scripts");
    assert!(guards.iter().all(distlock::Guard::is_held));
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn url_of_the_wrong_arrangement_says_what_to_write() {
    let cluster = RedisCluster::shared().await;
    let single = RedisServer::start().await;
    let refused = async |url: String| {
        let started = Instant::now();
        let error = Client::connect(&url).await.unwrap_err();
        assert!(matches!(error, Error::UnsupportedServer { .. }), "{error}");
        println!("{:?}: {error}", started.elapsed());
        error.to_string()
    };
    let text = refused(cluster.node(0).url()).await;
    assert!(text.contains("write `redis+cluster://`"), "{text}");
    let text = refused(format!("redis+cluster://{}", single.addr())).await;
    assert!(text.contains("write `redis://`"), "{text}");
}

#[tokio::test]
async fn one_node_that_answers_is_enough_to_connect() {
    let cluster = RedisCluster::shared().await;
    let gone = {
        let server = RedisServer::start().await;
        server.addr()
    };
    let url = cluster.node(2).url().replace("redis:", "redis+cluster:");
    let url = url.replace('@', &format!("@{gone},"));
    let client = Client::connect(&url).await.unwrap();
    for node in 0..3 {
        let key = cluster.key_at(node, "one-node:").await;
        lock_once(&client, &key).await;
    }
}

/// Its users are its own: that of the client is not there yet.
#[tokio::test]
async fn node_that_refuses_the_login_keeps_no_client_from_the_others() {
    let cluster = RedisCluster::shared().await;
    let rights = rights::all_in_cluster(cluster.has_sharded_messages().await);
    for node in [1, 2] {
        cluster.node(node).set_user("new", &rights).await;
    }
    let [first, second, third] = [0, 1, 2].map(|node| cluster.node(node).addr());
    let builder = Client::builder().credentials("new", rights::PASSWORD);
    let url = format!("redis+cluster://{first},{second},{third}");
    let client = builder.connect(&url).await.unwrap();
    for node in [1, 2] {
        let key = cluster.key_at(node, "shop:new:").await;
        lock_once(&client, &key).await;
    }
}

#[tokio::test]
async fn login_that_all_nodes_refuse_is_denied_at_once() {
    let cluster = RedisCluster::shared().await;
    let gone = {
        let server = RedisServer::start().await;
        server.addr()
    };
    let [first, second] = [0, 1].map(|node| cluster.node(node).addr());
    let builder = || Client::builder().credentials("nobody", rights::PASSWORD);
    // What a node says counts more than that another one does not answer.
    for (url, patience) in [
        (format!("redis+cluster://{first},{second}"), 6 * SOON),
        (format!("redis+cluster://{first},{gone}"), ms(1_000)),
    ] {
        let connecting = builder().connect_timeout(patience).connect(&url);
        let denied = timeout(SOON, connecting).await.expect("an answer at once");
        let error = denied.unwrap_err();
        assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
    }
}

async fn client_connects_to_the_nodes_that_it_uses() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let url = format!("redis+cluster://{}", cluster.node(0).addr());
    let client = Client::connect(&url).await.unwrap();
    let connections = async |node: usize| {
        let connections = cluster.node(node).client_list().await;
        connections.iter().filter(|one| !one.is_harness()).count()
    };
    eventually_eq(SOON, "connections at the start", [1, 0, 0], async || {
        [
            connections(0).await,
            connections(1).await,
            connections(2).await,
        ]
    })
    .await;
    let key = cluster.key_at(1, "used:").await;
    let guard = client.lock(&key).acquire().await.unwrap();
    assert_eq!([connections(1).await, connections(2).await], [1, 0]);
    let other = client.lock(&key);
    let waiter = tokio::spawn(async move { other.acquire().wait(SOON).await });
    eventually_eq(SOON, "one for messages", [2, 0], async || {
        [connections(1).await, connections(2).await]
    })
    .await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn waiters_are_told_by_the_messages_that_the_setting_names() {
    let pulse = Pulse::start();
    let cluster = RedisCluster::shared().await;
    for (pub_sub, sharded, plain) in [
        (PubSub::Auto, 1, 0),
        (PubSub::Both, 1, 1),
        (PubSub::Plain, 0, 1),
    ] {
        let is_sharded = cluster.has_sharded_messages().await;
        let (sharded, plain) = if is_sharded { (sharded, plain) } else { (0, 1) };
        let name = format!("told:{pub_sub:?}");
        let builder = || Client::builder().pub_sub(pub_sub);
        let holder = builder().connect(&cluster.url()).await.unwrap();
        let waiter = builder().connect(&cluster.url()).await.unwrap();
        let guard = holder.lock(&name).acquire().await.unwrap();
        let lock = waiter.lock(&name);
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().wait(SOON).await.unwrap();
            (guard, Instant::now())
        });
        let pattern = format!("*{name}*");
        let node = cluster.node(cluster.node_of(cluster.slot_of(&name).await).await);
        eventually_eq(SOON, "channels", (sharded, plain), async || {
            let words = ["PUBSUB", "SHARDCHANNELS", &pattern];
            let sharded: Vec<String> = if is_sharded {
                node.try_cli(&words).await.unwrap()
            } else {
                Vec::new()
            };
            let words = ["PUBSUB", "CHANNELS", &pattern];
            let plain: Vec<String> = node.try_cli(&words).await.unwrap();
            (sharded.len(), plain.len())
        })
        .await;
        let freed = Instant::now();
        guard.release().await.unwrap();
        let (guard, at) = waiting.await.unwrap();
        // Without a message it takes 4 s at least.
        let took = at.duration_since(freed);
        assert!(took < pulse.stretch(ms(3_500)), "{pub_sub:?}: {took:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn waiters_that_are_told_both_ways_hear_the_one_that_the_server_does_not_refuse() {
    let pulse = Pulse::start();
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let builder = || Client::builder().pub_sub(PubSub::Both);
    let holder = builder().connect(&cluster.url()).await.unwrap();
    let waiter = builder().connect(&cluster.url()).await.unwrap();
    for [refused, allowed] in [["-spublish", "+publish"], ["-publish", "+spublish"]] {
        if refused == "-publish" && !cluster.has_sharded_messages().await {
            // Redis 6 has plain messages alone.
            continue;
        }
        let guard = holder.lock(refused).acquire().await.unwrap();
        let lock = waiter.lock(refused);
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().wait(SOON).await.unwrap();
            (guard, Instant::now())
        });
        let node = cluster.node(cluster.node_of(cluster.slot_of(refused).await).await);
        let pattern = format!("*{refused}*");
        eventually_eq(SOON, "a channel", 1, async || {
            let words = ["PUBSUB", "CHANNELS", &pattern];
            node.try_cli::<Vec<String>>(&words).await.unwrap().len()
        })
        .await;
        for at in 0..cluster.size() {
            let words = ["ACL", "SETUSER", "default", refused, allowed];
            let _older: Result<String, _> = cluster.node(at).try_cli(&words).await;
        }
        let freed = Instant::now();
        guard.release().await.unwrap();
        let (guard, at) = waiting.await.unwrap();
        // Without a message it takes 4 s at least.
        let took = at.duration_since(freed);
        assert!(took < pulse.stretch(ms(3_500)), "{refused}: {took:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn marks_of_answered_requests_go_from_all_slots() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    for n in 0..20 {
        let latch = client.count_down_latch(format!("marks:{n}"));
        latch.try_set_count(2).await.unwrap();
        latch.count_down().await.unwrap();
        latch.delete().await.unwrap();
    }
    // The next command to each node takes its marks along.
    for node in 0..3 {
        let key = cluster.key_at(node, "next:").await;
        lock_once(&client, &key).await;
    }
    let left = async || {
        let mut left = Vec::new();
        for node in 0..3 {
            left.extend(cluster.node(node).keys().await);
        }
        // The mark of an opened latch stays for some seconds, and ends by its TTL.
        left.retain(|key: &String| !key.ends_with(":distlock_opened"));
        left
    };
    eventually_eq(SOON, "keys", Vec::<String>::new(), left).await;
}

/// Leases last for an hour, so nobody waits for the end of one. A waiter that hears nothing looks at its key by itself after
/// 4 s at least.
#[tokio::test]
async fn all_hand_offs_between_clients_are_woken_by_messages() {
    const AN_HOUR: Duration = Duration::from_secs(3_600);
    const TOLD: Duration = Duration::from_millis(3_500);
    const KEYS: usize = 50;
    let (pulse, rounds) = (Pulse::start(), size(20, 200));
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let url = cluster.url();
    let clients = [Client::connect(&url), Client::connect(&url)];
    let clients = join_all(clients).await;
    let clients: Vec<_> = clients.into_iter().map(Result::unwrap).collect();
    let acquire = async |client: &Client, key: usize| {
        let lock = client.lock(format!("hand-off:{key}"));
        let guard = lock.acquire().lease(AN_HOUR).wait(AN_HOUR).await.unwrap();
        (guard, Instant::now())
    };
    let mut held = join_all((0..KEYS).map(|key| acquire(&clients[0], key))).await;
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let next = &clients[(round + 1) % 2];
        let hand_over = async {
            // They have subscribed, or are about to: then they find the key free.
            eventually_eq(SOON, "waiters", KEYS, || async { sizes(next).waiters }).await;
            join_all(held.into_iter().map(async |(guard, _)| {
                let at = Instant::now();
                guard.release().await.unwrap();
                at
            }))
            .await
        };
        let wake = join_all((0..KEYS).map(|key| acquire(next, key)));
        let both = pulse.timeout(SOON * 2, async { tokio::join!(hand_over, wake) });
        let (released, woken) = both.await.expect("a waiter that nobody woke");
        for (released, (_, woken)) in released.into_iter().zip(&woken) {
            longest = longest.max(woken.duration_since(released));
        }
        assert!(longest < pulse.stretch(TOLD), "{longest:?}");
        held = woken;
    }
    let hand_offs = KEYS * rounds;
    println!("{hand_offs} hand-offs, the longest took {longest:?}");
}
