//! The metrics, read back from the page of a real exporter.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::{RedisCluster, RedisServer};
use distlock_tower::{LockLayer, ServiceLockLayer};
use http::request::Parts;
use http::{Request, Response};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tower::{Layer, ServiceExt, service_fn};

use crate::files::table;
use crate::{outages, parts};

/// Long enough for what happens within milliseconds, also on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// Only this test's clients have the class, so that other tests of the process do not count.
fn class(key: &str) -> &'static str {
    match key {
        "odd" => panic!("a class that fails"),
        _ => "tested",
    }
}

/// The sum of all series of this name that have all of these labels.
pub(crate) fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""));
    let labels: Vec<String> = labels.collect();
    let series = page.lines().filter(|line| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label))
    });
    let values = series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.sum()
}

pub(super) struct Exporter(PrometheusHandle);

impl Exporter {
    fn install() -> Self {
        Self(PrometheusBuilder::new().install_recorder().unwrap())
    }

    fn page(&self) -> String {
        self.0.render()
    }

    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        sum(&self.page(), name, labels)
    }

    pub(super) async fn eventually(&self, name: &str, labels: &[(&str, &str)], expected: f64) {
        let reached = async {
            while self.sum(name, labels) != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(SOON, reached).await.is_err() {
            panic!("{name} {labels:?} is not {expected}:\n{}", self.page());
        }
    }
}

