//! A fork with open connections, with holds and with waiters.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Client, ExpirablePermit, FencedGuard, Guard};
use distlock_tests::{RedisServer, eventually};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::copy::{NewCopy, Original, Side, fork};
use crate::monitor::{Monitor, connections};
use crate::{Listed, is_left_alone, runtime};

pub(crate) const TESTS: &[Listed] = &[
    (
        "copy_is_another_owner_and_the_original_keeps_its_holds_and_its_waiters",
        copy_is_another_owner_and_the_original_keeps_its_holds_and_its_waiters,
    ),
    (
        "copy_that_drops_all_that_it_has_of_the_original_sends_nothing",
        copy_that_drops_all_that_it_has_of_the_original_sends_nothing,
    ),
];

/// The lease of the watchdog. A machine that stands still for a moment must not cost a hold.
const LEASE: Duration = Duration::from_secs(12);

/// How often each of the two processes enters the section that they share.
const ENTRIES: usize = 40;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

type Waiter = Pin<Box<dyn Future<Output = Result<Guard, distlock::Error>>>>;

/// What one process has when it is copied.
struct Holds {
    lock: Guard,
    fenced: FencedGuard,
    permit: ExpirablePermit,
}

/// Locks, a permit, and waiters, of a client whose two connections are open.
struct Scene {
    server: RedisServer,
    redis: MultiplexedConnection,
    monitor: Monitor,
    client: Client,
    /// Holds what is waited for.
    other: Guard,
    holds: Holds,
    /// Waits as a task of the runtime.
    waiting: JoinHandle<()>,
    /// Waits, and is polled by no task.
    waiter: Waiter,
    /// The connections of the client.
    connections: Vec<(u64, String)>,
}

impl Scene {
    async fn set() -> Self {
        let server = RedisServer::start().await;
        let builder = || Client::builder().watchdog_timeout(LEASE);
        let client = builder().connect(&server.url()).await.unwrap();
        let other = builder().connect(&server.url()).await.unwrap();
        let other = other.lock("waited").acquire().await.unwrap();
        let seats = client.expirable_semaphore("seats");
        seats.try_set_permits(1).await.unwrap();
        let holds = Holds {
            lock: client.lock("lock").acquire().await.unwrap(),
            fenced: client.fenced_lock("fenced").acquire().await.unwrap(),
            permit: seats.acquire().await.unwrap(),
        };
        let mut redis = server.connection().await;
        let waited = client.lock("waited");
        let waiting = tokio::spawn({
            let (waited, redis) = (waited.clone(), redis.clone());
            async move { enter(waited.acquire().await.unwrap(), redis).await }
        });
        let mut waiter: Waiter = Box::pin(waited.acquire().into_future());
        let id = client.id().to_string();
        let both_wait = eventually(LONG, "both wait, and both connections are open", || async {
            let connections = connections(&list(&redis).await, &id);
            let waits = client.snapshot().waits.len();
            Some(connections).filter(|connections| connections.len() == 2 && waits == 2)
        });
        let connections = tokio::select! {
            connections = both_wait => connections,
            granted = &mut waiter => panic!("granted: {granted:?}"),
        };
        let _answer: String = redis::cmd("PING").query_async(&mut redis).await.unwrap();
        Self {
            monitor: Monitor::of(server.addr()).await,
            server,
            redis,
            client,
            other,
            holds,
            waiting,
            waiter,
            connections,
        }
    }

    /// The original has all that it had, over the connections that it had, and nobody else has sent anything for it.
    async fn expect_all_kept(self, id: &str) {
        let Self { holds, .. } = self;
        let lost = async {
            tokio::select! {
                () = holds.lock.lost() => {}
                () = holds.fenced.lost() => {}
                () = holds.permit.lost() => {}
            }
        };
        assert!(
            timeout(LEASE * 4 / 3, lost).await.is_err(),
            "the original has lost a hold"
        );
        holds.lock.release().await.unwrap();
        holds.fenced.release().await.unwrap();
        holds.permit.release().await.unwrap();
        assert_eq!(self.client.id().to_string(), id);
        let now = connections(&list(&self.redis).await, id);
        assert_eq!(now, self.connections, "the original had to connect again");
        let commands = self.monitor.commands();
        let is_own = |line: &&String| {
            self.connections
                .iter()
                .any(|(_, own)| line.contains(&format!(" {own}]")))
        };
        let (own, others): (Vec<_>, Vec<_>) = commands.iter().partition(is_own);
        assert!(
            own.iter().any(|line| line.contains(id)),
            "the monitor has heard nothing"
        );
        let foreign: Vec<_> = others.iter().filter(|line| line.contains(id)).collect();
        assert!(
            foreign.is_empty(),
            "sent for the original by somebody else: {foreign:#?}"
        );
        assert!(self.server.runs());
    }
}

async fn list(redis: &MultiplexedConnection) -> String {
    let mut list = redis::cmd("CLIENT");
    list.arg("LIST")
        .query_async(&mut redis.clone())
        .await
        .unwrap()
}

/// Is in the section for a moment. Nobody else may be.
async fn enter(guard: Guard, mut redis: MultiplexedConnection) {
    let mark = format!("inside:{}", guard.key());
    let mut begin = redis::cmd("SET");
    let begin = begin.arg(&mark).arg("somebody").arg("NX");
    let begun: Option<String> = begin.query_async(&mut redis).await.unwrap();
    assert!(begun.is_some(), "two are inside");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let _one: i64 = redis::cmd("DEL")
        .arg(&mark)
        .query_async(&mut redis)
        .await
        .unwrap();
    guard.release().await.unwrap();
}

