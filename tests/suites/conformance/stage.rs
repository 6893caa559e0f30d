//! The stage a test plays on: one lock server, and any number of clients of it.
//!
//! A test body knows no backend. It counts time in leases: on memory the lease is 30 s of paused time, which costs
//! nothing; on a real server it is short, and its time is real. Nothing sleeps until "it should have worked": a test
//! waits for a fact with a deadline ([`Stage::eventually`]), or lets a time pass that it then asserts about.
//!
//! On Redis, on the set with Sentinels and on the cluster, the clients of a stage have a user of its own with the rights that
//! the guide lists, and no others. At the end of a test, the servers must have denied this user nothing.
//!
//! # To add a backend
//! A variant of [`Server`] with its arms, a function like [`memory`] that makes the stage and plays the test on it, and
//! one line in [`on_every_backend`].

#[macro_use]
mod backends;
mod server;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Builder, Client, Error, Guard, MemoryServer};
use distlock_tests::Disturbed as _;
pub(crate) use distlock_tests::drop_after;
use distlock_tests::faults::{Fault, Faults};
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Authority, Pulse, RedisCluster, RedisServer, play_until_it_counts, size};
use tokio::runtime;
use tokio::time::{Instant, sleep, timeout};

use self::server::Server;

/// The longest time in which holds of one client follow each other by hand-over.
pub(crate) const HAND_OVER_TIME: Duration = Duration::from_millis(50);

/// On a real server, where time is real.
const REDIS_LEASE: Duration = Duration::from_millis(2_500);

/// On a real server. See [`redis`].
const REDIS_SLACK: Duration = Duration::from_secs(4);

/// A test. With the type of its future, all that plays it would be compiled anew for each test.
pub(crate) type Body = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A lock server, its clients, and the faults between them.
pub(crate) struct Stage {
    server: Server,
    /// What the names of all keys begin with.
    prefix: String,
    /// Who the clients are, on a server with rights.
    user: Option<String>,
    /// The issuer of the server's certificate, if its clients use TLS.
    authority: Option<Authority>,
    lease: Duration,
    slack: Duration,
    paused: bool,
    faults: Faults,
    /// Gives each key a slot of its own, for all clients.
    slots: Option<Faults>,
    clients: Mutex<Vec<Client>>,
    /// From the start of the test, where its time is real.
    pulse: OnceLock<Pulse>,
}

/// Plays a test on the memory backend, in paused time.
pub(crate) fn memory(test: Body) {
    in_paused_time(test, None);
}

/// Plays a test on the memory backend, in paused time. Each key has a slot of its own, as in a cluster.
pub(crate) fn memory_in_slots(test: Body) {
    let slots = Faults::new();
    slots.split_slots();
    in_paused_time(test, Some(slots));
}

fn in_paused_time(test: Body, slots: Option<Faults>) {
    let runtime = one_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let server = Server::Memory(MemoryServer::new());
    let (lease, slack) = (Duration::from_secs(30), Duration::from_millis(5));
    let mut stage = Stage::new(server, lease, slack, true);
    stage.slots = slots;
    let a_day = Duration::from_secs(24 * 3600);
    runtime.block_on(stage.play(test, a_day));
}

/// Plays a test on the memory backend in real time, with several threads.
pub(crate) fn threads(test: Body) {
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4);
    let (lease, slack) = (Duration::from_millis(1_200), Duration::from_millis(150));
    let stage = async || {
        let server = Server::Memory(MemoryServer::new());
        Stage::new(server, lease, slack, false)
    };
    in_real_time(runtime, lease, stage, test);
}

