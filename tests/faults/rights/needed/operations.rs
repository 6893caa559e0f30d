//! What a user does that may lack a right. Each operation fails where the right is missing that it is listed with.

use std::fmt;
use std::pin::Pin;

use distlock::test_util::{Kind, Verbs};
use distlock::{Client, Error};
use distlock_tests::server::ClientLine;
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Scene, Servers};
use crate::log::lines_with;
use crate::support::{SOON, ms};

type Played<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;

/// An operation and its name.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    play: for<'a> fn(&'a Scene<'a>) -> Played<'a>,
}

impl Operation {
    pub(super) async fn play(&self, scene: &Scene<'_>) -> Result<(), Failed> {
        (self.play)(scene).await
    }
}

/// Why an operation failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// It returned an error.
    Error(Error),
    /// What it promises has not happened when the server denied a command.
    Missing(&'static str),
}

impl Failed {
    /// Whether the caller is told that a right is missing, if he is told anything.
    pub(super) fn is_told_as_denial(&self) -> bool {
        match self {
            Self::Error(error) => {
                matches!(error, Error::Denied { .. } | Error::LoginDenied { .. })
            }
            Self::Missing(_) => true,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Missing(what) => write!(f, "not so: {what}"),
        }
    }
}

/// A constant for each of these functions.
macro_rules! operations {
    ($($name:ident = $function:ident;)*) => {
        $(pub(super) const $name: Operation = Operation {
            name: stringify!($function),
            play: |scene| Box::pin($function(scene)),
        };)*
    };
}

operations! {
    ACQUIRE = acquire;
    ACQUIRE_WITH_SCRIPTS_FORGOTTEN = acquire_with_scripts_forgotten;
    ACQUIRE_IN_MOVING_SLOT = acquire_in_moving_slot;
    ACQUIRE_HELD = acquire_held;
    RELEASE = release;
    HOLDERS = holders;
    FORCE_RELEASE = force_release;
    LISTEN = listen;
    LISTEN_IN_SILENCE = listen_in_silence;
    STOP_LISTENING = stop_listening;
    WARN_OF_EVICTION = warn_of_eviction;
    NAME_OF_DRIVER = name_of_driver;
    INSPECT = inspect;
    SCAN = scan;
    NAME_CLIENTS = name_clients;
    COUNT_LISTENERS = count_listeners;
    FENCED_ACQUIRE = fenced_acquire;
    FAIR_ACQUIRE = fair_acquire;
    FAIR_RELEASE = fair_release;
    FAIR_WAIT = fair_wait;
    FAIR_COME_BACK = fair_come_back;
    READ_ACQUIRE = read_acquire;
    WRITE_ACQUIRE = write_acquire;
    READERS_LEAVE = readers_leave;
    SET_PERMITS = set_permits;
    ACQUIRE_PERMIT = acquire_permit;
    TELL = tell;
    TELL_OF_READERS = tell_of_readers;
    TELL_OF_PERMITS = tell_of_permits;
    TELL_OF_EXPIRABLE_PERMITS = tell_of_expirable_permits;
    TELL_OF_LATCH = tell_of_latch;
    SET_EXPIRABLE_PERMITS = set_expirable_permits;
    ACQUIRE_EXPIRABLE_PERMIT = acquire_expirable_permit;
    COUNT_EXPIRABLE_PERMITS = count_expirable_permits;
}

impl Scene<'_> {
    async fn client(&self) -> Result<Client, Error> {
        let builder = Client::builder().key_prefix("shop:");
        let builder = builder.credentials(&self.user, distlock_tests::rights::PASSWORD);
        builder.connect(&self.servers.url()).await
    }

    /// The name of the lock's channel.
    fn channel(&self) -> String {
        if self.key.contains('{') {
            format!("redisson_lock__channel:shop:{}", self.key)
        } else {
            format!("redisson_lock__channel:{{shop:{}}}", self.key)
        }
    }

    /// Waits for a fact. Fails if the fact does not hold when the servers have denied the user something.
    async fn until(
        &self,
        what: &'static str,
        mut fact: impl AsyncFnMut() -> bool,
    ) -> Result<(), Failed> {
        let deadline = Instant::now() + 2 * SOON;
        loop {
            let denied = self.denied().await;
            if fact().await {
                return Ok(());
            }
            if !denied.is_empty() {
                return Err(Failed::Missing(what));
            }
            assert!(Instant::now() < deadline, "{}: {what}", self.user);
            sleep(ms(10)).await;
        }
    }

    /// How many subscribers the channel of the lock has.
    async fn subscribers(&self) -> u64 {
        let (channel, mut all) = (self.channel(), 0);
        for node in self.servers.nodes() {
            for question in ["NUMSUB", "SHARDNUMSUB"] {
                let words = ["PUBSUB", question, &channel];
                // Servers before version 7 do not know the second.
                let answer: redis::RedisResult<(String, u64)> = node.try_cli(&words).await;
                all += answer.map_or(0, |(_, subscribers)| subscribers);
            }
        }
        all
    }

    /// The connections of the user.
    async fn connections(&self) -> Vec<ClientLine> {
        let mut all = Vec::new();
        for node in self.servers.nodes() {
            all.extend(node.client_list().await);
        }
        all.retain(|line| line.field("user") == self.user);
        all
    }
}

