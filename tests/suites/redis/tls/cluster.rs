//! Clusters whose nodes speak TLS, with their clients and among each other.

use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::rights::PASSWORD;
use distlock_tests::{Authority, Pulse, RedisCluster, RedisServer, eventually_eq, lock_once};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::{SOON, only_own_certificates_are_taken, refused, trusting};

/// Without a message, a waiter looks at its key after 4 s at the earliest.
const TOLD: Duration = Duration::from_millis(3_500);

/// The administrator.
const RIGHTS: [&str; 3] = ["+@all", "~*", "&*"];

/// The cluster of the tests that only use keys and users of their own, and the authority of its certificates. A node that is
/// late does not count as failed.
async fn shared() -> &'static (RedisCluster, Authority) {
    static SHARED: OnceCell<(RedisCluster, Authority)> = OnceCell::const_new();
    let start = async || {
        let authority = Authority::new();
        let builder = RedisCluster::builder().replicas(false).tls(&authority);
        let builder = builder.without_default_user();
        (builder.start().await, authority)
    };
    SHARED.get_or_init(start).await
}

/// URL of one node alone, over TLS: the client finds the others.
fn url_of_node(cluster: &RedisCluster, node: usize, user: &str) -> String {
    let address = cluster.node(node).tls_addr();
    format!("rediss+cluster://{user}:{PASSWORD}@{address}")
}

/// The connections of a user at a node: those for commands, and those for messages. All of them have TLS.
async fn connections(cluster: &RedisCluster, node: usize, user: &str) -> [usize; 2] {
    let port = cluster.node(node).tls_addr().to_string();
    let connections = cluster.node(node).client_list().await;
    let own = connections.iter().filter(|one| one.field("user") == user);
    let own: Vec<_> = own.collect();
    assert!(own.iter().all(|one| one.field("laddr") == port), "{own:?}");
    let for_messages = own.iter().filter(|one| one.subscribes()).count();
    [own.len() - for_messages, for_messages]
}

/// Hands a lock from one client to another one, which is woken by a message.
async fn hands_over(cluster: &RedisCluster, [from, to]: [&Client; 2], key: &str, user: &str) {
    let pulse = Pulse::start();
    let guard = from.lock(key).acquire().wait(SOON).await.unwrap();
    let lock = to.lock(key);
    let waiting = tokio::spawn(async move {
        let guard = lock.acquire().wait(SOON).await.unwrap();
        (guard, Instant::now())
    });
    let node = cluster.node_of(cluster.slot_of(key).await).await;
    let listens = async || connections(cluster, node, user).await[1] > 0;
    eventually_eq(SOON, "a connection for messages", true, listens).await;
    let freed = Instant::now();
    guard.release().await.unwrap();
    let (guard, woken) = waiting.await.unwrap();
    let took = woken.duration_since(freed);
    assert!(took < pulse.stretch(TOLD), "{key}: {took:?}");
    guard.release().await.unwrap();
}

/// Asks until the answer is that somebody holds the key. Connections that end give other answers for a moment.
async fn is_held(client: &Client, key: &str) {
    let busy = async || {
        let tried = client.lock(key).acquire().wait(Duration::ZERO).await;
        tried.is_err_and(|error| error.is_busy())
    };
    eventually_eq(SOON, "held", true, busy).await;
}

/// Acquires and releases a lock of each node once.
async fn works_on_all_nodes(cluster: &RedisCluster, client: &Client) {
    for node in 0..3 {
        let key = cluster.key_at(node, "works:").await;
        lock_once(client, &key).await;
    }
}

#[tokio::test]
async fn locks_of_all_nodes_are_handed_over_by_messages_with_tls_and_the_login_of_the_url() {
    let (cluster, authority) = shared().await;
    let user = "finder";
    cluster.set_user(user, &RIGHTS).await;
    let url = url_of_node(cluster, 0, user);
    let holder = trusting(authority).connect(&url).await.unwrap();
    let waiter = trusting(authority).connect(&url).await.unwrap();
    for node in 0..3 {
        let key = cluster.key_at(node, "handed:").await;
        hands_over(cluster, [&holder, &waiter], &key, user).await;
        // Two for commands, and one for messages. That one may have unsubscribed by now.
        let now = async || connections(cluster, node, user).await.iter().sum();
        eventually_eq(SOON, "connections", 3, now).await;
    }
}

