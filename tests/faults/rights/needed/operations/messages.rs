//! Messages: subscribing, publishing, and what the connection for them needs.

use distlock_tests::log::lines_with;
use tokio::time::{Instant, sleep};

use super::Failed;
use super::locks::{read_release, release};
use super::numbers::{set_expirable_permits, set_permits};
use crate::rights::needed::Scene;
use crate::support::{SOON, ms};

pub(super) async fn listen(scene: &Scene<'_>) -> Result<(), Failed> {
    let (one, two) = (scene.client().await?, scene.client().await?);
    let _guard = one.lock(&scene.key).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(two.lock(&scene.key).acquire().into_future());
    let listens = scene.until("a waiter listens", async || scene.subscribers().await == 1);
    let listens = listens.await;
    waiter.abort();
    listens
}

/// A connection that receives nothing pings the server at intervals, and stays open.
pub(super) async fn listen_in_silence(scene: &Scene<'_>) -> Result<(), Failed> {
    let (one, two) = (scene.client().await?, scene.client().await?);
    let _guard = one.lock(&scene.key).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(two.lock(&scene.key).acquire().into_future());
    let asked = scene.until("a silent connection is kept", async || {
        let connections = scene.connections().await;
        let mut listening = connections.iter().filter(|line| line.subscribes());
        listening.any(|line| line.field("cmd") == "ping")
    });
    let asked = match asked.await {
        Ok(()) if scene.denied().await.is_empty() => Ok(()),
        _ => Err(Failed::Missing("a silent connection is kept")),
    };
    waiter.abort();
    asked
}

pub(super) async fn stop_listening(scene: &Scene<'_>) -> Result<(), Failed> {
    let (one, two) = (scene.client().await?, scene.client().await?);
    let _guard = one.lock(&scene.key).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(two.lock(&scene.key).acquire().into_future());
    scene
        .until("a waiter listens", async || scene.subscribers().await == 1)
        .await?;
    waiter.abort();
    let left = scene.until("nobody listens any more", async || {
        scene.subscribers().await == 0
    });
    left.await
}

pub(super) async fn warn_of_eviction(scene: &Scene<'_>) -> Result<(), Failed> {
    let address = scene.servers.nodes()[0].addr().to_string();
    let warned = || lines_with(&["WARN", &address, "maxmemory-policy"]);
    let before = warned();
    for setting in [
        ["CONFIG", "SET", "maxmemory", "50mb"],
        ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
    ] {
        scene.servers.each(&setting).await;
    }
    let client = scene.client().await?;
    let guard = client.lock(&scene.key).acquire().wait(SOON).await?;
    guard.release().await?;
    let told = scene.until("a warning", async || warned() > before).await;
    let unlimited = ["CONFIG", "SET", "maxmemory", "0"];
    scene.servers.each(&unlimited).await;
    told
}

pub(super) async fn name_of_driver(scene: &Scene<'_>) -> Result<(), Failed> {
    let _client = scene.client().await?;
    let named = scene.until("the server knows the driver", async || {
        let connections = scene.connections().await;
        connections
            .iter()
            .any(|line| !line.field("lib-name").is_empty())
    });
    named.await
}

/// Asks for the listeners as for the names.
pub(super) async fn count_listeners(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let report = client.inspect(&scene.key).await?;
    match report.listeners {
        Some(_) => Ok(()),
        None => {
            let [missing] = &report.missing_rights[..] else {
                panic!("one right: {report:?}");
            };
            assert!(missing.starts_with("+pubsub|"), "{missing}");
            Err(Failed::Missing("the listeners are counted"))
        }
    }
}

/// An operation succeeds although its message cannot be published: only the server's log of denied commands shows it.
pub(super) async fn told(scene: &Scene<'_>, done: Result<(), Failed>) -> Result<(), Failed> {
    done?;
    if scene.denied().await.is_empty() {
        Ok(())
    } else {
        Err(Failed::Missing("waiters are told"))
    }
}

pub(super) async fn tell(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, release(scene).await).await
}

pub(super) async fn tell_of_readers(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, read_release(scene).await).await
}

pub(super) async fn tell_of_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, set_permits(scene).await).await
}

pub(super) async fn tell_of_expirable_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, set_expirable_permits(scene).await).await
}

pub(super) async fn tell_of_latch(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, latch_opens(scene).await).await
}

pub(super) async fn latch_opens(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let latch = client.count_down_latch(&scene.key);
    latch.try_set_count(1).await?;
    latch.count_down().await?;
    Ok(())
}

/// The holder learns of a loss long before its next renewal.
pub(super) async fn hear_of_loss(scene: &Scene<'_>) -> Result<(), Failed> {
    let tracked_keys = async || {
        let mut keys = 0;
        for node in scene.servers.nodes() {
            let stats = node.info("stats").await;
            keys += stats["tracking_total_keys"].parse::<u64>().unwrap();
        }
        keys
    };
    let before = tracked_keys().await;
    let client = scene.client().await?;
    let guard = client.lock(&scene.key).acquire().wait(SOON).await?;
    let since = Instant::now();
    while tracked_keys().await == before {
        let denied = scene.servers.denied_to(&scene.user).await;
        let is_refused = ["client|tracking", "client|caching"].map(|right| denied.contains(right));
        if is_refused.contains(&true) || since.elapsed() > SOON {
            return Err(Failed::Missing("the server tracks the key"));
        }
        sleep(ms(20)).await;
    }
    let name = format!("shop:{}", scene.key);
    scene.servers.at_owner(&name, &["DEL", &name]).await;
    let told = scene.until("the loss is told", async || !guard.is_held());
    told.await
}
