//! The stage a test plays on: one lock server, and any number of clients of it.
//!
//! A test body knows no backend. It counts time in leases: on memory the lease is 30 s of paused time, which costs
//! nothing; on a real server it is short, and its time is real. Nothing sleeps until "it should have worked": a test
//! waits for a fact with a deadline ([`Stage::eventually`]), or lets a time pass that it then asserts about.
//!
//! On Redis, on the set with Sentinels and on the cluster, the clients of a stage have their own user with the rights that
//! the guide lists, and no others. At the end of a test, the servers must have denied this user nothing.
//!
//! # To add a backend
//! A variant of [`Server`] with its arms, a function like [`memory`] in `play` that makes the stage and plays the test on it,
//! and one line in [`on_every_backend`].

#[macro_use]
mod backends;
mod play;
mod server;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Builder, Client, Error, Guard, Loss};
use distlock_tests::faults::{Fault, Faults};
use distlock_tests::rights::PASSWORD;
use distlock_tests::{Authority, Disturbed as _, Pulse, size};
use tokio::time::{Instant, sleep, timeout};

use self::server::Server;

pub(crate) use self::play::{
    cluster, cluster_in_one_slot, memory, memory_in_slots, redis, sentinel, threads, tls,
};
pub(crate) use distlock_tests::drop_after;

/// The longest time in which holds of one client follow each other by hand-over.
pub(crate) const HAND_OVER_TIME: Duration = Duration::from_millis(50);

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
    /// Gives each key its own slot, for all clients.
    slots: Option<Faults>,
    clients: Mutex<Vec<Client>>,
    /// From the start of the test, where its time is real.
    pulse: OnceLock<Pulse>,
}

impl Stage {
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

    /// A client whose holds are [`lasting`], and that meets the stage's [`faults`](Stage::faults).
    pub(crate) async fn lasting_client(&self) -> Client {
        self.client_with(|builder| lasting(builder).faults(&self.faults))
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

    /// A client with these settings.
    pub(crate) async fn client_with(&self, set: impl FnOnce(Builder) -> Builder) -> Client {
        let client = self.connect(set).await;
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// A client that meets the stage's faults, and waits for each answer for this long.
    pub(crate) async fn patient_client(&self, patience: Duration) -> Client {
        let set = |builder: Builder| {
            // The response timeout is at most a sixth of the lease.
            let builder = builder.faults(&self.faults).watchdog_timeout(patience * 6);
            builder
                .response_timeout(patience)
                .unavailable_after(patience)
        };
        self.client_with(set).await
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

    /// A delay of an answer for which clients still wait. In real time, it is as long as it may be, so that a busy machine does other
    /// things meanwhile.
    pub(crate) fn most_delay(&self) -> Duration {
        self.part(if self.paused { 20 } else { 7 })
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
        let (start, mut pauses) = (Instant::now(), self.pauses());
        while !fact().await {
            let within = within + self.slack();
            assert!(start.elapsed() <= within, "not within {within:?}: {what}");
            sleep(pauses.next()).await;
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
        let (start, mut pauses) = (Instant::now(), self.pauses());
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
            sleep(pauses.next()).await;
        }
    }

    /// The pauses between two looks at a fact.
    fn pauses(&self) -> Pauses {
        Pauses {
            next: Duration::from_millis(1),
            // Paused time is exact, and some tests go on to measure it.
            longest: Duration::from_millis(if self.paused { 1 } else { 20 }),
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

/// A client whose leases are longer than all that a test waits for. A hold that nobody ends is then found on real servers, too:
/// the leases of the other clients end within the [slack](Stage::slack) there.
pub(crate) fn lasting(builder: Builder) -> Builder {
    builder.watchdog_timeout(Duration::from_secs(60))
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

/// Asserts that a hold was lost for this reason.
#[track_caller]
pub(crate) fn assert_lost_by(error: &Error, expected: Loss) {
    let is_lost = matches!(error, Error::Lost { reason, .. } if *reason == expected);
    assert!(is_lost, "{error}");
}

/// Whether the server shows this hold, and no other, with this count.
pub(crate) async fn server_shows(observer: &Client, guard: &Guard, count: u64) -> bool {
    let holders = observer.lock(guard.key()).holders().await.unwrap();
    matches!(&holders[..], [holder] if holder.owner == guard.owner().to_string() && holder.count == count)
}

/// Pauses that are short at first, and leave the processor to the code under test later.
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = self.longest.min(next * 2);
        next
    }
}