async fn acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    drop(client.lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

async fn acquire_with_scripts_forgotten(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    scene.servers.each(&["SCRIPT", "FLUSH"]).await;
    drop(client.lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

/// On a node that has begun to give a slot away, a key that does not exist is asked for at the new owner.
async fn acquire_in_moving_slot(scene: &Scene<'_>) -> Result<(), Failed> {
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

/// The second owner is told that the first one holds the lock.
async fn acquire_held(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let verbs = Verbs::new(&client, Uuid::from_u128(7));
    verbs.attempt(&scene.key, 1, SOON).await?;
    verbs.attempt(&scene.key, 2, SOON).await?;
    Ok(())
}

async fn release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let guard = client.lock(&scene.key).acquire().wait(SOON).await?;
    Ok(guard.release().await?)
}

async fn holders(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.lock(&scene.key);
    let _guard = lock.acquire().wait(SOON).await?;
    lock.holders().await?;
    Ok(())
}

async fn force_release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.lock(&scene.key);
    let _guard = lock.acquire().wait(SOON).await?;
    lock.force_release().await?;
    Ok(())
}

async fn listen(scene: &Scene<'_>) -> Result<(), Failed> {
    let (one, two) = (scene.client().await?, scene.client().await?);
    let _guard = one.lock(&scene.key).acquire().wait(SOON).await?;
    let waiter = tokio::spawn(two.lock(&scene.key).acquire().into_future());
    let listens = scene.until("a waiter listens", async || scene.subscribers().await == 1);
    let listens = listens.await;
    waiter.abort();
    listens
}

/// A connection that hears nothing asks the server now and then whether it is alive, and is kept.
async fn listen_in_silence(scene: &Scene<'_>) -> Result<(), Failed> {
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

async fn stop_listening(scene: &Scene<'_>) -> Result<(), Failed> {
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

async fn warn_of_eviction(scene: &Scene<'_>) -> Result<(), Failed> {
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

async fn name_of_driver(scene: &Scene<'_>) -> Result<(), Failed> {
    let _client = scene.client().await?;
    let named = scene.until("the server knows the driver", async || {
        let connections = scene.connections().await;
        connections
            .iter()
            .any(|line| !line.field("lib-name").is_empty())
    });
    named.await
}

/// A key with everything that a look reads, as no single primitive has it.
async fn inspect(scene: &Scene<'_>) -> Result<(), Failed> {
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

async fn scan(scene: &Scene<'_>) -> Result<(), Failed> {
    let mut scan = scene.client().await?.scan(&scene.key);
    while scan.next_page().await?.is_some() {}
    Ok(())
}

/// Without the right the report is there, and says which is missing.
async fn name_clients(scene: &Scene<'_>) -> Result<(), Failed> {
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

/// As for the names.
async fn count_listeners(scene: &Scene<'_>) -> Result<(), Failed> {
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

async fn fenced_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    drop(client.fenced_lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

async fn fair_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    drop(client.fair_lock(&scene.key).acquire().wait(SOON).await?);
    Ok(())
}

async fn fair_release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.non_reentrant_fair_lock(&scene.key);
    let guard = lock.acquire().wait(SOON).await?;
    Ok(guard.release().await?)
}

/// The second owner of a fair lock gets a place in the queue.
async fn fair_wait(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    let waits = verbs.waiting(SOON);
    waits.attempt(&scene.key, 1, SOON).await?;
    waits.attempt(&scene.key, 2, SOON).await?;
    Ok(())
}

/// A waiter returns to the queue that another program has removed it from, and gets its place before the program's own.
async fn fair_come_back(scene: &Scene<'_>) -> Result<(), Failed> {
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

async fn read_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).read();
    drop(lock.acquire().wait(SOON).await?);
    Ok(())
}

async fn write_acquire(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).write();
    drop(lock.acquire().wait(SOON).await?);
    Ok(())
}

async fn read_release(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).read();
    let guard = lock.acquire().wait(SOON).await?;
    Ok(guard.release().await?)
}

/// A crowd of readers, of which not all are looked at when one leaves.
async fn readers_leave(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let lock = client.rw_lock(&scene.key).read();
    let readers = (0..12).map(|_| lock.acquire().wait(SOON).into_future());
    for reader in try_join_all(readers).await? {
        reader.release().await?;
    }
    Ok(())
}

async fn set_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    client.semaphore(&scene.key).try_set_permits(2).await?;
    Ok(())
}

async fn acquire_permit(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.semaphore(&scene.key);
    semaphore.try_set_permits(2).await?;
    let permit = semaphore.acquire().wait(SOON).await?;
    Ok(permit.release().await?)
}

/// A message that cannot be published does not let what it tells of fail: the server alone has noticed it.
async fn told(scene: &Scene<'_>, done: Result<(), Failed>) -> Result<(), Failed> {
    done?;
    if scene.denied().await.is_empty() {
        Ok(())
    } else {
        Err(Failed::Missing("waiters are told"))
    }
}

async fn tell(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, release(scene).await).await
}

async fn tell_of_readers(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, read_release(scene).await).await
}

async fn tell_of_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, set_permits(scene).await).await
}

async fn tell_of_expirable_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, set_expirable_permits(scene).await).await
}

async fn tell_of_latch(scene: &Scene<'_>) -> Result<(), Failed> {
    told(scene, latch_opens(scene).await).await
}

async fn latch_opens(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let latch = client.count_down_latch(&scene.key);
    latch.try_set_count(1).await?;
    latch.count_down().await?;
    Ok(())
}

async fn set_expirable_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.expirable_semaphore(&scene.key);
    semaphore.try_set_permits(2).await?;
    Ok(())
}

async fn acquire_expirable_permit(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.expirable_semaphore(&scene.key);
    semaphore.try_set_permits(2).await?;
    let permit = semaphore.acquire().wait(SOON).await?;
    Ok(permit.release().await?)
}

async fn count_expirable_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.expirable_semaphore(&scene.key);
    semaphore.available_permits().await?;
    Ok(())
}
