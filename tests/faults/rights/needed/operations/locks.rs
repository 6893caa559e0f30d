//! Locks of each kind, and what is asked about them.

use distlock::test_util::{Kind, Verbs};
use futures_util::future::try_join_all;
use uuid::Uuid;

use super::Failed;
use crate::rights::needed::{Scene, Servers};
use crate::support::{SOON, ms};

pub(super) async fn acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    drop(client.lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

pub(super) async fn acquire_with_scripts_forgotten(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    scene.servers.each(&["SCRIPT", "FLUSH"]).await;
    drop(client.lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

/// On a node that has begun to give a slot away, a key that does not exist is asked for at the new owner.
pub(super) async fn acquire_in_moving_slot(scene: &Scene<'_>) -> Result<(), Failed> {
    let Servers::Cluster(cluster) = scene.servers else {
        panic!("slots are those of a cluster");
    };
    let client = scene.client().await?;
    let slot = cluster.slot_of(&format!("shop:{}", scene.key)).await;
    let owner = cluster.node_of(slot).await;
    let half = cluster.half_migrate(slot, (owner + 1) % 3).await;
    let acquired = client.lock(&scene.key).acquire().wait(ms(2_000)).await;
    cluster.finish(half).await;
    drop(acquired?);
    Ok(())
}

/// The second owner learns that the first one holds the lock.
pub(super) async fn acquire_held(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let verbs = Verbs::new(&client, Uuid::from_u128(7));
    verbs.attempt(&scene.key, 1, SOON).await?;
    verbs.attempt(&scene.key, 2, SOON).await?;
    Ok(())
}

pub(super) async fn release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let guard = client.lock(&scene.key).acquire().wait(SOON).await?;
    Ok(guard.release().await?)
}

pub(super) async fn holders(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.lock(&scene.key);
    let _guard = lock.acquire().wait(SOON).await?;
    lock.holders().await?;
    Ok(())
}

pub(super) async fn force_release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.lock(&scene.key);
    let _guard = lock.acquire().wait(SOON).await?;
    lock.force_release().await?;
    Ok(())
}

/// A key with everything that a look reads, as no single primitive has it.
pub(super) async fn inspect(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let name = format!("shop:{}", scene.key);
    let wrapped = if name.contains('{') {
        name.clone()
    } else {
        format!("{{{name}}}")
    };
    let (queue, timeouts) = (
        format!("redisson_lock_queue:{wrapped}"),
        format!("redisson_lock_timeout:{wrapped}"),
    );
    let (permits, owner) = (
        format!("{wrapped}:timeout"),
        format!("{}:1", Uuid::from_u128(7)),
    );
    for words in [
        ["HSET", &name, &owner, "1"],
        ["ZADD", &timeouts, "99999999999999", &owner],
        ["ZADD", &permits, "99999999999999", "0123456789abcdef"],
    ] {
        scene.servers.at_owner(&name, &words).await;
    }
    let queued = ["RPUSH", &queue, &owner];
    scene.servers.at_owner(&name, &queued).await;
    let report = client.inspect(&scene.key).await?;
    assert_eq!(
        (report.holder_total, report.waiter_total),
        (1, 1),
        "{report:?}"
    );
    Ok(())
}

pub(super) async fn scan(scene: &Scene<'_>) -> Result<(), Failed> {
    let mut scan = scene.client().await?.scan(&scene.key);
    while scan.next_page().await?.is_some() {}
    Ok(())
}

/// Without the right the report is there, and says which is missing.
pub(super) async fn name_clients(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let _guard = client.lock(&scene.key).acquire().wait(SOON).await?;
    let report = client.inspect(&scene.key).await?;
    match &report.holders[0].client {
        Some(_) => Ok(()),
        None => {
            assert_eq!(report.missing_rights, ["+client|list"]);
            Err(Failed::Missing("the holder has a name"))
        }
    }
}

pub(super) async fn fenced_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    drop(client.fenced_lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

pub(super) async fn fair_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    drop(client.fair_lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

pub(super) async fn fair_release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.non_reentrant_fair_lock(&scene.key);
    let guard = lock.acquire().wait(SOON).await?;
    Ok(guard.release().await?)
}

/// The second owner of a fair lock gets a place in the queue.
pub(super) async fn fair_wait(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    let waits = verbs.waiting(SOON);
    waits.attempt(&scene.key, 1, SOON).await?;
    waits.attempt(&scene.key, 2, SOON).await?;
    Ok(())
}

/// A waiter returns to the queue that another program has removed it from, and gets its place before the program's own.
pub(super) async fn fair_come_back(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let owners = Uuid::from_u128(7);
    let waits = Verbs::new(&client, owners)
        .of_kind(Kind::Fair)
        .waiting(SOON);
    waits.attempt(&scene.key, 1, SOON).await?;
    waits.attempt(&scene.key, 2, SOON).await?;
    let name = format!("{{shop:{}}}", scene.key);
    let queue = format!("redisson_lock_queue:{name}");
    let timeouts = format!("redisson_lock_timeout:{name}");
    let (ours, theirs) = (format!("{owners}:2"), "theirs");
    for words in [
        &["LREM", &queue, "0", &ours][..],
        &["ZREM", &timeouts, &ours],
        &["RPUSH", &queue, theirs],
        &["ZADD", &timeouts, "99999999999999", theirs],
    ] {
        scene.servers.at_owner(&queue, words).await;
    }
    waits.attempt(&scene.key, 2, SOON).await?;
    Ok(())
}

pub(super) async fn read_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).read();
    drop(lock.acquire().wait(SOON).await?);
    Ok(())
}

pub(super) async fn write_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).write();
    drop(lock.acquire().wait(SOON).await?);
    Ok(())
}

pub(super) async fn read_release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).read();
    let guard = lock.acquire().wait(SOON).await?;
    Ok(guard.release().await?)
}

/// A crowd of readers, of which not all are looked at when one leaves.
pub(super) async fn readers_leave(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).read();
    let readers = (0..12).map(|_| lock.acquire().wait(SOON).into_future());
    for reader in try_join_all(readers).await? {
        reader.release().await?;
    }
    Ok(())
}
