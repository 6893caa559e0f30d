//! The metrics, read back from the page of a real exporter.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use distlock::{Client, Guard, MemoryServer};
use distlock_tests::RedisServer;
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

    pub(super) fn page(&self) -> String {
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

const TESTED: (&str, &str) = ("key_class", "tested");

const REENTRANT: [(&str, &str); 2] = [("kind", "lock"), TESTED];

const ACQUISITIONS: &str = "distlock_acquisitions_total";

fn outcome(outcome: &str) -> [(&str, &str); 3] {
    [("kind", "lock"), TESTED, ("outcome", outcome)]
}

/// The one exporter of this process, and what it counts.
struct Exported {
    exporter: Exporter,
    server: RedisServer,
    client: Client,
    other: Client,
    /// It is older than the exporter.
    early: Client,
}

impl Exported {
    /// With a guard that was granted before the exporter was there.
    async fn start() -> (Self, Guard) {
        let early = Client::builder()
            .metrics_key_class(class)
            .in_memory(&MemoryServer::new())
            .unwrap();
        let before = early.spin_lock("before").acquire().await.unwrap();
        let exporter = Exporter::install();
        let server = RedisServer::start().await;
        let url = server.url();
        let connect = async || {
            let builder = Client::builder().metrics_key_class(class);
            let builder = builder.watchdog_timeout(Duration::from_secs(9));
            builder.connect(&url).await.unwrap()
        };
        let (client, other) = (connect().await, connect().await);
        let exported = Self {
            exporter,
            server,
            client,
            other,
            early,
        };
        (exported, before)
    }

    /// The hold that is returned was granted to the waiter.
    async fn a_hold_and_a_waiter_are_counted(&self) -> Guard {
        let Self {
            exporter, client, ..
        } = self;
        let lock = client.lock("order:42");
        let held = lock.acquire().await.unwrap();
        exporter.eventually("distlock_holds", &REENTRANT, 1.0).await;
        let waiting = tokio::spawn(lock.acquire().into_future());
        exporter
            .eventually("distlock_waiters", &REENTRANT, 1.0)
            .await;
        held.release().await.unwrap();
        let held = waiting.await.unwrap().unwrap();
        exporter
            .eventually("distlock_waiters", &REENTRANT, 0.0)
            .await;
        assert_eq!(exporter.sum(ACQUISITIONS, &outcome("granted")), 2.0);
        held
    }

    /// A machine that is too busy may prevent some of them.
    async fn hand_overs_are_counted(&self) {
        let Self {
            exporter, client, ..
        } = self;
        let handed_over = async {
            let (lock, labels) = (
                client.non_reentrant_lock("hot"),
                [("kind", "non_reentrant_lock"), TESTED],
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
    }

    /// While `order:42` is held.
    async fn acquisitions_without_a_grant_are_counted(&self) {
        let Self {
            exporter, other, ..
        } = self;
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
            assert_eq!(
                exporter.sum(ACQUISITIONS, &outcome(ended)),
                times,
                "{ended}"
            );
        }
        let waits = exporter.sum("distlock_acquire_wait_seconds_count", &REENTRANT);
        assert_eq!(waits, 5.0);
    }

    /// And the times of all guards.
    async fn renewals_and_losses_are_counted(&self, held: Guard) {
        let Self {
            exporter, client, ..
        } = self;
        exporter
            .eventually("distlock_losses_total", &REENTRANT, 0.0)
            .await;
        let renewed = async {
            while exporter.sum("distlock_renewals_total", &[("outcome", "renewed")]) < 1.0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, renewed).await.unwrap();
        client.lock("order:42").force_release().await.unwrap();
        held.lost().await;
        let gone = [("kind", "lock"), TESTED, ("reason", "gone")];
        exporter
            .eventually("distlock_losses_total", &gone, 1.0)
            .await;
        drop(held);
        exporter.eventually("distlock_holds", &REENTRANT, 0.0).await;
        losses_are_found_by_releases(exporter).await;
        parts::count_what_becomes_of_their_locks(exporter).await;
        exporter
            .eventually("distlock_hold_seconds_count", &REENTRANT, 2.0)
            .await;
    }

    /// A release that is pending, and a connection that comes back.
    async fn outage_and_pending_release_are_shown(&mut self) {
        let Self {
            exporter,
            server,
            client,
            ..
        } = self;
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
        outages::outages_of_nodes_are_shown_by_the_gauge_of_their_cluster(exporter).await;
        outages::gauge_of_sentinels_shows_an_outage_of_all(exporter).await;
        outages::client_that_is_dropped_in_an_outage_leaves_none_in_the_gauge(exporter).await;
        outages::releases_are_pending_once_a_try_has_failed(exporter).await;
    }

    /// Those of the layer for HTTP, and of the one for any service.
    async fn answers_of_the_layers_are_counted(&self) {
        let Self {
            exporter, early, ..
        } = self;
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
    }

    /// It does not make a gauge negative. A class that fails is none.
    async fn what_was_granted_before_the_exporter_counts_nothing(&self, before: Guard) {
        let Self {
            exporter, early, ..
        } = self;
        drop(before);
        let spin = [("kind", "spin_lock"), TESTED];
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
    }

    /// And nothing is missing in the table.
    fn nothing_else_is_exported(&self) {
        let page = self.exporter.page();
        let types = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE distlock_"));
        let exported: BTreeSet<String> = types
            .map(|line| format!("distlock_{}", line.split(' ').next().unwrap()))
            .collect();
        assert_eq!(exported, table());
    }
}

#[tokio::test]
async fn each_metric_of_the_table_is_exported_and_counts_what_happened() {
    let (mut exported, before) = Exported::start().await;
    let held = exported.a_hold_and_a_waiter_are_counted().await;
    exported.hand_overs_are_counted().await;
    exported.acquisitions_without_a_grant_are_counted().await;
    exported.renewals_and_losses_are_counted(held).await;
    exported.outage_and_pending_release_are_shown().await;
    exported.answers_of_the_layers_are_counted().await;
    exported
        .what_was_granted_before_the_exporter_counts_nothing(before)
        .await;
    exported.nothing_else_is_exported();
}