#[tokio::test]
async fn clients_with_tls_and_without_meet_at_the_same_lock() {
    let (cluster, authority) = shared().await;
    let with = trusting(authority).connect(&cluster.tls_url()).await;
    let (with, without) = (with.unwrap(), Client::connect(&cluster.url()).await);
    let without = without.unwrap();
    for node in 0..3 {
        let key = cluster.key_at(node, "met:").await;
        let guard = with.lock(&key).acquire().await.unwrap();
        is_held(&without, &key).await;
        guard.release().await.unwrap();
    }
    works_on_all_nodes(cluster, &without).await;
}

#[tokio::test]
async fn nodes_of_an_unknown_authority_deny_the_login_at_once_with_the_reason() {
    let (cluster, _) = shared().await;
    let other = Authority::new();
    let error = refused(trusting(&other), &cluster.tls_url()).await;
    let text = error.to_string();
    assert!(
        matches!(error, Error::LoginDenied { .. }) && error.is_permanent(),
        "{text}"
    );
    let address = cluster.node(0).tls_addr().to_string();
    assert!(
        text.contains("UnknownIssuer") && text.contains(&address),
        "{text}"
    );
    let url = format!("{}#insecure", cluster.tls_url());
    let client = Client::connect(&url).await.unwrap();
    works_on_all_nodes(cluster, &client).await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn url_with_tls_for_plain_ports_and_the_other_way_round_says_what_to_write() {
    let (cluster, authority) = shared().await;
    let with_tls = cluster.url().replace("redis+", "rediss+");
    let without = cluster.tls_url().replace("rediss+", "redis+");
    let plain = Client::builder();
    for (builder, url, is, write) in [
        (
            trusting(authority),
            with_tls,
            "speaks no TLS",
            "`redis` and not `rediss`",
        ),
        (plain, without, "speaks TLS", "`rediss` and not `redis`"),
    ] {
        let error = refused(builder, &url).await;
        let text = error.to_string();
        assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
        assert!(text.contains(is) && text.contains(write), "{text}");
    }
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn mutual_tls_is_for_all_nodes() {
    let authority = Authority::new();
    let builder = RedisCluster::builder().replicas(false);
    let cluster = builder.mutual_tls(&authority).start().await;
    // Of one node alone, so that the others are found.
    let url = format!("rediss+cluster://{}", cluster.node(0).tls_addr());
    let own = authority.client();
    let builder = trusting(&authority).tls_client_pem(own.cert, own.key);
    let client = builder.connect(&url).await.unwrap();
    works_on_all_nodes(&cluster, &client).await;

    only_own_certificates_are_taken(&authority, &url).await;
}

/// One of the nodes joined after the clients had connected.
#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn moved_slots_and_promoted_replicas_are_followed_with_tls_and_the_login_of_the_url() {
    let authority = Authority::new();
    let builder = RedisCluster::builder().tls(&authority);
    let builder = builder.arg("--cluster-node-timeout", "2500");
    let mut cluster = builder.start().await;
    let user = "follower";
    cluster.set_user(user, &RIGHTS).await;
    let url = url_of_node(&cluster, 1, user);
    let holder = trusting(&authority).connect(&url).await.unwrap();
    let waiter = trusting(&authority).connect(&url).await.unwrap();
    let key = cluster.key_at(0, "moved:").await;
    let slot = cluster.slot_of(&key).await;
    let guard = holder.lock(&key).acquire().await.unwrap();
    let joined = cluster.add_node().await;
    cluster.set_user(user, &RIGHTS).await;
    for to in [1, joined] {
        cluster.migrate(slot, to).await;
        is_held(&waiter, &key).await;
        assert!(connections(&cluster, to, user).await[0] > 0);
    }
    guard.release().await.unwrap();
    hands_over(&cluster, [&holder, &waiter], &key, user).await;

    let key = cluster.key_at(1, "promoted:").await;
    hands_over(&cluster, [&holder, &waiter], &key, user).await;
    let guard = holder.lock(&key).acquire().await.unwrap();
    let promoted = cluster.fail_over(1).await;
    is_held(&waiter, &key).await;
    guard.release().await.unwrap();
    hands_over(&cluster, [&waiter, &holder], &key, user).await;
    assert!(connections(&cluster, promoted, user).await[0] > 0);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn node_with_a_wrong_certificate_denies_its_own_keys_alone_until_it_is_renewed() {
    let authority = Authority::new();
    let builder = RedisCluster::builder().replicas(false).tls(&authority);
    // The other nodes do not trust that certificate either, so their connections have to stay.
    let builder = builder.arg("--cluster-node-timeout", "15000");
    let mut cluster = builder.start().await;
    let strange = Authority::new().server();
    cluster.node_mut(1).renew_certificate(&strange).await;
    let url = format!("rediss+cluster://{}", cluster.node(0).tls_addr());
    let client = trusting(&authority).connect(&url).await.unwrap();
    let [first, wrong, last] = [
        cluster.key_at(0, "own:").await,
        cluster.key_at(1, "own:").await,
        cluster.key_at(2, "own:").await,
    ];
    let address = cluster.node(1).tls_addr().to_string();
    let denied = async || {
        let tried = client.lock(&wrong).acquire().wait(Duration::ZERO).await;
        tried.is_err_and(|error| {
            let text = error.to_string();
            let has_reason = text.contains("UnknownIssuer") && text.contains(&address);
            matches!(error, Error::Denied { .. }) && has_reason
        })
    };
    eventually_eq(SOON, "denied with the reason", true, denied).await;
    // A caller with time left waits for a right certificate, and the other nodes serve meanwhile.
    let waiting = tokio::spawn(client.lock(&wrong).acquire().wait(2 * SOON).into_future());
    for key in [first, last] {
        lock_once(&client, &key).await;
    }
    let renewed = authority.peer();
    cluster.node_mut(1).renew_certificate(&renewed).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn nodes_that_announce_names_have_certificates_of_those_names() {
    let authority = Authority::new();
    let builder = RedisCluster::builder().replicas(false).tls(&authority);
    let builder = builder
        .arg("--cluster-node-timeout", "15000")
        .arg("--cluster-announce-hostname", "localhost")
        .arg("--cluster-preferred-endpoint-type", "hostname");
    let mut cluster = builder.start().await;
    let certificate = authority.server_named("localhost");
    for node in 0..3 {
        let node = cluster.node_mut(node);
        node.renew_certificate(&certificate).await;
    }
    let url = format!("rediss+cluster://{}", cluster.node(0).tls_addr());
    let error = refused(trusting(&authority), &url).await;
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let url = url.replace("127.0.0.1", "localhost");
    let client = trusting(&authority).connect(&url).await.unwrap();
    works_on_all_nodes(&cluster, &client).await;
}

/// A cluster of one node that speaks TLS with clients, and not with other nodes. Then servers before version 7.2 name the plain
/// port to clients with TLS as well.
#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn nodes_that_name_plain_ports_to_clients_with_tls_are_told_apart_from_a_wrong_url() {
    let authority = Authority::new();
    let builder = RedisServer::builder().tls(&authority.server());
    let builder = builder.arg("--cluster-enabled", "yes");
    let builder = builder.arg("--cluster-announce-ip", "127.0.0.1");
    let server = builder.start().await;
    server
        .cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    let serves = async || {
        let info: String = server.try_cli(&["CLUSTER", "INFO"]).await.unwrap();
        info.contains("cluster_state:ok")
    };
    eventually_eq(SOON, "the slots to be served", true, serves).await;
    let url = format!("rediss+cluster://{}", server.tls_addr());
    let acquired = async {
        let client = trusting(&authority).connect(&url).await?;
        client.lock("k").acquire().wait(SOON).await
    };
    match acquired.await {
        Ok(guard) => guard.release().await.unwrap(),
        // No node can be used, so `connect` says so.
        Err(error) => {
            let text = error.to_string();
            assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
            assert!(
                text.contains("`tls-cluster yes`") && text.contains(&server.addr().to_string()),
                "{text}"
            );
        }
    }
}
