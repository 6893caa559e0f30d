//! Row 89: a wait ends in time, whichever part of the server does not answer.

use std::time::Duration;

use distlock::Error;
use distlock_tests::faults::{Fault, Op};
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way};
use tokio::time::{Instant, timeout};

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{SOON, client, client_with, default_client, free, listened, ms, warm_up};

const KEY: &str = "order:42";

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
            // By the time without an answer.
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

rows! {
    Paused: f89_waits_in_memory_end_within_100_ms_whatever_the_backend_does;
    Real: f89_wait_bounds_connecting_subscribing_and_the_last_try,
        f89_wait_of_zero_is_one_try_that_ends_when_nobody_answers;
}
