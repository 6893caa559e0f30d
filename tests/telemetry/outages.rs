//! What is shown of servers that are away, and of the releases that they do not answer.

use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::server::sentinel::SERVICE;
use distlock_tests::{Disturbed as _, RedisCluster, RedisServer, SentinelSet, eventually};

use crate::exported::{Exporter, SOON};
use crate::spans::{collect, has_said};

const CONNECTED: &str = "distlock_connected";
const PENDING: &str = "distlock_releases_pending";

/// Whether the log has told of an outage of this server.
fn is_told(server: &str) -> bool {
    let lost = "connection to the lock server lost; reconnecting";
    has_said(lost, "server", server)
}

/// One Sentinel is enough: only an outage of all is shown.
pub(super) async fn gauge_of_sentinels_shows_an_outage_of_all(exporter: &Exporter) {
    collect();
    let mut set = SentinelSet::start().await;
    let client = Client::connect(&set.url()).await.unwrap();
    let sentinels: Vec<String> = (0..3)
        .map(|at| format!("Sentinel {}", set.sentinel(at).addr()))
        .collect();
    let name = format!("Sentinels of `{}`", SERVICE);
    let gauge = [("server", name.as_str())];
    exporter.eventually(CONNECTED, &gauge, 1.0).await;
    for (at, sentinel) in sentinels.iter().enumerate().take(2) {
        set.sentinel_mut(at).kill();
        eventually(SOON, "the outage", async || is_told(sentinel)).await;
        assert_eq!(exporter.sum(CONNECTED, &gauge), 1.0);
    }
    client
        .lock("sentinels")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    set.sentinel_mut(2).kill();
    exporter.eventually(CONNECTED, &gauge, 0.0).await;
    set.sentinel_mut(0).restart().await;
    exporter.eventually(CONNECTED, &gauge, 1.0).await;
}

/// A client that is dropped in an outage leaves no outage behind.
pub(super) async fn client_that_is_dropped_in_an_outage_leaves_none_in_the_gauge(
    exporter: &Exporter,
) {
    let mut server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let address = server.addr().to_string();
    let gauge = [("server", address.as_str())];
    exporter.eventually(CONNECTED, &gauge, 1.0).await;
    server.kill();
    exporter.eventually(CONNECTED, &gauge, 0.0).await;
    drop(client);
    exporter.eventually(CONNECTED, &gauge, 1.0).await;
}

/// A release counts as pending once it was not answered, and not while it is under way as usual.
pub(super) async fn releases_are_pending_once_a_try_has_failed(exporter: &Exporter) {
    let faults = Faults::new();
    let client = Client::builder().faults(&faults);
    let client = client.in_memory(&MemoryServer::new()).unwrap();
    let before = exporter.sum(PENDING, &[]);
    faults.always(Op::Release, Fault::DelayReply(Duration::from_secs(1)));
    drop(client.lock("slow").acquire().await.unwrap());
    let is_sent = async || faults.hits(Op::Release) == 1;
    eventually(SOON, "the release is sent", is_sent).await;
    assert_eq!(exporter.sum(PENDING, &[]), before);
    let is_free = async || client.lock("slow").holders().await.unwrap().is_empty();
    eventually(SOON, "the key is free", is_free).await;

    faults.always(Op::Release, Fault::FailBefore);
    drop(client.lock("refused").acquire().await.unwrap());
    exporter.eventually(PENDING, &[], before + 1.0).await;
    faults.clear(Op::Release);
    exporter.eventually(PENDING, &[], before).await;
}

/// The gauge of a cluster that starts after its client: it shows the outage of any node, and no value for a node.
pub(super) async fn outages_of_nodes_are_shown_by_the_gauge_of_their_cluster(exporter: &Exporter) {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let url = cluster.url();
    let nodes = 0..cluster.size();
    let addresses: Vec<String> = nodes
        .clone()
        .map(|node| cluster.node(node).addr().to_string())
        .collect();
    let named = addresses.join(", ");
    let shows = async |value| {
        let here = [("server", named.as_str())];
        exporter.eventually(CONNECTED, &here, value).await;
    };
    let mut keys = Vec::new();
    for node in nodes.clone() {
        keys.push(cluster.key_at(node, "gauge:").await);
        cluster.node_mut(node).kill();
    }
    let client = Client::connect_lazy(&url).unwrap();
    shows(0.0).await;
    for node in nodes.clone() {
        cluster.node_mut(node).restart().await;
    }
    cluster.wait_until_stable().await;
    shows(1.0).await;
    // Those that were not used yet are connected to while they are away.
    for (node, key) in keys.iter().enumerate() {
        cluster.node_mut(node).kill();
        let held = client.lock(key).acquire().wait(4 * SOON).into_future();
        let held = tokio::spawn(held);
        shows(0.0).await;
        cluster.node_mut(node).restart().await;
        held.await.unwrap().unwrap().release().await.unwrap();
        shows(1.0).await;
    }
    // No node has a value of its own, which would stay when the node is gone.
    let page = exporter.page();
    for address in &addresses {
        let own = format!("server=\"{address}\"");
        assert!(!page.contains(&own), "{page}");
    }
    let here = [("server", named.as_str())];
    assert!(
        exporter.sum("distlock_reconnects_total", &here) >= 1.0,
        "{page}"
    );
}
