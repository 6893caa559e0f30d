//! Rows 85, 86, 88, 89 and 92: ends of holds that meet others, and grants that come late.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Guard, Loss, Owner};
use distlock_tests::faults::{Fault, Op};
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, size};
use futures_util::future::join_all;
use parking_lot::Mutex;
use rand::RngExt;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::log::lines_with;
use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{
    Inside, SOON, client, client_with, default_client, free, listened, ms,
    waiting as waiting_in_line, warm_up,
};

const KEY: &str = "order:42";

/// The loss that an end of a hold came back with.
fn loss(ended: Result<(), Error>) -> Option<Loss> {
    match ended {
        Err(Error::Lost { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    }
}

/// The server has this hold of the key, and no other.
async fn stands(server: &RedisServer, guard: &Guard) {
    let held = server.hgetall(guard.key()).await;
    let owner = guard.owner().to_string();
    assert_eq!(held.keys().collect::<Vec<_>>(), [&owner], "{guard:?}");
    assert!(guard.is_held());
}

/// Locks a key of its own again and again, until it is aborted.
async fn hammer(client: Client) {
    loop {
        client
            .lock("load")
            .acquire()
            .run(yield_now())
            .await
            .unwrap();
    }
}

/// Takes the key away from its holder and holds it; the old one is told, or asks by its release, and ends nothing of the
/// new.
async fn forced(server: &RedisServer, old: Guard, other: &Client, told: bool) {
    let lock = other.lock(old.key());
    assert!(lock.force_release().await.unwrap(), "it was held");
    let new = lock.acquire().wait(SOON).await.unwrap();
    if told {
        old.lost().await;
    }
    // By a renewal or its own release, and not by the clock at the end of the lease.
    assert_eq!(loss(old.release().await), Some(Loss::Gone));
    stands(server, &new).await;
    new.release().await.unwrap();
}

async fn f85_force_release_under_load_is_told_and_the_next_owner_is_not_touched(row: &Row) {
    let holds = size(500, 1_000);
    const AT_ONCE: usize = 500;
    let server = RedisServer::start().await;
    let lease = ms(6_000);
    let us = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let other = default_client(&server.url()).await;
    let mut load = JoinSet::new();
    (0..4).for_each(|_| drop(load.spawn(hammer(us.clone()))));
    for wave in 0..holds / AT_ONCE {
        let lock = |n| us.lock(format!("{wave}:{n}"));
        let acquiring = (0..AT_ONCE).map(|n| lock(n).acquire().into_future());
        let held = join_all(acquiring).await;
        let each = held.into_iter().enumerate();
        let forced = each.map(|(n, old)| forced(&server, old.unwrap(), &other, n % 2 == 0));
        let all = join_all(forced);
        let forced = timeout(SOON, all).await.expect("all are told").len();
        row.injected("force-release under a holder", forced as u64);
    }
    load.shutdown().await;
    free(&server, &[&us, &other]).await;
}

async fn f85_hold_that_is_handed_over_after_a_force_release_is_told_soon(row: &Row) {
    const KEY: &str = "handed:over:after:its:loss";
    let server = RedisServer::start().await;
    // A third of it, after which a regular renewal would find the loss, is far longer than what is waited for.
    let lease = ms(90_000);
    let us = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let other = default_client(&server.url()).await;
    let handed_over_late = async || {
        let first = us.lock(KEY).acquire().await.unwrap();
        let waiting = tokio::spawn(us.lock(KEY).acquire().into_future());
        waiting_in_line(&us, 1).await;
        assert!(other.lock(KEY).force_release().await.unwrap());
        let inside = other.lock(KEY).acquire().wait(SOON).await.unwrap();
        // Released in the server instead if the machine needs longer than a run of hand-overs for these steps.
        let handed_over = first.release().await.is_ok();
        if handed_over {
            let second = waiting.await.unwrap().unwrap();
            row.timeout(SOON, second.lost()).await.expect("told");
            assert_eq!(loss(second.release().await), Some(Loss::Gone));
        } else {
            waiting.abort();
        }
        inside.release().await.unwrap();
        handed_over
    };
    for n in 1.. {
        assert!(n <= 100, "never handed over");
        if handed_over_late().await {
            break;
        }
    }
    row.injected("force-release before a hand-over", 1);
    let told = lines_with(&["handed over before the loss was found", KEY]);
    assert_eq!(told, 1, "lines in the log");
    free(&server, &[&us, &other]).await;
}

/// The old owner ends when another has the key. Does that one keep it?
async fn ends_late(server: &RedisServer, old: Guard, new: &Guard, by_drop: bool, why: Loss) {
    if by_drop {
        drop(old);
    } else {
        assert_eq!(loss(old.release().await), Some(why));
    }
    stands(server, new).await;
}

async fn f86_release_of_a_hold_that_another_has_by_now_is_lost_and_ends_nothing(row: &Row) {
    let holds = size(30, 100);
    let server = RedisServer::start().await;
    let (us, other) = (
        default_client(&server.url()).await,
        default_client(&server.url()).await,
    );
    for n in 0..holds {
        let (lock, theirs, by_drop) = (us.lock(KEY), other.lock(KEY), n % 2 == 0);
        // Taken away: the old owner does not know of it, and its release is the first to ask the server.
        let old = lock.acquire().await.unwrap();
        server.cli(&["DEL", KEY]).await;
        let new = theirs.try_acquire().await.unwrap().unwrap();
        assert!(old.is_held());
        ends_late(&server, old, &new, by_drop, Loss::Gone).await;
        new.release().await.unwrap();
        // Expired.
        let old = lock.acquire().lease(ms(20)).await.unwrap();
        let new = theirs.acquire().wait(SOON).await.unwrap();
        ends_late(&server, old, &new, by_drop, Loss::Expired).await;
        stands(&server, &new).await;
        new.release().await.unwrap();
        row.injected("hold that another had by its end", 2);
    }
    free(&server, &[&us, &other]).await;
}

async fn f88_grants_that_arrive_late_in_memory_are_never_handed_out_near_their_end(row: &Row) {
    let stage = Stage::memory();
    let client = stage.faulty_client().await;
    let (lock, lease) = (client.lock(KEY), ms(45));
    for _ in 0..1_000 {
        let delay = lease * rand::rng().random_range(50..150) / 100;
        stage.faults().next(Op::Attempt, Fault::DelayReply(delay));
        let guard = lock.acquire().lease(lease).await.unwrap();
        let left = lock.remaining_lease().await.unwrap().unwrap();
        assert!(
            guard.is_held() && left >= lease / 3,
            "{left:?} after {delay:?}"
        );
        guard.release().await.unwrap();
    }
    stage.nothing_is_left().await;
    let faults = stage.faults();
    assert_eq!(faults.hits(Op::Attempt), 1_000);
    // One that was given back took another attempt.
    let late = faults.calls(Op::Attempt) - faults.hits(Op::Attempt);
    assert!(late < 1_000, "all were given back");
    row.injected("grant that came too late", late as u64);
}

async fn f88_grants_that_arrive_late_are_never_handed_out_when_their_lease_is_over(row: &Row) {
    const AT_ONCE: usize = 200;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = default_client(&proxy.url()).await;
    warm_up(&client).await;
    // Its third is longer than a stutter of the machine between a grant and the look at it.
    let lease = ms(900);
    let (mut handed_out, mut given_back) = (0, 0);
    for tenths in [5, 6, 9, 11, 15] {
        let slow = Flow::Delay(lease * tenths / 10);
        let fault = proxy.flow(Select::ALL, Way::Down, slow);
        let tries = (0..AT_ONCE).map(|n| {
            let acquire = client.lock(format!("{tenths}:{n}")).acquire();
            async {
                let guard = acquire.wait(Duration::ZERO).lease(lease).await.ok()?;
                assert!(guard.is_held(), "expired when it was handed out");
                Some(guard)
            }
        });
        let guards = join_all(tries).await;
        let held = guards.iter().flatten().count();
        (handed_out, given_back) = (handed_out + held, given_back + AT_ONCE - held);
        row.injected("reply delayed", fault.hits());
        fault.lift();
    }
    assert!(
        handed_out > 0 && given_back >= 3 * AT_ONCE,
        "{handed_out} handed out"
    );
    free(&server, &[&client]).await;
}

/// Where nobody answers from some time on.
#[derive(Clone, Copy, Debug)]
enum Silent {
    /// The attempt is not answered.
    Attempt,
    /// A connection has to be made, and does not come to stand.
    Connecting,
    /// The lock is held, and the subscription is not confirmed.
    Subscribing,
    /// The waiter is woken by the release, and its last try is not answered.
    LastTry,
}

impl Silent {
    /// The connections that fall silent.
    fn select(self) -> Select {
        match self {
            Self::Attempt => Select::ALL,
            Self::Connecting => Select::NEW,
            Self::Subscribing => Select::SUBSCRIBERS,
            Self::LastTry => Select::COMMANDS,
        }
    }

    fn is_told(self, error: &Error) -> bool {
        match self {
            Self::Attempt | Self::Connecting => error.is_unavailable(),
            Self::Subscribing => error.is_busy(),
            // By how long nobody has answered.
            Self::LastTry => error.is_unavailable() || error.is_busy(),
        }
    }
}

/// One wait that meets silence: how long it took, its error, and how many messages were met.
async fn waits(server: &RedisServer, silent: Silent, wait: Duration) -> (Duration, Error, u64) {
    let proxy = Proxy::start(server.addr()).await;
    // So patient that only the wait's own end can be in time.
    let patient = |builder: distlock::Builder| builder.response_timeout(ms(3_000));
    let (us, other) = (
        client_with(&proxy.url(), patient).await,
        default_client(&server.url()).await,
    );
    warm_up(&us).await;
    let falls = || proxy.flow(silent.select(), Way::Both, Flow::Stall);
    let held = match silent {
        Silent::Attempt | Silent::Connecting => None,
        Silent::Subscribing | Silent::LastTry => Some(other.lock(KEY).acquire().await.unwrap()),
    };
    let last = matches!(silent, Silent::LastTry);
    let early = (!last).then(falls);
    if matches!(silent, Silent::Connecting) {
        assert!(proxy.cut(Select::EXISTING) > 0);
    }
    let start = Instant::now();
    let waiter = tokio::spawn(us.lock(KEY).acquire().wait(wait).into_future());
    if last {
        listened(server, KEY, 1).await;
    }
    let fault = early.unwrap_or_else(falls);
    // Its release wakes the waiter there; in other cases it stays.
    let held = held.filter(|_| !last);
    let waited = timeout(SOON, waiter).await.expect("bounded").unwrap();
    let (took, hits) = (start.elapsed(), fault.hits());
    proxy.heal();
    drop(held);
    free(server, &[&us, &other]).await;
    (took, waited.expect_err("nobody answered"), hits)
}

async fn f89_wait_bounds_connecting_subscribing_and_the_last_try(row: &Row) {
    let server = RedisServer::start().await;
    let wait = ms(700);
    for silent in [
        Silent::Attempt,
        Silent::Connecting,
        Silent::Subscribing,
        Silent::LastTry,
    ] {
        let (took, error, hits) = waits(&server, silent, wait).await;
        assert!(
            took >= wait && took <= wait + row.stretch(10 * ms(100)),
            "{silent:?}: {took:?}"
        );
        assert!(silent.is_told(&error), "{silent:?}: {error}");
        assert!(hits > 0, "{silent:?}");
        row.injected("message stalled", hits);
    }
}

async fn f89_wait_of_zero_is_one_try_that_ends_when_nobody_answers(row: &Row) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let (us, other) = (
        client(&proxy.url()).await,
        default_client(&server.url()).await,
    );
    warm_up(&us).await;
    let held = other.lock(KEY).acquire().await.unwrap();
    let before = server.command_calls("evalsha").await;
    assert!(
        us.lock(KEY)
            .acquire()
            .wait(Duration::ZERO)
            .await
            .unwrap_err()
            .is_busy()
    );
    assert_eq!(server.command_calls("evalsha").await - before, 1);
    held.release().await.unwrap();
    // The response timeout is 300 ms, and what is sent later frees what came through.
    let fault = proxy.flow(Select::ALL, Way::Both, Flow::Stall);
    let start = Instant::now();
    let error = us
        .lock(KEY)
        .acquire()
        .wait(Duration::ZERO)
        .await
        .unwrap_err();
    assert!(
        error.is_unavailable() && start.elapsed() < row.stretch(ms(3_000)),
        "{error}"
    );
    row.injected("message stalled", fault.hits());
    proxy.heal();
    free(&server, &[&us, &other]).await;
}

async fn f89_waits_in_memory_end_within_100_ms_whatever_the_backend_does(row: &Row) {
    let stage = Stage::memory();
    let client = stage.faulty_client().await;
    for wait in [ms(40), ms(1_000), ms(3_000)] {
        for fault in [
            Fault::Never,
            Fault::Delay(2 * wait),
            Fault::DelayReply(2 * wait),
            Fault::FailBefore,
            Fault::FailAfter,
        ] {
            stage.faults().always(Op::Attempt, fault);
            let start = Instant::now();
            let acquired = client.lock(KEY).acquire().wait(wait).await;
            let took = start.elapsed();
            assert!(acquired.is_err(), "{fault:?}");
            assert!(
                took >= wait && took <= wait + ms(100),
                "{fault:?}: {took:?}"
            );
            stage.heal();
            stage.free_within(ms(200)).await;
        }
    }
    row.injected(
        "attempt that failed",
        stage.faults().hits(Op::Attempt) as u64,
    );
    stage.nothing_is_left().await;
}

/// Waiters that hand the hold over to each other.
struct Relay<'a> {
    stage: &'a Stage,
    client: Client,
    inside: AtomicUsize,
    former: Mutex<Option<Owner>>,
    hand_overs: AtomicUsize,
}

