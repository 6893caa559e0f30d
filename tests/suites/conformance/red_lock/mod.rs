//! Redlock on servers in this process: a majority is enough, and no less. The suite `redis` has real servers.

mod guards;
mod lease;
mod outage;
mod permanent;
mod regain;
mod waiting;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use distlock::test_util::{sizes, stored};
use distlock::{Blocker, Builder, Client, Error, Loss, MemoryServer, Quorum, RedLock};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Faults, Op};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

pub(crate) const KEY: &str = "order:42";
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// So many servers, of each of which every program has a client.
pub(crate) struct Servers {
    servers: Vec<MemoryServer>,
}

/// A program's clients, and the faults that each of them meets.
pub(crate) struct Program {
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Vec<Faults>,
}

impl Servers {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            servers: (0..count).map(|_| MemoryServer::new()).collect(),
        }
    }

    pub(crate) fn program(&self) -> Program {
        self.program_with(&vec![LEASE; self.servers.len()])
    }

    /// A program whose clients have these watchdog timeouts.
    pub(crate) fn program_with(&self, leases: &[Duration]) -> Program {
        self.program_of(leases, |builder| builder)
    }

    /// A program whose clients wait this long for an answer: a sixth of the lease at most.
    pub(crate) fn program_with_response_timeout(&self, response_timeout: Duration) -> Program {
        let leases = vec![LEASE; self.servers.len()];
        self.program_of(&leases, |builder| {
            builder.response_timeout(response_timeout)
        })
    }

    /// A program whose clients count their holds as ended by this margin early.
    pub(crate) fn program_with_margin(&self, margin: Duration) -> Program {
        let leases = vec![LEASE; self.servers.len()];
        self.program_of(&leases, |builder| builder.lease_margin(margin))
    }

    fn program_of(&self, leases: &[Duration], set: impl Fn(Builder) -> Builder) -> Program {
        let faults: Vec<Faults> = self.servers.iter().map(|_| Faults::new()).collect();
        let settings = leases.iter().zip(&faults);
        let clients = self.servers.iter().zip(settings);
        let clients = clients.map(|(server, (lease, faults))| {
            let builder = Client::builder().watchdog_timeout(*lease).faults(faults);
            set(builder).in_memory(server).unwrap()
        });
        Program {
            clients: clients.collect(),
            faults,
        }
    }

    pub(crate) async fn are_empty(&self) {
        let start = Instant::now();
        while !self.servers.iter().all(|server| stored(server).0 == 0) {
            assert!(start.elapsed() < LEASE, "a key is left");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Program {
    pub(crate) fn lock(&self) -> RedLock {
        Quorum::new(self.clients.clone()).lock(KEY)
    }

    /// These servers neither do anything nor answer.
    pub(crate) fn hang(&self, servers: impl IntoIterator<Item = usize>) {
        for server in servers {
            for op in [Op::Attempt, Op::Renew, Op::Release, Op::Inspect] {
                self.faults[server].always(op, Fault::Never);
            }
        }
    }

    /// How locks were lost, as the snapshots of all clients list it.
    fn losses(&self) -> Vec<Loss> {
        let snapshots = self.clients.iter().map(Client::snapshot);
        let losses = snapshots.flat_map(|one| one.losses);
        losses.map(|lost| lost.loss).collect()
    }

    pub(crate) fn heal(&self) {
        for faults in &self.faults {
            for op in [Op::Attempt, Op::Renew, Op::Release, Op::Inspect] {
                faults.clear(op);
            }
        }
    }
}

/// What a wait that ended was waiting for.
fn blocker(error: &Error) -> Blocker {
    match error {
        Error::Timeout { blocker, .. } => *blocker,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn held_by_one_program_at_a_time() {
    let servers = Servers::new(5);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    assert!(guard.is_held() && two.lock().is_locked().await.unwrap());
    assert_eq!(guard.keys().collect::<Vec<_>>(), [KEY]);
    assert!(two.lock().try_acquire().await.unwrap().is_none());
    let error = two
        .lock()
        .acquire()
        .wait(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(error.is_busy(), "{error}");
    guard.release().await.unwrap();
    two.lock().acquire().await.unwrap().release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn all_servers_are_asked_at_the_same_time() {
    let servers = Servers::new(5);
    let program = servers.program();
    let slow = Duration::from_millis(100);
    for faults in &program.faults {
        faults.always(Op::Attempt, Fault::DelayReply(slow));
        faults.always(Op::Release, Fault::DelayReply(slow));
    }
    let start = Instant::now();
    let guard = program.lock().acquire().await.unwrap();
    guard.release().await.unwrap();
    let took = start.elapsed();
    let most = 2 * slow + Duration::from_millis(10);
    assert!(took >= 2 * slow && took < most, "{took:?}");
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn majority_is_what_the_servers_show() {
    let servers = Servers::new(5);
    let (one, two) = (servers.program(), servers.program());
    // Of two servers alone somebody else has the key.
    let minority = [two.clients[0].lock(KEY), two.clients[4].lock(KEY)];
    let minority = minority.map(|lock| lock.acquire().lease(LEASE * 2).into_future());
    let minority = futures_util::future::join_all(minority).await;
    assert!(!one.lock().is_locked().await.unwrap());
    assert_eq!(one.lock().remaining_lease().await.unwrap(), None);
    assert_eq!(one.lock().holders().await.unwrap().len(), 2);
    let guard = one.lock().acquire().lease(LEASE).await.unwrap();
    assert!(two.lock().is_locked().await.unwrap());
    let left = two.lock().remaining_lease().await.unwrap().unwrap();
    assert!(left <= LEASE && left > LEASE - Duration::from_secs(1));
    assert_eq!(two.lock().holders().await.unwrap().len(), 5);
    guard.release().await.unwrap();
    for guard in minority {
        guard.unwrap().release().await.unwrap();
    }
    servers.are_empty().await;
}

/// One server was away at the grant, and another one is away later. The two that answer do not show whether the lock is held.
#[tokio::test(start_paused = true)]
async fn lock_is_not_told_as_free_where_a_silent_server_decides() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    one.hang([2]);
    let guard = one.lock().acquire().lease(LEASE * 10).await.unwrap();
    one.heal();
    let lock = two.lock();
    assert!(lock.is_locked().await.unwrap());
    assert!(lock.remaining_lease().await.unwrap().is_some());
    two.hang([0]);
    assert!(guard.is_held());
    let error = lock.is_locked().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let error = lock.remaining_lease().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    two.heal();
    guard.release().await.unwrap();
    two.hang([0]);
    // The others are a majority that has it free.
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.remaining_lease().await.unwrap(), None);
    two.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn entered_again_inside_its_own_scope() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let nested = lock.acquire().run(async {
        let attempts = program.faults[0].calls(Op::Attempt);
        let again = lock.acquire().await.unwrap();
        assert_eq!(program.faults[0].calls(Op::Attempt), attempts);
        again.release().await
    });
    nested.await.unwrap().unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn guard_made_inside_another_one_ends_by_itself() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let outer = lock.acquire().await.unwrap();
    let body = async {
        let inner = lock.acquire().await.unwrap();
        let lost = inner.lost();
        inner.release().await.unwrap();
        timeout(LEASE / 100, lost).await.expect("it has ended");
    };
    outer.scope(body).await.unwrap();
    assert!(outer.is_held());
    outer.release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn section_of_a_guard_that_has_ended_is_not_lost() {
    let servers = Servers::new(3);
    let guard = servers.program().lock().acquire().await.unwrap();
    let mut section = guard.section();
    guard.release().await.unwrap();
    let polled = poll_fn(|cx| section.poll_in(cx, |_| Poll::Ready("done")));
    assert_eq!(polled.await.unwrap(), "done");
    servers.are_empty().await;
}

/// It re-enters the holds of the two servers that both locks have, and has nothing to do with the third one.
#[tokio::test(start_paused = true)]
async fn lock_on_other_servers_inside_a_scope_is_lost_by_itself() {
    let servers = Servers::new(4);
    let program = servers.program();
    let on = |at: [usize; 3]| Quorum::new(at.map(|at| program.clients[at].clone())).lock(KEY);
    let (lock, other) = (on([0, 1, 2]), on([0, 1, 3]));
    let guard = lock.acquire().await.unwrap();
    let body = async {
        let nested = other.acquire().await.unwrap();
        assert!(nested.is_held());
        program.clients[0].lock(KEY).force_release().await.unwrap();
        timeout(LEASE, nested.lost())
            .await
            .expect("a majority of its own is gone");
        assert!(!nested.is_held());
    };
    guard.scope(body).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn branches_that_name_the_servers_in_another_order_get_on() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let backwards = Quorum::new(program.clients.iter().rev().cloned()).lock(KEY);
    let visit = async |lock: RedLock| {
        let guard = lock.acquire().wait(LEASE).await.unwrap();
        guard.release().await.unwrap();
    };
    let body = async {
        let middle = program.clients[1].lock(KEY);
        let middle = middle.acquire().run(sleep(Duration::from_secs(1)));
        let (middle, (), ()) = tokio::join!(middle, visit(lock.clone()), visit(backwards));
        middle.unwrap();
    };
    lock.acquire().run(body).await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn no_server_is_refused() {
    let error = Quorum::new([]).lock(KEY).acquire().await.unwrap_err();
    assert!(matches!(error, Error::NoKeys), "{error}");
}

/// It would stand in its own way for ever.
#[tokio::test(start_paused = true)]
async fn client_that_comes_again_counts_once() {
    let servers = Servers::new(3);
    let program = servers.program();
    let [one, two, three] = [0, 1, 2].map(|at| program.clients[at].clone());
    let twice = Quorum::new([one.clone(), one.clone(), two.clone(), one, three, two]);
    let guard = twice.lock(KEY).try_acquire().await.unwrap().unwrap();
    assert_eq!(twice.lock(KEY).holders().await.unwrap().len(), 3);
    // A majority of three, and not of six.
    program.hang([0]);
    guard.release().await.unwrap();
    let wait = Duration::from_secs(1);
    let guard = twice.lock(KEY).acquire().wait(wait).await.unwrap();
    guard.release().await.unwrap();
    program.hang([1]);
    let error = twice.lock(KEY).acquire().wait(wait).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn crowd_of_programs_never_overlaps() {
    let servers = Servers::new(5);
    let programs: Vec<Program> = (0..3).map(|_| servers.program()).collect();
    programs[0].hang([0, 1]);
    programs[1].hang([3]);
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..9 {
        let (lock, inside) = (programs[n % 3].lock(), std::sync::Arc::clone(&inside));
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                sleep(Duration::from_millis(3)).await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    timeout(Duration::from_secs(600), all)
        .await
        .expect("it stands still");
    for program in &programs {
        program.heal();
    }
    servers.are_empty().await;
    let owed = || {
        let clients = programs.iter().flat_map(|program| &program.clients);
        clients
            .map(|client| sizes(client).pending_releases)
            .sum::<usize>()
    };
    // What hung is tried again about once a second.
    let start = Instant::now();
    while owed() > 0 {
        assert!(start.elapsed() < LEASE, "{} are owed", owed());
        sleep(Duration::from_millis(10)).await;
    }
}

/// A program with a client for each of these numbers of a server.
fn clients_of(servers: &Servers, numbers: &[usize]) -> Vec<Client> {
    let client = |number: &usize| {
        let builder = Client::builder().watchdog_timeout(LEASE);
        builder.in_memory(&servers.servers[*number]).unwrap()
    };
    numbers.iter().map(client).collect()
}

#[tokio::test(start_paused = true)]
async fn two_clients_of_one_server_are_refused_and_named_and_nothing_is_kept() {
    let servers = Servers::new(4);
    // Some of these would be granted a majority of the clients, and others never are.
    for numbers in [
        &[0, 0][..],
        &[0, 0, 1],
        &[1, 0, 1],
        &[0, 0, 0],
        &[0, 1, 2, 3, 3],
        &[0, 0, 1, 1, 2],
    ] {
        let lock = Quorum::new(clients_of(&servers, numbers)).lock(KEY);
        for wait in [Duration::ZERO, Duration::from_secs(60), Duration::MAX] {
            let acquire = timeout(LEASE, lock.acquire().wait(wait).into_future());
            let error = acquire.await.expect("it waits for itself").unwrap_err();
            let is_named = matches!(
                &error,
                Error::InvalidConfig { value, .. } if value.contains("memory and memory")
            );
            assert!(is_named, "{numbers:?}: {error}");
        }
        servers.are_empty().await;
    }
}

/// The question whether both clients use one server is not answered the first time.
#[tokio::test(start_paused = true)]
async fn two_clients_of_one_server_are_refused_by_the_round_in_which_the_server_answers() {
    let servers = Servers::new(1);
    let faults = Faults::new();
    let client = |_| {
        let builder = Client::builder().watchdog_timeout(LEASE).faults(&faults);
        builder.in_memory(&servers.servers[0]).unwrap()
    };
    let lock = Quorum::new((0..2).map(client)).lock(KEY);
    faults.next(Op::Renew, Fault::Never);
    let acquire = timeout(LEASE, lock.acquire().into_future());
    let error = acquire.await.expect("it waits for itself").unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    assert_eq!(faults.hits(Op::Renew), 1);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn two_clients_of_one_server_are_found_behind_another_owner() {
    let servers = Servers::new(2);
    let other = clients_of(&servers, &[0, 1]);
    let held = [
        other[0].lock(KEY).acquire().await.unwrap(),
        other[1].lock(KEY).acquire().await.unwrap(),
    ];
    let lock = Quorum::new(clients_of(&servers, &[0, 0, 1])).lock(KEY);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(lock.acquire().into_future());
    sleep(LEASE / 10).await;
    for held in held {
        held.release().await.unwrap();
    }
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    servers.are_empty().await;
}
