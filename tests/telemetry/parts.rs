//! What the holds of a multi-lock and of a Redlock count: a multi-lock counts each of its keys, and a Redlock counts once, however many
//! servers have it.

use std::time::Duration;

use distlock::{Client, MemoryServer, Quorum, RedLock};
use distlock_tests::eventually;
use tracing::Level;

use crate::exported::{Exporter, SOON};
use crate::spans::{collect, seen};

/// Only the clients of this file have the class.
fn class(_: &str) -> &'static str {
    "parts"
}

const CLASS: (&str, &str) = ("key_class", "parts");

/// Only this file uses the key.
const RED: &str = "red:1";

/// The holds, the times and the losses of this kind, as exported.
fn counts(exporter: &Exporter, kind: &str) -> [f64; 3] {
    let labels = [("kind", kind), CLASS];
    [
        "distlock_holds",
        "distlock_hold_seconds_count",
        "distlock_losses_total",
    ]
    .map(|name| exporter.sum(name, &labels))
}

fn client(server: &MemoryServer) -> Client {
    let builder = Client::builder().metrics_key_class(class);
    let builder = builder.watchdog_timeout(Duration::from_secs(3));
    builder.in_memory(server).unwrap()
}

/// Messages at the level of warnings.
fn warnings() -> Vec<String> {
    let seen = seen(RED).into_iter();
    let warnings = seen.filter(|one| one.level == Level::WARN);
    warnings.map(|one| one.name).collect()
}

struct FiveServers {
    servers: Vec<MemoryServer>,
    clients: Vec<Client>,
    lock: RedLock,
}

impl FiveServers {
    fn new() -> Self {
        let servers: Vec<_> = (0..5).map(|_| MemoryServer::new()).collect();
        let clients: Vec<_> = servers.iter().map(client).collect();
        Self {
            lock: Quorum::new(clients.clone()).lock(RED),
            servers,
            clients,
        }
    }

    fn forget(&self, number: usize) {
        self.servers[..number]
            .iter()
            .for_each(MemoryServer::forget_all);
    }

    async fn close(&self) {
        for client in &self.clients {
            let closed = client.close(SOON).await;
            closed.unwrap_or_else(|error| panic!("{error}"));
        }
    }

    fn losses(&self) -> usize {
        let losses = self.clients.iter().map(|one| one.snapshot().losses.len());
        losses.sum()
    }
}

pub(super) async fn count_what_becomes_of_their_locks(exporter: &Exporter) {
    collect();
    redlock_survives_the_loss_of_a_minority(exporter).await;
    redlock_is_lost_once(exporter).await;
    multi_lock_counts_each_key(exporter).await;
    for kind in ["lock", "fenced_lock"] {
        assert_eq!(counts(exporter, kind), [0.0; 3], "{kind}");
    }
}

async fn redlock_survives_the_loss_of_a_minority(exporter: &Exporter) {
    let five = FiveServers::new();
    let guard = five.lock.acquire().await.unwrap();
    assert_eq!(counts(exporter, "red_lock"), [1.0, 0.0, 0.0]);
    five.forget(2);
    let is_back = async || five.lock.holders().await.unwrap().len() == 5;
    eventually(SOON, "the hold is back", is_back).await;
    assert!(guard.is_held());
    // Not noticed before the release, which the other three confirm.
    five.forget(2);
    guard.release().await.unwrap();
    five.close().await;
    assert_eq!(counts(exporter, "red_lock"), [0.0, 1.0, 0.0]);
    assert_eq!((five.losses(), warnings()), (0, vec![]));
}

/// A majority is lost: a release finds it, one in the background does, and the watchdogs do.
async fn redlock_is_lost_once(exporter: &Exporter) {
    let five = FiveServers::new();
    let guard = five.lock.acquire().await.unwrap();
    five.forget(4);
    assert!(guard.release().await.unwrap_err().is_lost());
    let losses = [("kind", "red_lock"), CLASS, ("reason", "gone")];
    let lost = async |times| {
        exporter
            .eventually("distlock_losses_total", &losses, times)
            .await;
    };
    lost(1.0).await;

    let guard = five.lock.acquire().await.unwrap();
    five.forget(4);
    drop(guard);
    lost(2.0).await;

    let guard = five.lock.acquire().await.unwrap();
    five.forget(4);
    guard.lost().await;
    lost(3.0).await;
    drop(guard);
    five.close().await;
    assert_eq!(counts(exporter, "red_lock"), [0.0, 4.0, 3.0]);
    assert_eq!((five.losses(), warnings().len()), (3, 3));
}

async fn multi_lock_counts_each_key(exporter: &Exporter) {
    let server = MemoryServer::new();
    let client = client(&server);
    let both = client.multi_lock(["order:1", "order:2"]);
    let guard = both.acquire().await.unwrap();
    assert_eq!(counts(exporter, "multi_lock"), [2.0, 0.0, 0.0]);
    server.forget_all();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert_eq!(counts(exporter, "multi_lock"), [0.0, 2.0, 2.0]);

    let other = Client::builder().in_memory(&server).unwrap();
    let _held = other.lock("order:1").acquire().await.unwrap();
    let waiting = tokio::spawn(both.acquire().into_future());
    let waiters = [("kind", "multi_lock"), CLASS];
    exporter.eventually("distlock_waiters", &waiters, 1.0).await;
    waiting.abort();
    exporter.eventually("distlock_waiters", &waiters, 0.0).await;
}
