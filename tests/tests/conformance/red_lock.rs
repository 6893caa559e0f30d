//! Redlock on servers in this process: a majority is enough, and no less. What real servers do to it is a suite of its own.

use std::time::Duration;

use distlock::test_util::{Fault, Faults, Op, sizes, stored};
use distlock::{Client, Error, MemoryServer, MultiLock, QuorumLock, RedLock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(30);

/// Five servers, and one program with a client of each.
struct Servers {
    servers: Vec<MemoryServer>,
}

/// A program's clients, and what befalls each of them.
struct Program {
    clients: Vec<Client>,
    faults: Vec<Faults>,
}

impl Servers {
    fn new(count: usize) -> Self {
        Self {
            servers: (0..count).map(|_| MemoryServer::new()).collect(),
        }
    }

    fn program(&self) -> Program {
        let faults: Vec<Faults> = self.servers.iter().map(|_| Faults::new()).collect();
        let clients = self.servers.iter().zip(&faults).map(|(server, faults)| {
            let builder = Client::builder().watchdog_timeout(LEASE).faults(faults);
            builder.in_memory(server).unwrap()
        });
        Program {
            clients: clients.collect(),
            faults,
        }
    }

    async fn are_empty(&self) {
        let start = Instant::now();
        while !self.servers.iter().all(|server| stored(server).0 == 0) {
            assert!(start.elapsed() < LEASE, "a key is left");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Program {
    fn lock(&self) -> QuorumLock {
        RedLock::new(self.clients.clone()).lock(KEY)
    }

    /// These servers neither do anything nor answer.
    fn hang(&self, servers: impl IntoIterator<Item = usize>) {
        for server in servers {
            for op in [Op::Attempt, Op::Renew, Op::Release, Op::Inspect] {
                self.faults[server].always(op, Fault::Never);
            }
        }
    }

    fn heal(&self) {
        for faults in &self.faults {
            for op in [Op::Attempt, Op::Renew, Op::Release, Op::Inspect] {
                faults.clear(op);
            }
        }
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
async fn hung_minority_costs_neither_the_lock_nor_time() {
    let servers = Servers::new(5);
    let program = servers.program();
    program.hang([0, 3]);
    let start = Instant::now();
    let guard = program.lock().acquire().await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(10),
        "{:?}",
        start.elapsed()
    );
    let start = Instant::now();
    guard.release().await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(10),
        "{:?}",
        start.elapsed()
    );
    program.heal();
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
async fn slow_minority_costs_no_time_and_is_released_as_well() {
    let servers = Servers::new(5);
    let program = servers.program();
    for faults in &program.faults[..2] {
        let slow = Fault::DelayReply(Duration::from_secs(1));
        faults.always(Op::Attempt, slow);
        faults.always(Op::Release, slow);
    }
    let start = Instant::now();
    let guard = program.lock().acquire().await.unwrap();
    guard.release().await.unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(20), "{took:?}");
    servers.are_empty().await;
}

/// A majority granted it, and nearly all of the lease has gone by then.
#[tokio::test(start_paused = true)]
async fn majority_that_answers_when_the_lease_is_nearly_over_is_no_grant() {
    let servers = Servers::new(5);
    let program = servers.program();
    let (lease, wait) = (Duration::from_millis(200), Duration::from_secs(1));
    for faults in &program.faults[..3] {
        let late = Fault::DelayReply(Duration::from_millis(160));
        faults.always(Op::Attempt, late);
    }
    let guard = program.lock().acquire().lease(lease).wait(wait).await;
    let error = guard.unwrap_err();
    assert!(error.is_busy() || error.is_unavailable(), "{error}");
    assert!(program.faults[0].hits(Op::Attempt) > 0);
    program.heal();
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

#[tokio::test(start_paused = true)]
async fn hung_majority_is_unavailable_and_leaves_nothing() {
    let servers = Servers::new(5);
    let program = servers.program();
    program.hang([0, 1, 2]);
    let start = Instant::now();
    let error = program.lock().acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
    let wait = Duration::from_secs(1);
    let error = program.lock().acquire().wait(wait).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    program.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn waiter_gets_in_after_the_release() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    let releasing = async {
        sleep(Duration::from_secs(3)).await;
        guard.release().await.unwrap();
        Instant::now()
    };
    let waiting = async {
        let guard = two.lock().acquire().await.unwrap();
        let at = Instant::now();
        guard.release().await.unwrap();
        at
    };
    let (released, granted) = tokio::join!(releasing, waiting);
    assert!(granted.duration_since(released) < Duration::from_millis(100));
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn watchdog_keeps_it_with_a_minority_gone_and_it_is_lost_with_a_majority() {
    let servers = Servers::new(5);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.hang([1, 2]);
    sleep(LEASE * 3).await;
    assert!(guard.is_held());
    program.hang([3]);
    let start = Instant::now();
    timeout(LEASE, guard.lost())
        .await
        .expect("lost with the majority");
    assert!(start.elapsed() <= LEASE && !guard.is_held());
    program.heal();
    assert!(guard.release().await.unwrap_err().is_lost());
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn lost_somewhat_before_its_lease_ends_for_clocks_drift() {
    let servers = Servers::new(3);
    let program = servers.program();
    let start = Instant::now();
    let guard = program.lock().acquire().lease(LEASE).await.unwrap();
    guard.lost().await;
    let margin = LEASE / 100 + Duration::from_millis(2);
    let expected = LEASE - margin;
    let early = expected.abs_diff(start.elapsed());
    assert!(early < Duration::from_millis(5), "{:?}", start.elapsed());
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn grant_that_nobody_heard_of_is_released_too() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    one.faults[2].next(Op::Attempt, Fault::FailAfter);
    let guard = one.lock().acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(one.faults[2].hits(Op::Attempt), 1);
    servers.are_empty().await;
    two.lock()
        .try_acquire()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn forced_majority_is_a_loss_and_forced_minority_is_none() {
    let servers = Servers::new(3);
    let program = servers.program();
    let guard = program.lock().acquire().await.unwrap();
    program.clients[0].lock(KEY).force_release().await.unwrap();
    sleep(LEASE).await;
    assert!(guard.is_held());
    program.clients[1].lock(KEY).force_release().await.unwrap();
    timeout(LEASE / 2, guard.lost())
        .await
        .expect("a majority is gone");
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
async fn held_by_another_is_busy_also_with_a_minority_gone() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    two.faults[0].always(Op::Attempt, Fault::FailBefore);
    assert!(two.lock().try_acquire().await.unwrap().is_none());
    let releasing = async {
        sleep(LEASE).await;
        guard.release().await.unwrap();
    };
    let waiting = async { two.lock().acquire().await.unwrap() };
    let ((), guard) = tokio::join!(releasing, waiting);
    guard.release().await.unwrap();
    two.faults[0].clear(Op::Attempt);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_do_not_keep_each_other_busy_with_a_minority_that_is_free() {
    let servers = Servers::new(3);
    let (one, two, holder) = (servers.program(), servers.program(), servers.program());
    let mut held = Vec::new();
    for client in &holder.clients[1..] {
        held.push(client.lock(KEY).acquire().await.unwrap());
    }
    let wait = Duration::from_secs(60);
    let (first, second) = (one.lock(), two.lock());
    let (first, second) = tokio::join!(
        first.acquire().wait(wait).into_future(),
        second.acquire().wait(wait).into_future()
    );
    assert!(first.unwrap_err().is_busy() && second.unwrap_err().is_busy());
    let rounds = [&one, &two].map(|program| program.faults[0].calls(Op::Attempt));
    // Where nothing says when to ask again it is after five seconds.
    assert!(
        rounds.iter().all(|rounds| *rounds < 30),
        "{rounds:?} rounds in a minute"
    );
    drop(held);
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn waiter_asks_again_soon_after_an_outage_of_a_majority() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    for faults in &two.faults[1..] {
        faults.always(Op::Attempt, Fault::FailBefore);
    }
    let waiting = tokio::spawn(two.lock().acquire().into_future());
    sleep(Duration::from_millis(100)).await;
    two.heal();
    guard.release().await.unwrap();
    let got_in = timeout(Duration::from_secs(1), waiting).await;
    let guard = got_in.expect("no news of who was away").unwrap();
    guard.unwrap().release().await.unwrap();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn wait_that_ends_while_it_asks_once_more_was_a_wait_for_others() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let guard = one.lock().acquire().await.unwrap();
    let wait = Duration::from_secs(1);
    // The first has been refused when it asks again, the second was behind it.
    let first = tokio::spawn(two.lock().acquire().wait(wait).into_future());
    sleep(wait / 100).await;
    let second = tokio::spawn(two.lock().acquire().wait(wait * 101 / 100).into_future());
    sleep(wait * 9 / 10).await;
    two.hang(0..3);
    guard.release().await.unwrap();
    for waiting in [first, second] {
        let error = waiting.await.unwrap().unwrap_err();
        assert!(error.is_busy(), "{error}");
    }
    two.heal();
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn servers_whose_clocks_began_at_different_times() {
    let servers = Servers::new(3);
    let program = servers.program();
    program.clients[0]
        .lock("other")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    sleep(LEASE * 3).await;
    let guard = program
        .lock()
        .acquire()
        .lease(LEASE)
        .wait(LEASE)
        .await
        .unwrap();
    let start = Instant::now();
    timeout(LEASE * 2, guard.lost())
        .await
        .expect("its lease is over");
    assert!(start.elapsed() > LEASE / 2, "{:?}", start.elapsed());
    let members = program
        .clients
        .iter()
        .map(|client| client.lock("all").into());
    let guard = MultiLock::of(members).acquire().lease(LEASE).await.unwrap();
    timeout(LEASE * 2, guard.lost())
        .await
        .expect("its lease is over");
}

#[tokio::test(start_paused = true)]
async fn branches_that_name_the_servers_in_another_order_get_on() {
    let servers = Servers::new(3);
    let program = servers.program();
    let lock = program.lock();
    let backwards = RedLock::new(program.clients.iter().rev().cloned()).lock(KEY);
    let visit = async |lock: QuorumLock| {
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
async fn servers_that_were_taken_in_vain_do_not_stay_taken() {
    let servers = Servers::new(3);
    let (one, two) = (servers.program(), servers.program());
    let mut others = Vec::new();
    for client in &two.clients[1..] {
        others.push(client.lock(KEY).acquire().await.unwrap());
    }
    let time = LEASE * 10;
    let job = one.lock().acquire().hold_at_least(time);
    let busy = job.clone().wait(Duration::ZERO).await.unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    let start = Instant::now();
    let job = tokio::spawn(job.into_future());
    sleep(Duration::from_secs(1)).await;
    for other in others {
        other.release().await.unwrap();
    }
    let job = job.await.unwrap().unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "its own rest was in its way"
    );
    job.release().await.unwrap();
    assert!(two.lock().try_acquire().await.unwrap().is_none());
    sleep(time).await;
    servers.are_empty().await;
}

#[tokio::test(start_paused = true)]
async fn outage_of_a_majority_is_no_crowd() {
    let servers = Servers::new(3);
    let program = servers.program();
    program.hang([0, 1]);
    let error = program.lock().acquire().max_waiters(0).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    program.heal();
}

#[tokio::test(start_paused = true)]
async fn no_server_is_refused() {
    let error = RedLock::new([]).lock(KEY).acquire().await.unwrap_err();
    assert!(matches!(error, Error::NoKeys), "{error}");
}

/// It would stand in its own way for ever.
#[tokio::test(start_paused = true)]
async fn client_that_comes_again_counts_once() {
    let servers = Servers::new(3);
    let program = servers.program();
    let [one, two, three] = [0, 1, 2].map(|at| program.clients[at].clone());
    let twice = RedLock::new([one.clone(), one.clone(), two.clone(), one, three, two]);
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
        clients.map(|client| sizes(client).owed).sum::<usize>()
    };
    // What hung is tried again about once a second.
    let start = Instant::now();
    while owed() > 0 {
        assert!(start.elapsed() < LEASE, "{} are owed", owed());
        sleep(Duration::from_millis(10)).await;
    }
}
