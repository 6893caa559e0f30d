//! Everything that each primitive does, by a user of the server that may be refused any of it.

use std::time::Duration;

use distlock::test_util::{Kind, Verbs};
use distlock::{Client, Error, Quorum};
use distlock_tests::RedisServer;
use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use tokio::time::sleep;
use uuid::Uuid;

use crate::foreign::Foreign;
use crate::support::{SOON, idle, ms};

/// What a primitive, or several that are alike to a server, does in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Locks,
    Fenced,
    Fair,
    ReadWrite,
    Numbers,
    Permits,
}

/// All of them.
pub(crate) const LIVES: [Life; 6] = [
    Life::Locks,
    Life::Fenced,
    Life::Fair,
    Life::ReadWrite,
    Life::Numbers,
    Life::Permits,
];

/// A server, a user of it, and another program that may do anything.
pub(crate) struct Stage<'a> {
    pub(crate) server: &'a RedisServer,
    pub(crate) other: &'a Mutex<Foreign>,
    pub(crate) user: &'a str,
    pub(crate) prefix: &'a str,
}

impl Stage<'_> {
    async fn client(&self) -> Result<Client, Error> {
        Client::builder()
            .key_prefix(self.prefix)
            .watchdog_timeout(ms(1_500))
            .connect(&format!(
                "redis://{}:SECRET@{}",
                self.user,
                self.server.addr()
            ))
            .await
    }

    pub(crate) async fn play(&self, life: Life, key: &str) -> Result<(), Error> {
        let (one, two) = (self.client().await?, self.client().await?);
        match life {
            Life::Locks => locks(&one, &two, key).await?,
            Life::Fenced => fenced(&one, &two, key).await?,
            Life::Fair => self.fair(&one, &two, key).await?,
            Life::ReadWrite => read_write(&one, &two, key).await?,
            Life::Numbers => numbers(&one, &two, key).await?,
            Life::Permits => permits(&one, &two, key).await?,
        }
        for client in [&one, &two] {
            idle(client).await;
        }
        Ok(())
    }

    /// Also beside a waiter of Redisson's, behind which ours was dropped from the queue.
    async fn fair(&self, one: &Client, two: &Client, key: &str) -> Result<(), Error> {
        let lock = one.fair_lock(key);
        let guard = lock.acquire().wait(SOON).await?;
        let again = guard.reenter()?;
        let waiter = tokio::spawn(two.fair_lock(key).acquire().wait(SOON).into_future());
        sleep(RENEWED).await;
        lock.holders().await?;
        again.release().await?;
        guard.release().await?;
        drop(waiter.await.expect("no panic")?);
        lock.force_release().await?;
        let alone = one.non_reentrant_fair_lock(format!("{key}:alone"));
        alone.acquire().wait(SOON).await?.release().await?;

        let queued = format!("{key}:queued");
        let name = format!("{}{queued}", self.prefix);
        let name = if name.contains('{') {
            name
        } else {
            format!("{{{name}}}")
        };
        let (queue, timeouts) = (
            format!("redisson_lock_queue:{name}"),
            format!("redisson_lock_timeout:{name}"),
        );
        let verbs = Verbs::new(one, Uuid::from_u128(7)).of_kind(Kind::Fair);
        let waits = verbs.waiting(SOON);
        waits.attempt(&queued, 1, SOON).await?;
        waits.attempt(&queued, 2, SOON).await?;
        let ours = format!("{}:2", Uuid::from_u128(7));
        let mut other = self.other.lock().await;
        for words in [
            ["LREM", &queue, "0", &ours],
            ["ZREM", &timeouts, &ours, ""],
            ["RPUSH", &queue, "theirs", "theirs"],
            ["ZADD", &timeouts, "99999999999999", "theirs"],
        ] {
            other.send(&words).await;
        }
        drop(other);
        waits.attempt(&queued, 2, SOON).await?;
        for owner in [1, 2] {
            verbs.withdraw(&queued, owner).await?;
        }
        Ok(())
    }
}

/// Longer than a third of the lease.
const RENEWED: Duration = ms(800);