/// The gauge of a cluster that starts after its client: it shows the outage of any node, and no value for a node.
async fn outages_of_nodes_are_shown_by_the_gauge_of_their_cluster(exporter: &Exporter) {
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
        exporter
            .eventually("distlock_connected", &here, value)
            .await;
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

/// What a worker does under a lock.
struct Job {
    key: &'static str,
    fails: bool,
}

/// Holds that the server has forgotten: their own releases find it, at once or in the background. A release that takes effect
/// after the answer to an earlier one was lost finds nothing.
async fn losses_are_found_by_releases(exporter: &Exporter) {
    let server = MemoryServer::new();
    let client = Client::builder().metrics_key_class(class);
    let client = client.in_memory(&server).unwrap();
    let gone = [
        ("kind", "non_reentrant_lock"),
        ("key_class", "tested"),
        ("reason", "gone"),
    ];
    let lost = async |times| {
        exporter
            .eventually("distlock_losses_total", &gone, times)
            .await;
    };
    let held = client
        .non_reentrant_lock("order:1")
        .acquire()
        .await
        .unwrap();
    server.forget_all();
    assert!(held.release().await.unwrap_err().is_lost());
    lost(1.0).await;
    let held = client
        .non_reentrant_lock("order:2")
        .acquire()
        .await
        .unwrap();
    server.forget_all();
    drop(held);
    lost(2.0).await;
    let held = client
        .non_reentrant_lock("order:3")
        .acquire()
        .await
        .unwrap();
    server.lose_next(1);
    held.release().await.unwrap();
    let held = client
        .non_reentrant_lock("order:4")
        .acquire()
        .await
        .unwrap();
    server.lose_next(1);
    drop(held);
    client
        .close(SOON)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(exporter.sum("distlock_losses_total", &gone), 2.0);
}

#[tokio::test]
async fn each_metric_of_the_table_is_exported_and_counts_what_happened() {
    // Before the exporter: what happens now is not counted, and later counts are not lost.
    let memory = MemoryServer::new();
    let early = Client::builder()
        .metrics_key_class(class)
        .in_memory(&memory)
        .unwrap();
    let before = early.spin_lock("before").acquire().await.unwrap();
    let exporter = Exporter::install();

    let mut server = RedisServer::start().await;
    let url = server.url();
    let connect = async || {
        let builder = Client::builder().metrics_key_class(class);
        let builder = builder.watchdog_timeout(Duration::from_secs(9));
        builder.connect(&url).await.unwrap()
    };
    let (client, other) = (connect().await, connect().await);
    let tested = ("key_class", "tested");
    let reentrant = [("kind", "lock"), tested];
    let outcome = |outcome| [("kind", "lock"), tested, ("outcome", outcome)];
    let name = "distlock_acquisitions_total";

    // A hold and a waiter.
    let lock = client.lock("order:42");
    let held = lock.acquire().await.unwrap();
    exporter.eventually("distlock_holds", &reentrant, 1.0).await;
    let waiting = tokio::spawn(lock.acquire().into_future());
    exporter
        .eventually("distlock_waiters", &reentrant, 1.0)
        .await;
    held.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    exporter
        .eventually("distlock_waiters", &reentrant, 0.0)
        .await;
    assert_eq!(exporter.sum(name, &outcome("granted")), 2.0);

    // Hand-overs, which a machine that is too busy may prevent.
    let handed_over = async {
        let (lock, labels) = (
            client.non_reentrant_lock("hot"),
            [("kind", "non_reentrant_lock"), tested],
        );
        while exporter.sum("distlock_hand_overs_total", &labels) < 1.0 {
            let held = lock.acquire().await.unwrap();
            let next = tokio::spawn(lock.acquire().into_future());
            tokio::task::yield_now().await;
            held.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
        }
    };
    tokio::time::timeout(SOON, handed_over).await.unwrap();

    // Acquisitions that end without a grant.
    assert!(
        other
            .lock("order:42")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let full = other.lock("order:42").acquire().max_waiters(0).await;
    assert!(full.unwrap_err().is_overloaded());
    let cancelled = other.lock("order:42").acquire().into_future();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), cancelled)
            .await
            .is_err()
    );
    for (ended, times) in [
        ("busy", 1.0),
        ("overloaded", 1.0),
        ("cancelled", 1.0),
        ("failed", 0.0),
    ] {
        assert_eq!(exporter.sum(name, &outcome(ended)), times, "{ended}");
    }
    let waits = exporter.sum("distlock_acquire_wait_seconds_count", &reentrant);
    assert_eq!(waits, 5.0);

    // A renewal, a loss, and the times of all guards.
    exporter
        .eventually("distlock_losses_total", &reentrant, 0.0)
        .await;
    let renewed = async {
        while exporter.sum("distlock_renewals_total", &[("outcome", "renewed")]) < 1.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, renewed).await.unwrap();
    client.lock("order:42").force_release().await.unwrap();
    held.lost().await;
    let gone = [("kind", "lock"), tested, ("reason", "gone")];
    exporter
        .eventually("distlock_losses_total", &gone, 1.0)
        .await;
    drop(held);
    exporter.eventually("distlock_holds", &reentrant, 0.0).await;
    losses_are_found_by_releases(&exporter).await;
    parts::count_what_becomes_of_their_locks(&exporter).await;
    exporter
        .eventually("distlock_hold_seconds_count", &reentrant, 2.0)
        .await;

    // An outage: a release that is pending, and a connection that comes back.
    let address = server.addr().to_string();
    let here = [("server", address.as_str())];
    exporter.eventually("distlock_connected", &here, 1.0).await;
    let dropped = client.lock("order:43").acquire().await.unwrap();
    let pending = exporter.sum("distlock_releases_pending", &[]);
    server.kill();
    drop(dropped);
    exporter.eventually("distlock_connected", &here, 0.0).await;
    exporter
        .eventually("distlock_releases_pending", &[], pending + 1.0)
        .await;
    server.restart().await;
    exporter.eventually("distlock_connected", &here, 1.0).await;
    exporter
        .eventually("distlock_releases_pending", &[], pending)
        .await;
    assert!(exporter.sum("distlock_reconnects_total", &here) >= 1.0);
    outages_of_nodes_are_shown_by_the_gauge_of_their_cluster(&exporter).await;
    outages::gauge_of_sentinels_shows_an_outage_of_all(&exporter).await;
    outages::client_that_is_dropped_in_an_outage_leaves_none_in_the_gauge(&exporter).await;
    outages::releases_are_pending_once_a_try_has_failed(&exporter).await;

    // The layer.
    let _taken = early.lock("order:44").acquire().await.unwrap();
    let layer = LockLayer::new(early.clone()).key(|_: &Parts| "order:44");
    let handler = service_fn(
        async |_: Request<()>| -> Result<Response<String>, Infallible> {
            unreachable!("it is locked")
        },
    );
    let service = layer.wait(Duration::ZERO).layer(handler);
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap().status(),
        409
    );
    exporter
        .eventually("distlock_tower_answers_total", &[("reason", "busy")], 1.0)
        .await;

    let layer = ServiceLockLayer::new(early.clone(), |job: &Job| job.key.to_owned());
    let service = layer
        .wait(Duration::ZERO)
        .max_pending_requests(1)
        .layer(service_fn(async |job: Job| {
            if job.fails {
                Err("a failure of its own")
            } else {
                Ok(())
            }
        }));
    let run = async |key, fails| {
        let service = service.clone();
        service.oneshot(Job { key, fails }).await
    };
    assert!(run("order:44", false).await.is_err());
    run("order:45", false).await.unwrap();
    assert!(run("order:45", true).await.is_err());
    assert!(run("", false).await.is_err());
    for (reason, times) in [("busy", 2.0), ("key", 1.0), ("lost", 0.0)] {
        exporter
            .eventually("distlock_tower_answers_total", &[("reason", reason)], times)
            .await;
    }
    let answers = exporter.sum("distlock_tower_answers_total", &[]);
    assert_eq!(answers, 3.0, "errors of the service itself are not counted");

    // What was granted before the exporter does not make a gauge negative. A class that fails is none.
    drop(before);
    let spin = [("kind", "spin_lock"), tested];
    drop(early.spin_lock("after").acquire().await.unwrap());
    exporter
        .eventually("distlock_hold_seconds_count", &spin, 1.0)
        .await;
    exporter.eventually("distlock_holds", &spin, 0.0).await;
    drop(early.fenced_lock("odd").acquire().await.unwrap());
    let odd = exporter.page();
    let odd = odd
        .lines()
        .find(|line| line.contains("\"fenced_lock\"") && line.contains("granted"));
    assert!(
        odd.is_some_and(|line| !line.contains("key_class")),
        "{odd:?}"
    );
    assert!(!exporter.page().contains("order:4"), "keys are no labels");

    // Nothing is missing in the table, and nothing but what it names is exported.
    let page = exporter.page();
    let types = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE distlock_"));
    let exported: BTreeSet<String> = types
        .map(|line| format!("distlock_{}", line.split(' ').next().unwrap()))
        .collect();
    assert_eq!(exported, table());
}
