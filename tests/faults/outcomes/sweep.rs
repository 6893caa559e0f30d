//! Every fault of the wire in every operation, once: it ends in time with an outcome that is declared, and all is free
//! afterwards. Rows 1, 3, 4, 5 and 8 at once; each test is one fault.
//!
//! The lease is 30 s but for renewals, so that its end does not free what the library should.

use std::time::Duration;

use distlock::{Client, Error, Guard};
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, Which};
use tokio::time::{Instant, timeout};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, free, ms, server_and_proxy, warm_up};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// The connection is a black hole from here on; others are not.
    Stall,
    /// The operation is carried out, its answer lost with the connection.
    EatReply,
    /// The operation is carried out when nobody waits for it any more.
    Hold,
    /// The connection is reset, and the operation lost with it.
    Cut,
    /// The answers end while the operation is under way, and it is carried out.
    Fin,
    /// The whole server stands still, as long as the operation goes on.
    Stop,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Acquire,
    Renewal,
    Release,
    ForceRelease,
    Inspect,
    Once,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Acquire,
    Operation::Renewal,
    Operation::Release,
    Operation::ForceRelease,
    Operation::Inspect,
    Operation::Once,
];

/// How long an operation that may be tried again goes on, and how long one try does.
const PATIENCE: Duration = ms(2_500);
const TRY: Duration = ms(300);

/// Where a renewal is what meets the fault: with two tries lost, more than a second is left of it.
const LEASE: Duration = ms(4_000);

struct Bench {
    server: RedisServer,
    proxy: Proxy,
    /// Behind the proxy, with a lease of 30 s, and with a short one.
    client: Client,
    renewing: Client,
    /// Not behind the proxy.
    other: Client,
}

impl Bench {
    async fn new() -> Self {
        let (server, proxy) = server_and_proxy().await;
        let url = proxy.url();
        let client = client_with(&url, |builder| {
            builder.response_timeout(TRY).unavailable_after(PATIENCE)
        });
        let renewing = client_with(&url, |builder| {
            builder.response_timeout(TRY).watchdog_timeout(LEASE)
        });
        let bench = Self {
            client: client.await,
            renewing: renewing.await,
            other: crate::support::client(&server.url()).await,
            server,
            proxy,
        };
        warm_up(&bench.client).await;
        warm_up(&bench.renewing).await;
        let lock = bench.client.lock("warm:up");
        assert!(!lock.force_release().await.unwrap() && !lock.is_locked().await.unwrap());
        bench
    }

    /// Awaits an operation on `key` with the wire broken. Returns its outcome, and how often the fault happened.
    async fn broken<T>(
        &mut self,
        how: Break,
        key: &str,
        operation: impl Future<Output = T>,
    ) -> (T, u64) {
        let proxy = &self.proxy;
        let which = Which::NEXT.containing(key);
        match how {
            Break::Stall => {
                let stall = proxy.flow(Select::COMMANDS.existing(), Way::Both, Flow::Stall);
                let outcome = operation.await;
                stall.lift();
                (outcome, stall.hits())
            }
            Break::EatReply => {
                let eaten = proxy.eat_reply(Select::COMMANDS, which);
                (operation.await, eaten.hits())
            }
            Break::Hold => {
                let held = proxy.hold(Select::COMMANDS, which);
                let outcome = operation.await;
                let late = held.caught(TRY).await.deliver().await;
                (outcome, u64::from(late.is_some()))
            }
            Break::Cut => {
                let held = proxy.hold(Select::COMMANDS, which);
                let cut = async { drop(held.caught(SOON).await) };
                (tokio::join!(operation, cut).0, 1)
            }
            Break::Fin => {
                let held = proxy.hold(Select::COMMANDS, which);
                let end = async {
                    let caught = held.caught(SOON).await;
                    let on = Select::one(caught.connection_id());
                    let ended = proxy.fin(on, Way::Down);
                    assert!(caught.deliver().await.is_some());
                    ended as u64
                };
                tokio::join!(operation, end)
            }
            Break::Stop => {
                let sent = proxy.flow(Select::COMMANDS, Way::Up, Flow::Pass);
                self.server.stop();
                let outcome = operation.await;
                self.server.cont();
                sent.lift();
                (outcome, sent.hits())
            }
        }
    }