async fn locks(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let locks = |client: &Client| client.lock(key);
    let guard = locks(one).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(locks(two).acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    guard.release().await?;
    waiter.await.expect("no panic")?.release().await?;
    let guard = one.non_reentrant_lock(key).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(two.spin_lock(key).acquire().wait(SOON).into_future());
    sleep(ms(50)).await;
    guard.release().await?;
    waiter.await.expect("no panic")?.release().await?;
    let keys = [format!("{key}:1"), format!("{key}:2")];
    let many = one.multi_lock(keys);
    let guard = many.acquire().wait(SOON).await?;
    many.holders().await?;
    guard.release().await?;
    many.force_release().await?;
    let quorum = Quorum::new([one.clone()]).lock(key);
    quorum.acquire().wait(SOON).await?.release().await
}

async fn fenced(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let lock = one.fenced_lock(key);
    let guard = lock.acquire().wait(SOON).await?;
    let again = guard.reenter()?;
    let waiter = tokio::spawn(two.fenced_lock(key).acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    again.release().await?;
    guard.release().await?;
    let guard = waiter.await.expect("no panic")?;
    lock.force_release().await?;
    drop(guard);
    Ok(())
}

async fn read_write(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let lock = one.rw_lock(key);
    let reader = lock.read().acquire().wait(SOON).await?;
    let again = reader.reenter()?;
    let writer = two.rw_lock(key).write();
    let waiter = tokio::spawn(writer.acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    let late = tokio::spawn(lock.read().acquire().wait(SOON).into_future());
    lock.read().holders().await?;
    again.release().await?;
    reader.release().await?;
    let writer = waiter.await.expect("no panic")?;
    let inside = two.rw_lock(key);
    let inside = async { inside.read().acquire().wait(SOON).await?.release().await };
    writer.scope(inside).await??;
    sleep(RENEWED).await;
    writer.release().await?;
    late.await.expect("no panic")?.release().await?;
    lock.is_locked().await?;
    // A crowd, of which not all are looked at when one leaves.
    let crowd = (0..10).map(|_| lock.read().acquire().wait(SOON).into_future());
    for reader in try_join_all(crowd).await? {
        reader.release().await?;
    }
    let writer = lock.write().acquire().wait(SOON).await?;
    lock.force_release().await?;
    drop(writer);
    Ok(())
}

async fn numbers(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let pool = one.semaphore(format!("{key}:pool"));
    pool.try_set_permits(2).await?;
    let permits = pool.acquire_many(2).wait(SOON).await?;
    let waiter = two.semaphore(format!("{key}:pool"));
    let waiter = tokio::spawn(waiter.acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    permits.release().await?;
    waiter.await.expect("no panic")?.release().await?;
    pool.add_permits(1).await?;
    pool.available_permits().await?;
    pool.drain_permits().await?;
    pool.delete().await?;
    let latch = one.count_down_latch(format!("{key}:latch"));
    latch.try_set_count(1).await?;
    let waiter = two.count_down_latch(format!("{key}:latch"));
    let waiter = tokio::spawn(waiter.wait().timeout(SOON).into_future());
    sleep(ms(200)).await;
    latch.count().await?;
    latch.count_down().await?;
    waiter.await.expect("no panic")?;
    latch.try_set_count(1).await?;
    latch.delete().await?;
    Ok(())
}

async fn permits(one: &Client, two: &Client, key: &str) -> Result<(), Error> {
    let seats = one.expirable_semaphore(key);
    seats.try_set_permits(2).await?;
    let permits = seats.acquire_many(2).wait(SOON).await?;
    let waiter = two.expirable_semaphore(key);
    let waiter = tokio::spawn(waiter.acquire().wait(SOON).into_future());
    sleep(RENEWED).await;
    permits.release().await?;
    let permit = waiter.await.expect("no panic")?.into_id()?;
    seats.update_lease(permit, SOON).await?;
    seats.remaining_lease(permit).await?;
    seats.available_permits().await?;
    seats.acquired_permits().await?;
    seats.release(permit).await?;
    seats.set_permits(3).await?;
    seats.add_permits(1).await?;
    seats.delete().await?;
    Ok(())
}