/// Plays a test on a Redis server of its own, in real time.
///
/// The slack is below the 5 s after which a waiter that was told nothing asks by itself, since a lost wake-up must not hide
/// in it. It stretches by as much as the machine was late. What is exact is asserted on paused time.
pub(crate) fn redis(test: Body) {
    let stage = async || {
        let server = RedisServer::builder().without_default_user().start().await;
        server.set_user("shop", &rights::all()).await;
        let mut stage = Stage::on(Server::Redis(Box::new(server)));
        (stage.user, stage.prefix) = (Some("shop".to_owned()), "shop:".to_owned());
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

/// Plays a test on a Redis server of its own, whose clients use TLS.
pub(crate) fn tls(test: Body) {
    let stage = async || {
        let authority = Authority::new();
        let builder = RedisServer::builder().tls(&authority.server());
        let mut stage = Stage::on(Server::Redis(Box::new(builder.start().await)));
        stage.authority = Some(authority);
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

/// Plays a test on the master of a set of servers with Sentinels, which other tests use at the same time.
pub(crate) fn sentinel(test: Body) {
    static STAGES: AtomicU64 = AtomicU64::new(0);
    let stage = async || {
        let user = format!("behind{}", STAGES.fetch_add(1, Ordering::Relaxed));
        let prefix = format!("{user}:");
        let set = SentinelSet::shared().await;
        let rights = rights::for_prefix(&rights::all(), &prefix);
        set.server(set.master().await)
            .set_user(&user, &rights)
            .await;
        let rights = [rights::of_sentinels(), rights::optional()].concat();
        for at in 0..3 {
            set.sentinel(at).set_user(&user, &rights).await;
        }
        let mut stage = Stage::on(Server::Sentinel(set));
        (stage.user, stage.prefix) = (Some(user), prefix);
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

/// Plays a test on a Redis Cluster, in real time. The keys of a test are spread over the nodes.
pub(crate) fn cluster(test: Body) {
    on_cluster(test, |user| format!("{user}:"));
}

/// Plays a test on a Redis Cluster, in real time. The keys of a test are in one slot.
pub(crate) fn cluster_in_one_slot(test: Body) {
    on_cluster(test, |user| format!("{user}:{{{user}}}:"));
}

fn on_cluster(test: Body, prefix: impl Fn(&str) -> String) {
    static STAGES: AtomicU64 = AtomicU64::new(0);
    let stage = async || {
        let user = format!("spread{}", STAGES.fetch_add(1, Ordering::Relaxed));
        let cluster = RedisCluster::shared().await;
        let rights = rights::all_in_cluster(cluster.has_sharded_messages().await);
        let rights = rights::for_prefix(&rights, &format!("{user}:"));
        cluster.set_user(&user, &rights).await;
        let mut stage = Stage::on(Server::Cluster(cluster));
        (stage.prefix, stage.user) = (prefix(&user), Some(user));
        stage
    };
    in_real_time(&mut one_thread(), REDIS_LEASE, stage, test);
}

fn one_thread() -> runtime::Builder {
    runtime::Builder::new_current_thread()
}

/// Plays a test in real time. The clients of a stage with this lease wait for an answer for a sixth of it.
fn in_real_time(
    builder: &mut runtime::Builder,
    lease: Duration,
    stage: impl AsyncFn() -> Stage,
    test: Body,
) {
    let prepare = || {
        let runtime = builder.enable_all().build().unwrap();
        let stage = runtime.block_on(stage());
        (runtime, stage)
    };
    play_until_it_counts(
        lease / 6,
        prepare,
        |(runtime, stage)| runtime.block_on(stage.play(test, Duration::from_secs(120))),
        |(_, stage)| stage.late(),
    );
}

impl Stage {
    /// On a real server.
    fn on(server: Server) -> Self {
        Self::new(server, REDIS_LEASE, REDIS_SLACK, false)
    }

    fn new(server: Server, lease: Duration, slack: Duration, paused: bool) -> Self {
        Self {
            server,
            prefix: String::new(),
            user: None,
            authority: None,
            lease,
            slack,
            paused,
            faults: Faults::new(),
            slots: None,
            clients: Mutex::default(),
            pulse: OnceLock::new(),
        }
    }

    async fn play(&self, test: Body, patience: Duration) {
        if !self.paused {
            let _first = self.pulse.set(Pulse::start());
        }
        let played = timeout(patience, test(self)).await;
        played.expect("the test hangs");
        self.faults.clear_all();
        self.is_quiet_within(self.lease * 3).await;
        let denied = self.denied().await;
        assert!(denied.is_empty(), "denied, but needed: {denied:?}");
    }

    /// What the servers have denied the user of this stage.
    async fn denied(&self) -> BTreeSet<String> {
        match &self.user {
            Some(user) => self.server.denied_to(user).await,
            None => BTreeSet::new(),
        }
    }

    /// A client of the server, without faults.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    /// A client that meets the stage's [`faults`](Stage::faults).
    pub(crate) async fn faulty_client(&self) -> Client {
        self.client_with(|builder| builder.faults(&self.faults))
            .await
    }

    /// Takes the last fencing token of a key away.
    pub(crate) async fn lose_token(&self, key: &str) {
        self.server.lose_token(key, &self.wrapped(key)).await;
    }

    /// Takes all data away, fencing tokens included, as a server does that restarts without it.
    pub(crate) async fn wipe(&self) {
        self.server.wipe(&self.prefix).await;
    }

    /// A client that meets the stage's faults, and that the test alone keeps alive.
    pub(crate) async fn unlisted_client(&self) -> Client {
        self.connect(|builder| builder.faults(&self.faults)).await
    }

    /// What the stage plays on.
    pub(crate) fn backend(&self) -> &'static str {
        match &self.server {
            Server::Memory(_) => "memory",
            Server::Redis(_) => "redis",
            Server::Sentinel(_) => "sentinel",
            Server::Cluster(_) => "cluster",
        }
    }

    /// What the names of all keys begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The part of a name that follows from a key.
    fn wrapped(&self, key: &str) -> String {
        let prefix = &self.prefix;
        if prefix.contains('{') {
            format!("{prefix}{key}")
        } else {
            format!("{{{prefix}{key}}}")
        }
    }

    /// A client with settings of its own.
    pub(crate) async fn client_with(&self, set: impl FnOnce(Builder) -> Builder) -> Client {
        let client = self.connect(set).await;
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    async fn connect(&self, set: impl FnOnce(Builder) -> Builder) -> Client {
        let builder = Client::builder()
            .watchdog_timeout(self.lease)
            .unavailable_after(self.unavailable_after());
        let builder = match &self.user {
            Some(user) => builder.credentials(user, PASSWORD),
            None => builder,
        };
        let builder = set(builder.key_prefix(self.prefix()));
        let builder = match &self.slots {
            Some(slots) => builder.faults(slots),
            None => builder,
        };
        match &self.server {
            Server::Memory(server) => builder.in_memory(server).unwrap(),
            Server::Redis(server) => match &self.authority {
                None => builder.connect(&server.url()).await.unwrap(),
                Some(authority) => {
                    let builder = builder.tls_ca_pem(authority.pem());
                    builder.connect(&server.tls_url()).await.unwrap()
                }
            },
            Server::Sentinel(set) => {
                let user = self.user.as_deref().expect("a stage of its own");
                builder.connect(&set.url_of_user(user)).await.unwrap()
            }
            Server::Cluster(cluster) => builder.connect(&cluster.url()).await.unwrap(),
        }
    }

    /// The faults that [`faulty_client`](Stage::faulty_client)s meet; none at first.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The watchdog's lease of every client.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// How long every client goes on without an answer: far longer than a stutter of the machine, in real time.
    pub(crate) fn unavailable_after(&self) -> Duration {
        if self.paused {
            self.lease / 6
        } else {
            self.lease * 4 / 5
        }
    }

    /// A part of the lease.
    pub(crate) fn part(&self, parts: u32) -> Duration {
        self.lease / parts
    }

    /// What one call of a verb may meet, and is carried out and answered all the same.
    pub(crate) fn survivable_faults(&self) -> [Fault; 6] {
        [
            Fault::FailBefore,
            Fault::FailAfter,
            Fault::Double,
            Fault::Late(self.part(50)),
            Fault::DelayReply(self.part(50)),
            Fault::Never,
        ]
    }

    /// How long after its due time an event may come: longer by as much as the machine was late since the test began.
    pub(crate) fn slack(&self) -> Duration {
        self.slack + self.late()
    }

    fn late(&self) -> Duration {
        let late = self.pulse.get().map(|pulse| pulse.stretch(Duration::ZERO));
        late.unwrap_or_default()
    }

    /// Has a run of hand-overs that began at `start` not ended yet for its time? A machine with other work may need longer for
    /// a few steps, and the hold is released for real then.
    pub(crate) fn is_within_a_run(&self, start: Instant) -> bool {
        self.paused || start.elapsed() < HAND_OVER_TIME
    }

    /// Does time stand still unless all wait? Then texts with times in them can be compared.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// How often a test with random input is repeated: where time costs nothing as often as it asks for, in the full size.
    pub(crate) fn rounds(&self, wanted: usize) -> usize {
        if self.paused {
            size(wanted.div_ceil(4), wanted)
        } else {
            1
        }
    }

    /// A count or a duration that costs time where time is real: `quick` there, but for the full size.
    pub(crate) fn size<T>(&self, quick: T, full: T) -> T {
        if self.paused { full } else { size(quick, full) }
    }

    /// Asserts that it is `expected` after `start`, or a little more.
    #[track_caller]
    pub(crate) fn assert_took(&self, start: Instant, expected: Duration) {
        let took = start.elapsed();
        // A lease counts from before its command was sent, and `start` may be later by as long as that took.
        let a_tick = if self.paused {
            Duration::from_millis(2)
        } else {
            self.lease / 10 + self.late()
        };
        let slack = self.slack();
        assert!(
            took + a_tick >= expected && took <= expected + slack,
            "took {took:?}, expected {expected:?} and at most {slack:?} more"
        );
    }

    /// Waits until `fact` is true; panics where it is not `within` this time.
    pub(crate) async fn eventually(
        &self,
        what: &str,
        within: Duration,
        mut fact: impl AsyncFnMut() -> bool,
    ) {
        let start = Instant::now();
        while !fact().await {
            let within = within + self.slack();
            assert!(start.elapsed() <= within, "not within {within:?}: {what}");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until this many acquisitions of a client stand in its queues.
    pub(crate) async fn waiting(&self, client: &Client, waiters: usize) {
        let what = format!("{waiters} waiters");
        self.eventually(&what, self.lease, async || sizes(client).waiters == waiters)
            .await;
    }

    /// How many wait for a key in the server's own queue.
    pub(crate) async fn places(&self, key: &str) -> usize {
        self.server.places(key, &self.wrapped(key)).await
    }

    /// Waits until this many wait for a key in the server's own queue.
    pub(crate) async fn has_places(&self, key: &str, places: usize) {
        let what = format!("{places} places");
        self.eventually(&what, self.lease, async || self.places(key).await == places)
            .await;
    }

    /// Waits until nothing is left of all that was held, waited for or owed: in no client, and in the server.
    pub(crate) async fn is_quiet_within(&self, within: Duration) {
        let start = Instant::now();
        loop {
            let sizes: Vec<Sizes> = self.clients.lock().unwrap().iter().map(sizes).collect();
            let stored = self.server.stored(&self.prefix).await;
            if sizes.iter().all(|size| *size == Sizes::default()) && stored == (0, 0) {
                return;
            }
            let left = sizes.iter().filter(|size| **size != Sizes::default());
            let within = within + self.slack();
            assert!(
                start.elapsed() <= within,
                "left after {within:?}: in the server (keys, channels) {stored:?}, in the clients {:?}",
                left.collect::<Vec<_>>()
            );
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many channels the server is asked for.
    pub(crate) async fn listened_channels(&self) -> usize {
        self.server.stored(&self.prefix).await.1
    }

    /// Asserts that a new client gets the key at once, and leaves it free again. In real time, soon:
    /// a late command may be on its way, and its clean-up behind it.
    pub(crate) async fn is_free(&self, key: &str) {
        let client = self.client().await;
        let lock = client.lock(key);
        let guard = if self.paused {
            lock.try_acquire().await.unwrap()
        } else {
            lock.acquire().wait(self.slack()).await.ok()
        };
        let guard = guard.unwrap_or_else(|| panic!("{key:?} is not free"));
        guard.release().await.unwrap();
    }

    /// A lock that nobody waits for comes free within the time.
    pub(crate) async fn is_free_within(&self, within: Duration, key: &str) {
        let lock = self.client().await.lock(key);
        let free = async || !lock.is_locked().await.unwrap();
        self.eventually("it is free", within, free).await;
    }

    /// Asserts that a new client cannot get the key.
    pub(crate) async fn is_taken(&self, key: &str) {
        let client = self.client().await;
        let guard = client.lock(key).try_acquire().await.unwrap();
        assert!(guard.is_none(), "{key:?} is free");
    }
}

/// Is `future` done within this time?
pub(crate) async fn is_done_within(within: Duration, future: impl Future) -> bool {
    timeout(within, future).await.is_ok()
}

/// Ends a hold by a drop, or by a release that is confirmed.
pub(crate) async fn end(held: Guard, by_drop: bool) {
    if by_drop {
        drop(held);
    } else {
        held.release().await.unwrap();
    }
}

/// The error of an acquisition that must not succeed.
#[track_caller]
pub(crate) fn refused<T: Debug>(acquired: Result<T, Error>) -> Error {
    acquired.expect_err("it was granted")
}

/// Whether the server shows this hold, and no other, with this count.
pub(crate) async fn server_shows(observer: &Client, guard: &Guard, count: u64) -> bool {
    let holders = observer.lock(guard.key()).holders().await.unwrap();
    matches!(&holders[..], [holder] if holder.owner == guard.owner().to_string() && holder.count == count)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    async fn a_stage() -> Stage {
        Stage::on(Server::Memory(MemoryServer::new()))
    }

    #[test]
    fn failure_on_a_machine_that_stands_still_does_not_count() {
        static PLAYS: AtomicU64 = AtomicU64::new(0);
        async fn test(stage: &Stage) {
            // The pulse sleeps.
            tokio::task::yield_now().await;
            if PLAYS.fetch_add(1, Ordering::Relaxed) == 0 {
                thread::sleep(stage.lease());
                panic!("an answer that came too late");
            }
        }
        let test: Body = |stage| Box::pin(test(stage));
        in_real_time(&mut one_thread(), REDIS_LEASE, a_stage, test);
        assert_eq!(PLAYS.load(Ordering::Relaxed), 2);
    }

    #[test]
    #[should_panic = "a failure of the library"]
    fn failure_that_comes_again_and_again_counts_on_any_machine() {
        let test: Body = |_| Box::pin(async { panic!("a failure of the library") });
        in_real_time(&mut one_thread(), REDIS_LEASE, a_stage, test);
    }
}