    /// One operation meets one fault.
    async fn meet(&mut self, how: Break, operation: Operation) -> u64 {
        let key = format!("sweep:{operation:?}");
        let lock = self.client.lock(&key);
        let stopped = how == Break::Stop;
        match operation {
            Operation::Acquire => {
                let acquiring = lock.acquire().wait(PATIENCE).into_future();
                let (acquired, seen) = self.in_time(how, &key, PATIENCE, acquiring).await;
                assert_eq!(acquired.is_err(), stopped, "{acquired:?}");
                leave(acquired.map(Some)).await;
                seen
            }
            Operation::Once => {
                let (acquired, seen) = self.in_time(how, &key, TRY, lock.try_acquire()).await;
                assert!(!matches!(acquired, Ok(None)), "nobody held it");
                leave(acquired).await;
                seen
            }
            Operation::Renewal => self.meet_renewal(how, &key).await,
            Operation::Release => {
                let guard = lock.acquire().await.unwrap();
                let (released, seen) = self.in_time(how, &key, PATIENCE, guard.release()).await;
                assert_eq!(released.is_err(), stopped, "{released:?}");
                unavailable(released.err());
                seen
            }
            Operation::ForceRelease => {
                let held = self.other.lock(&key).acquire().await.unwrap();
                let (forced, seen) = self.in_time(how, &key, TRY, lock.force_release()).await;
                assert!(!matches!(forced, Ok(false)), "it was held");
                unavailable(forced.err());
                // Executed or not: neither is promised.
                let released = held.release().await;
                assert!(
                    released.as_ref().err().is_none_or(Error::is_lost),
                    "{released:?}"
                );
                seen
            }
            Operation::Inspect => {
                let (locked, seen) = self.in_time(how, &key, TRY, lock.is_locked()).await;
                assert!(!matches!(locked, Ok(true)), "nobody held it");
                unavailable(locked.err());
                seen
            }
        }
    }

    /// A fault of one connection is survived; a server that stands still for longer than the lease is not, and the
    /// loss is reported before it goes on.
    async fn meet_renewal(&mut self, how: Break, key: &str) -> u64 {
        let guard = self.renewing.lock(key).acquire().await.unwrap();
        let lost = timeout(LEASE * 3 / 2, guard.lost());
        let (lost, seen) = self.broken(how, key, lost).await;
        assert_eq!(
            (lost.is_ok(), guard.is_held()),
            (how == Break::Stop, how != Break::Stop)
        );
        let released = guard.release().await;
        assert!(
            released.as_ref().err().is_none_or(Error::is_lost),
            "{released:?}"
        );
        seen
    }

    /// As [`broken`](Bench::broken), and it takes no longer than ten times what it may.
    async fn in_time<T>(
        &mut self,
        how: Break,
        key: &str,
        may_take: Duration,
        operation: impl Future<Output = T>,
    ) -> (T, u64) {
        let start = Instant::now();
        let timed = async { (operation.await, start.elapsed()) };
        let ((outcome, took), seen) = self.broken(how, key, timed).await;
        let limit = SOON.min(10 * may_take);
        assert!(took <= limit, "took {took:?}, and may take {may_take:?}");
        (outcome, seen)
    }
}

/// The one error that a broken wire may end in.
#[track_caller]
fn unavailable(error: Option<Error>) {
    assert!(
        error.as_ref().is_none_or(Error::is_unavailable),
        "{error:?}"
    );
}

async fn leave(acquired: Result<Option<Guard>, Error>) {
    match acquired {
        Ok(Some(guard)) => guard.release().await.unwrap(),
        Ok(None) => {}
        Err(error) => unavailable(Some(error)),
    }
}

async fn sweep(row: &Row, how: Break, named: &'static str) {
    let mut bench = Bench::new().await;
    for operation in OPERATIONS {
        let seen = bench.meet(how, operation).await;
        assert!(seen > 0, "{operation:?} never met {how:?}");
        row.injected(named, seen);
        free(
            &bench.server,
            &[&bench.client, &bench.renewing, &bench.other],
        )
        .await;
    }
}

async fn f01_black_hole_in_any_operation_ends_in_time_and_leaves_all_free(row: &Row) {
    sweep(row, Break::Stall, "message stalled").await;
}

async fn f01_lost_reply_of_any_operation_ends_in_time_and_leaves_all_free(row: &Row) {
    sweep(row, Break::EatReply, "reply eaten").await;
}

async fn f01_reset_in_any_operation_ends_in_time_and_leaves_all_free(row: &Row) {
    sweep(row, Break::Cut, "connection cut").await;
}

async fn f01_half_close_in_any_operation_ends_in_time_and_leaves_all_free(row: &Row) {
    sweep(row, Break::Fin, "direction closed").await;
}

async fn f04_late_request_of_any_operation_ends_in_time_and_leaves_all_free(row: &Row) {
    sweep(row, Break::Hold, "request delivered late").await;
}

async fn f08_stopped_server_in_any_operation_ends_in_time_and_leaves_all_free(row: &Row) {
    sweep(row, Break::Stop, "request to a stopped server").await;
}

rows! {
    Real: f01_black_hole_in_any_operation_ends_in_time_and_leaves_all_free,
        f01_lost_reply_of_any_operation_ends_in_time_and_leaves_all_free,
        f01_reset_in_any_operation_ends_in_time_and_leaves_all_free,
        f01_half_close_in_any_operation_ends_in_time_and_leaves_all_free,
        f04_late_request_of_any_operation_ends_in_time_and_leaves_all_free,
        f08_stopped_server_in_any_operation_ends_in_time_and_leaves_all_free;
}