impl Relay<'_> {
    /// The next renewal and the next release meet a fault, or pass.
    fn plan(&self) {
        let by = ms(rand::rng().random_range(0..60));
        for op in [Op::Renew, Op::Release] {
            let faults = [
                Fault::FailAfter,
                Fault::Delay(by),
                Fault::DelayReply(by),
                Fault::Late(by),
                Fault::FailBefore,
            ];
            self.stage.faults().clear(op);
            self.stage
                .faults()
                .next(op, faults[rand::rng().random_range(0..faults.len())]);
        }
    }

    /// One section. It was never told of a loss: it ends its hold itself.
    async fn section(&self) {
        let guard = self.client.lock(KEY).acquire().await.unwrap();
        let inside = Inside::enter(&self.inside);
        let former = self.former.lock().replace(guard.owner());
        let handed = former == Some(guard.owner());
        self.hand_overs
            .fetch_add(usize::from(handed), Ordering::SeqCst);
        self.plan();
        // A changed count is stated by a renewal, which may be answered in the next section or the one after.
        let way = rand::rng().random_range(0..8);
        let again = (way < 4).then(|| guard.reenter().expect("held"));
        for _ in 0..way {
            yield_now().await;
        }
        if way == 7 {
            sleep(ms(5)).await;
        }
        drop(again);
        assert!(guard.is_held(), "lost a hold that it did not end");
        drop(inside);
        match way % 2 {
            0 => drop(guard),
            _ => guard.release().await.expect("its own end"),
        }
    }
}