/// Enters the section many times, and takes tokens and permits beside the other process.
async fn take_part(client: &Client, redis: &MultiplexedConnection) -> Value {
    let (mut tokens, mut permits) = (Vec::new(), Vec::new());
    let places = client.expirable_semaphore("places");
    places.try_set_permits(2).await.unwrap();
    for _ in 0..ENTRIES {
        enter(
            client.lock("shared").acquire().await.unwrap(),
            redis.clone(),
        )
        .await;
        let fenced = client.fenced_lock("numbered").acquire().await.unwrap();
        tokens.push(fenced.token().to_string());
        fenced.release().await.unwrap();
        let permit = places.acquire().await.unwrap();
        permits.push(permit.id().to_string());
        permit.release().await.unwrap();
    }
    json!({ "id": client.id().to_string(), "tokens": tokens, "permits": permits })
}

/// The values under a name in both reports, none of them twice.
fn assert_all_differ(one: &Value, other: &Value, name: &str) {
    let texts = |report: &Value| -> Vec<String> {
        report[name]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect()
    };
    let mut all = [texts(one), texts(other)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), ENTRIES * 2, "{name}");
}

fn copy_is_another_owner_and_the_original_keeps_its_holds_and_its_waiters() {
    let original_runtime = runtime();
    let scene = original_runtime.block_on(Scene::set());
    match fork() {
        Side::Copy(original) => {
            original.play(|original| runtime().block_on(other_owner(scene, original)))
        }
        Side::Original(copy) => original_runtime.block_on(keeper(scene, copy)),
    }
}

/// The part of the copy.
async fn other_owner(scene: Scene, original: &mut Original) {
    let Scene {
        server,
        client,
        holds,
        waiter,
        ..
    } = scene;
    // Its end would end the server.
    let server = Box::leak(Box::new(server));
    let Holds {
        lock,
        fenced,
        permit,
    } = holds;
    assert!(!lock.is_held() && !fenced.is_held() && !permit.is_held());
    lock.lost().await;
    assert!(
        lock.scope(async {})
            .await
            .is_err_and(|error| error.is_lost())
    );
    assert!(lock.reenter().is_err_and(|error| error.is_lost()));

    // What the original holds is taken.
    assert!(client.lock("lock").try_acquire().await.unwrap().is_none());
    assert!(
        client
            .fenced_lock("fenced")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let seats = client.expirable_semaphore("seats");
    assert!(seats.try_acquire().await.unwrap().is_none());
    let losses = client.snapshot().losses;
    assert_eq!(losses.len(), 3, "{losses:?}");

    assert!(is_left_alone(&lock.release().await));
    assert!(is_left_alone(&fenced.release().await));
    drop(permit);
    let redis = server.connection().await;
    original.tell(&json!("asked"));
    // The waiter begins anew: its key is held by a third client until the original goes on.
    original.wait();
    let guard = timeout(LONG, waiter)
        .await
        .expect("the waiter is granted")
        .unwrap();
    assert_eq!(guard.owner().client_id(), client.id());
    enter(guard, redis.clone()).await;
    original.tell(&take_part(&client, &redis).await);
    original.wait();
    client.close(LONG).await.unwrap();
}

/// The part of the original.
async fn keeper(mut scene: Scene, copy: NewCopy) {
    let mut copy = copy.listen();
    let id = scene.client.id().to_string();
    assert_eq!(copy.told().await, "asked");
    assert!(!scene.waiting.is_finished());
    copy.go_on().await;
    let other = std::mem::replace(
        &mut scene.other,
        scene.client.lock("nothing").acquire().await.unwrap(),
    );
    other.release().await.unwrap();
    let waiter = std::mem::replace(&mut scene.waiter, Box::pin(std::future::pending()));
    let guard = timeout(LONG, waiter)
        .await
        .expect("the waiter is granted")
        .unwrap();
    assert_eq!(guard.owner().client_id().to_string(), id);
    enter(guard, scene.redis.clone()).await;
    timeout(LONG, &mut scene.waiting)
        .await
        .expect("the task is granted")
        .unwrap();
    let here = take_part(&scene.client, &scene.redis).await;
    let there = copy.told().await;
    assert_ne!(here["id"], there["id"]);
    assert_all_differ(&here, &there, "tokens");
    assert_all_differ(&here, &there, "permits");
    copy.go_on().await;
    copy.ended().await;
    scene.expect_all_kept(&id).await;
}

fn copy_that_drops_all_that_it_has_of_the_original_sends_nothing() {
    let original_runtime = runtime();
    let scene = original_runtime.block_on(Scene::set());
    match fork() {
        Side::Copy(original) => original.play(|original| {
            let Scene {
                client,
                other,
                holds,
                waiter,
                ..
            } = scene;
            runtime().block_on(async {
                // The client is used for nothing else in this copy.
                drop((holds, waiter, other));
                drop(client);
                // What would be sent in the background is sent now.
                tokio::time::sleep(LEASE / 2).await;
            });
            original.tell(&json!("dropped"));
        }),
        Side::Original(copy) => original_runtime.block_on(async {
            let id = scene.client.id().to_string();
            let mut copy = copy.listen();
            copy.told().await;
            copy.ended().await;
            assert!(!scene.waiting.is_finished());
            scene.expect_all_kept(&id).await;
        }),
    }
}
