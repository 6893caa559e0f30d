//! What a case is played on: a server and the programs of both sides, which other cases use as well, with names that are
//! only of this case.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use distlock_interop::{Actor, Call, Failure, Grant, Kind, Peer, Pending, Settings, Side};
use distlock_tests::{RedisServer, eventually, eventually_eq};
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::time::sleep;

/// The watchdog's lease where no lease may end: longer than a call may take.
pub(crate) const LONG: u64 = 30_000;

/// The watchdog's lease where one has to end. A JVM on a busy machine may stand still for a second.
pub(crate) const SHORT: u64 = 3_000;

/// How long a waiter may take to have what was released: far less than the lease.
pub(crate) const WAKE: u64 = 8_000_000_000;

/// A wake-up by a message takes a few milliseconds. A waiter of distlock that hears nothing looks at its key after 4 s at the
/// earliest, and one of Redisson when the lease is over.
const BY_MESSAGE: u64 = 3_000_000_000;

/// From a subscription until a waiter sleeps whose sleep is not seen: one of Rust, which needs no message before, and Redisson's
/// for a fenced lock, which leaves no thread in a latch.
const SETTLED: Duration = Duration::from_millis(60);
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) type Lock = (Kind, Vec<String>);

/// One runtime for all trials, since they share the connections to the programs.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
    &RUNTIME
}

async fn server() -> &'static RedisServer {
    static SERVER: OnceCell<RedisServer> = OnceCell::const_new();
    SERVER.get_or_init(RedisServer::start).await
}

/// A connection that all cases share: their questions follow each other closely.
async fn connection() -> MultiplexedConnection {
    static CONNECTION: OnceCell<MultiplexedConnection> = OnceCell::const_new();
    let connect = || async { server().await.connection().await };
    CONNECTION.get_or_init(connect).await.clone()
}

/// The program of a side that all cases share.
async fn shared(side: Side, watchdog: u64) -> Arc<Peer> {
    nth_shared(side, watchdog, 0).await
}

/// One of several programs of a side that all cases share.
async fn nth_shared(side: Side, watchdog: u64, number: usize) -> Arc<Peer> {
    type Programs = Mutex<HashMap<(Side, u64, usize), Arc<OnceCell<Arc<Peer>>>>>;
    static PROGRAMS: LazyLock<Programs> = LazyLock::new(Programs::default);
    let program = (side, watchdog, number);
    let program = Arc::clone(PROGRAMS.lock().entry(program).or_default());
    let start = || async { start(side, &[server().await.url()], watchdog).await };
    Arc::clone(program.get_or_init(start).await)
}

/// A program of one case.
pub(crate) async fn start(side: Side, urls: &[String], watchdog: u64) -> Arc<Peer> {
    let settings = Settings {
        urls: urls.to_vec(),
        watchdog,
        both_messages: false,
    };
    Peer::start(side, &settings).await
}

/// Whether a version of Redisson lacks a kind of lock, as it says itself.
pub(crate) async fn is_missing(java: Side, kind: Kind) -> bool {
    // A multi-lock is made of reentrant locks, and a Redlock too. They do not count their holds.
    if matches!(
        kind,
        Kind::Semaphore | Kind::Permit | Kind::Latch | Kind::Multi | Kind::Red
    ) {
        return false;
    }
    let actor = shared(java, LONG).await.actor("probe");
    let probe = Call::new("hold_count", kind, &[String::from("probe")]);
    matches!(actor.call(probe).answer().await, Err(Failure::Missing(_)))
}

pub(crate) struct Stage {
    pub(crate) server: &'static RedisServer,
    pub(crate) kind: Kind,
    pub(crate) holder: Side,
    pub(crate) waiter: Side,
    /// The name of the trial, which no other one has.
    pub(crate) name: String,
}

impl Stage {
    pub(crate) async fn new(name: &str, kind: Kind, holder: Side, waiter: Side) -> Self {
        Self {
            server: server().await,
            kind,
            holder,
            waiter,
            name: name.to_owned(),
        }
    }

    /// A thread of the holder's side.
    pub(crate) async fn holder(&self, thread: &str) -> Actor {
        self.actor(self.holder, LONG, thread).await
    }

    /// A thread of the waiter's side.
    pub(crate) async fn waiter(&self, thread: &str) -> Actor {
        self.actor(self.waiter, LONG, thread).await
    }

    /// A thread of the holder's side, in a program whose watchdog has the short lease.
    pub(crate) async fn short_holder(&self, thread: &str) -> Actor {
        self.actor(self.holder, SHORT, thread).await
    }

    /// The object of this case, and a thread of each side.
    pub(crate) async fn parts(&self) -> (Lock, Actor, Actor) {
        let (holder, waiter) = (self.holder("h").await, self.waiter("w").await);
        (self.lock(), holder, waiter)
    }

    /// One waits for what another one has, and is woken by that one's release.
    pub(crate) async fn release_wakes(&self, holder: (&Actor, &Lock), waiter: (&Actor, &Lock)) {
        let (released, granted) = self.hand_over(holder, waiter).await;
        assert_by_message("the wake-up", released, granted);
    }

    /// One waits for what another one has, and has it after that one's release. Returns the times of both.
    pub(crate) async fn hand_over(
        &self,
        (holder, held): (&Actor, &Lock),
        (waiter, wanted): (&Actor, &Lock),
    ) -> (u64, u64) {
        let waiting = waiter.acquire(wanted, None);
        self.until_asleep(waiter, wanted).await;
        assert!(!waiting.is_answered(), "granted beside a holder");
        let released = holder.release(held).timed::<bool>().await;
        (released.began, waiting.granted().await.ended)
    }