/// Local waiters hand a hold over to each other, while renewals and releases fail, come late and are slow.
async fn hand_overs(stage: &Stage, row: &Row, wanted: usize) {
    let relay = Relay {
        stage,
        client: stage.faulty_client().await,
        inside: AtomicUsize::new(0),
        former: Mutex::default(),
        hand_overs: AtomicUsize::new(0),
    };
    let runners = (0..8).map(|_| async {
        while relay.hand_overs.load(Ordering::SeqCst) < wanted {
            relay.section().await;
        }
    });
    join_all(runners).await;
    stage.heal();
    let faults = stage.faults();
    for (fault, hits) in [
        ("hand-over", relay.hand_overs.into_inner()),
        ("fault of a renewal", faults.hits(Op::Renew)),
        ("fault of a release", faults.hits(Op::Release)),
    ] {
        assert!(hits > 10, "{fault}: {hits}");
        row.injected(fault, hits as u64);
    }
    stage.nothing_is_left().await;
}

async fn f92_hand_overs_in_memory_with_failing_renewals_and_releases_lose_no_hold(row: &Row) {
    hand_overs(&Stage::memory(), row, size(3_000, 10_000)).await;
}

async fn f92_hand_overs_with_failing_renewals_and_releases_lose_no_hold(row: &Row) {
    // As many as in memory would take a quarter of a minute.
    hand_overs(&Stage::redis().await, row, size(800, 4_000)).await;
}

rows! {
    Paused:
        f88_grants_that_arrive_late_in_memory_are_never_handed_out_near_their_end,
        f89_waits_in_memory_end_within_100_ms_whatever_the_backend_does,
        f92_hand_overs_in_memory_with_failing_renewals_and_releases_lose_no_hold;
    Real:
        f85_force_release_under_load_is_told_and_the_next_owner_is_not_touched,
        f85_hold_that_is_handed_over_after_a_force_release_is_told_soon,
        f86_release_of_a_hold_that_another_has_by_now_is_lost_and_ends_nothing,
        f88_grants_that_arrive_late_are_never_handed_out_when_their_lease_is_over,
        f89_wait_bounds_connecting_subscribing_and_the_last_try,
        f89_wait_of_zero_is_one_try_that_ends_when_nobody_answers,
        f92_hand_overs_with_failing_renewals_and_releases_lose_no_hold;
}
