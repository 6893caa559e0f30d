//! What is shown of servers that are away, and of the releases that they do not answer.

use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::server::sentinel::SERVICE;
use distlock_tests::{Disturbed as _, RedisServer, SentinelSet, eventually};

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