    /// How long the waiter waits at a time for the end of a lease. A fair waiter of Redisson before 3.32 may sleep for ever at
    /// that: see the guide.
    pub(crate) fn wait_for_a_lease(&self) -> Option<u64> {
        let is_old = self.waiter == Side::Java(Side::versions()[1]);
        (is_old && self.kind == Kind::Fair).then_some(8_000)
    }

    /// When the waiter was granted it. One that does not wait for ever asks again.
    pub(crate) async fn granted_at(&self, waiter: &Actor, lock: &Lock, waiting: Pending) -> u64 {
        let wait = self.wait_for_a_lease();
        let mut answer = waiting.timed::<Option<Grant>>().await;
        while wait.is_some() && answer.value.is_none() {
            answer = waiter.acquire(lock, wait).timed().await;
        }
        assert!(
            answer.value.is_some(),
            "refused without a limit to its wait"
        );
        answer.ended
    }

    async fn actor(&self, side: Side, watchdog: u64, thread: &str) -> Actor {
        let peer = shared(side, watchdog).await;
        peer.actor(format!("{} {thread}", self.name))
    }

    /// Several programs of a side, which other cases use as well.
    pub(crate) async fn programs(&self, side: Side, count: usize) -> Vec<Arc<Peer>> {
        join_all((0..count).map(|number| nth_shared(side, LONG, number))).await
    }

    /// A program of the holder's side that this case may kill, with the short lease.
    pub(crate) async fn mortal(&self) -> Arc<Peer> {
        start(self.holder, &[self.server.url()], SHORT).await
    }

    /// A program of the waiter's side that this case may kill.
    pub(crate) async fn mortal_waiter(&self) -> Arc<Peer> {
        start(self.waiter, &[self.server.url()], LONG).await
    }

    /// The object of this case.
    pub(crate) fn lock(&self) -> Lock {
        self.named(&self.name)
    }

    /// An object of the kind of this case.
    pub(crate) fn named(&self, name: &str) -> Lock {
        let names = match self.kind {
            Kind::Multi => vec![
                format!("{name} 1"),
                format!("{name} 2"),
                format!("{name} 3"),
            ],
            _ => vec![name.to_owned()],
        };
        (self.kind, names)
    }

    /// The same name as another kind.
    pub(crate) fn as_kind(&self, kind: Kind) -> Lock {
        (kind, vec![self.name.clone()])
    }

    /// Waits until a waiter sleeps and listens for a release. The waiter of a spin lock does not listen.
    ///
    /// A Redisson thread that has subscribed and is not asleep yet misses the message of a write lock, and then sleeps until the
    /// end of the lease: see the guide.
    pub(crate) async fn until_asleep(&self, waiter: &Actor, lock: &Lock) {
        if lock.0 == Kind::Spin {
            return;
        }
        let subscribed = async || {
            let channels = channels().await;
            let is_of_lock = |channel: &String| lock.1.iter().any(|name| channel.contains(name));
            if channels.iter().any(is_of_lock) {
                Ok(())
            } else {
                Err(format!("{channels:?}"))
            }
        };
        eventually(DEADLINE, format!("a waiter for {lock:?}"), subscribed).await;
        settle(waiter, lock.0).await;
    }

    /// Waits until nobody listens for a release any more.
    pub(crate) async fn until_nobody_waits(&self, lock: &Lock) {
        let over = async || {
            let channels = channels().await;
            let is_of_lock = |channel: &String| lock.1.iter().any(|name| channel.contains(name));
            if channels.iter().any(is_of_lock) {
                Err(format!("{channels:?}"))
            } else {
                Ok(())
            }
        };
        eventually(DEADLINE, format!("no waiter for {lock:?}"), over).await;
    }

    /// Waits until so many stand in the queue of the fair lock of this case.
    pub(crate) async fn until_queue_has(&self, waiters: u64) {
        let queue = format!("redisson_lock_queue:{{{}}}", self.name);
        let length = async || self.server.try_cli::<u64>(&["LLEN", &queue]).await.unwrap();
        eventually_eq(DEADLINE, "the length of the queue", waiters, length).await;
    }

    /// Waits until a key is gone from the server.
    pub(crate) async fn until_gone(&self, key: &str) {
        let gone = async || match self.server.try_cli::<u64>(&["EXISTS", key]).await {
            Ok(0) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        eventually(DEADLINE, format!("{key:?} to be gone"), gone).await;
    }
}

/// Waits until a waiter that has subscribed, or is about to, sleeps.
async fn settle(waiter: &Actor, kind: Kind) {
    if waiter.peer().side().is_java() && kind != Kind::Fenced {
        let what = format!("{waiter} to sleep");
        eventually_eq(DEADLINE, what, true, async || waiter.is_asleep().await).await;
    } else {
        sleep(SETTLED).await;
    }
}

/// The channels that somebody listens to.
async fn channels() -> Vec<String> {
    let (mut command, mut connection) = (redis::cmd("PUBSUB"), connection().await);
    let answer = command.arg("CHANNELS").query_async(&mut connection);
    answer.await.expect("a server that answers")
}

/// Whether a release woke its waiter by a message.
#[track_caller]
pub(crate) fn assert_by_message(what: &str, from: u64, to: u64) {
    let late = to.saturating_sub(from);
    assert!(late < BY_MESSAGE, "{what} took {} ms", late / 1_000_000);
}

/// Whether the second time follows the first one within the bound.
#[track_caller]
pub(crate) fn assert_soon(what: &str, from: u64, to: u64) {
    let late = to.saturating_sub(from);
    assert!(late < WAKE, "{what} took {} ms", late / 1_000_000);
}
