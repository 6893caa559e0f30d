//! Rows 1 to 8: the outcome of a command is unknown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Guard};
use distlock_tests::proxy::Caught;
use distlock_tests::{Flow, RedisServer, Select, Way, Which, eventually};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::row::{Row, rows};
use crate::support::{
    SOON, client, client_with, free, idle, ms, renewals, server_and_proxy, warm_up,
};

async fn f01_lost_reply_of_acquire_frees_the_lock(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let (unlucky, other) = (client(&proxy.url()).await, client(&server.url()).await);
    warm_up(&unlucky).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    let failed = unlucky.lock("k").acquire().wait(Duration::ZERO).await;
    assert!(failed.unwrap_err().is_unavailable());
    row.injected("reply eaten", fault.hits());
    // The lease is 30 s: only a release of the unknown hold frees it in time.
    let guard = other.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    free(&server, &[&unlucky, &other]).await;
}

async fn f01_clean_up_of_a_lost_acquire_that_fails_is_sent_again(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let (unlucky, other) = (client(&proxy.url()).await, client(&server.url()).await);
    warm_up(&unlucky).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    let mut clean_up = proxy.hold(Select::COMMANDS, Which::nth(2).containing("lost:1"));
    let failed = unlucky.lock("lost:1").acquire().wait(Duration::ZERO).await;
    assert!(failed.unwrap_err().is_unavailable());
    row.injected("reply eaten", fault.hits());
    for _ in 0..3 {
        // Dropped, it is lost with its connection.
        drop(clean_up.caught(SOON).await);
        row.injected("clean-up cut", 1);
        clean_up = proxy.hold(Select::COMMANDS, Which::NEXT.containing("lost:1"));
    }
    drop(clean_up);
    let guard = other.lock("lost:1").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    free(&server, &[&unlucky, &other]).await;
}

async fn f02_acquire_sent_again_counts_once_and_one_release_frees(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client(&proxy.url()).await;
    warm_up(&client).await;
    for lost in 1..=3 {
        // Another key: releases of owners in doubt are repeated for a while, and would count.
        let key = format!("k:{lost}");
        let faults: Vec<_> = (1..=lost)
            .map(|n| proxy.eat_reply(Select::COMMANDS, Which::nth(n).containing(&key)))
            .collect();
        let guard = client.lock(&key).acquire().wait(SOON).await.unwrap();
        let hits: u64 = faults.iter().map(|fault| fault.hits()).sum();
        assert_eq!(hits, lost, "grants that nobody heard of");
        row.injected("reply eaten", hits);
        let counts = server.hgetall(&key).await;
        let once = [(guard.owner().to_string(), String::from("1"))].into();
        assert_eq!(counts, once);
        guard.release().await.unwrap();
        assert_eq!(server.keys().await, Vec::<String>::new());
    }
    free(&server, &[&client]).await;
}

async fn f03_lost_reply_of_a_release_is_no_error(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client(&proxy.url()).await;
    warm_up(&client).await;
    for _ in 0..3 {
        let guard = client.lock("k").acquire().await.unwrap();
        let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
        guard.release().await.unwrap();
        row.injected("reply eaten", fault.hits());
        assert_eq!(server.keys().await, Vec::<String>::new());
    }
    free(&server, &[&client]).await;
}

async fn f03_release_of_a_hold_whose_key_was_deleted_is_lost(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client(&proxy.url()).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let deleted: u64 = server.try_cli(&["DEL", "k"]).await.unwrap();
    row.injected("key deleted", deleted);
    assert!(guard.release().await.unwrap_err().is_lost());
    free(&server, &[&client]).await;
}

async fn f03_release_that_nobody_confirms_by_the_deadline_is_an_error(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client(&proxy.url()).await;
    warm_up(&client).await;
    let start = Instant::now();
    let guard = client.lock("k").acquire().lease(ms(1_500)).await.unwrap();
    let eaten = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    let refused = proxy.refuse();
    let error = guard.release().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(
        start.elapsed() >= ms(1_500),
        "it had time left to ask again"
    );
    row.injected("reply eaten", eaten.hits());
    row.injected("connection refused", refused.hits());
    // It had been carried out all the same.
    assert_eq!(server.keys().await, Vec::<String>::new());
    refused.lift();
    free(&server, &[&client]).await;
}

async fn f04_acquire_that_comes_after_its_clean_up_is_freed(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let (unlucky, other) = (client(&proxy.url()).await, client(&server.url()).await);
    warm_up(&unlucky).await;
    let before = server.command_calls("evalsha").await;
    let held = proxy.hold(Select::COMMANDS, Which::NEXT);
    let once = unlucky.lock("k").acquire().wait(Duration::ZERO);
    let acquiring = tokio::spawn(once.into_future());
    let caught = held.caught(SOON).await;
    // Else the clean-up would stand behind it on the same connection, in the right order.
    caught.cut_client();
    let failed = acquiring.await.unwrap();
    assert!(failed.unwrap_err().is_unavailable());
    eventually(SOON, "a clean-up over another connection", || async {
        server.command_calls("evalsha").await > before
    })
    .await;
    assert_eq!(server.keys().await, Vec::<String>::new());
    arrives_late(row, &server, &other, caught).await;
    free(&server, &[&unlucky, &other]).await;
}

async fn f04_acquire_that_comes_after_the_release_is_freed(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let (unlucky, other) = (client(&proxy.url()).await, client(&server.url()).await);
    warm_up(&unlucky).await;
    let held = proxy.hold(Select::COMMANDS, Which::NEXT);
    let acquiring = tokio::spawn(unlucky.lock("k").acquire().wait(SOON).into_future());
    let caught = held.caught(SOON).await;
    // The same owner asks again over a new connection, is granted, and releases.
    let guard = acquiring.await.unwrap().unwrap();
    guard.release().await.unwrap();
    arrives_late(row, &server, &other, caught).await;
    free(&server, &[&unlucky, &other]).await;
}

/// The attempts lie in the socket of a connection that was given up, and last for a whole lease from when the server goes
/// on.
async fn f04_attempts_that_a_hung_server_carries_out_after_their_lease_are_ended(row: &Row) {
    const KEYS: usize = 20;
    let lease = ms(6_000);
    let mut server = RedisServer::start().await;
    let url = server.url();
    let unlucky = client_with(&url, |builder| {
        builder.watchdog_timeout(lease).response_timeout(ms(300))
    })
    .await;
    warm_up(&unlucky).await;
    let (granted, freed) = (
        server.command_calls("hset").await,
        server.command_calls("publish").await,
    );
    server.stop();
    let attempt = async |n| {
        let once = unlucky
            .lock(format!("k:{n}"))
            .acquire()
            .wait(Duration::ZERO);
        assert!(once.await.unwrap_err().is_unavailable());
    };
    join_all((0..KEYS).map(attempt)).await;
    // The clean-up is given up at the end of the lease.
    idle(&unlucky).await;
    let resumed = Instant::now();
    server.cont();
    eventually(SOON, "late grants", || async {
        server.command_calls("hset").await >= granted + KEYS as u64
    })
    .await;
    row.injected("late acquire granted", KEYS as u64);
    free(&server, &[&unlucky]).await;
    // Each was ended by a release. Where the machine stood still for the lease that the server gave them, the row is played again.
    let took = resumed.elapsed();
    assert!(took < lease / 2, "freed late, after {took:?}");
    let freed = server.command_calls("publish").await - freed;
    assert!(freed >= KEYS as u64, "{freed} were ended");
}

/// A caught acquire is executed now: it makes a hold without a guard and without renewals. Its lease of 30 s would
/// free it too, but that is not what lets the next one in.
async fn arrives_late(row: &Row, server: &RedisServer, other: &Client, caught: Caught) {
    let before = renewals(server).await;
    let reply = caught.deliver().await.expect("a reply");
    assert_eq!(&reply[..], b"_\r\n", "it was not granted");
    row.injected("late acquire granted", 1);
    let guard = other.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(renewals(server).await, before);
}

/// Long enough that a machine with other work does not stop a watchdog for all of it.
const LEASE: Duration = ms(2_400);

async fn f05_lost_reply_of_a_renewal_is_no_loss(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client_with(&proxy.url(), |builder| builder.watchdog_timeout(LEASE)).await;
    warm_up(&client).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    fault.reach(1, SOON).await;
    row.injected("reply eaten", fault.hits());
    // Twice as long as the lease from which the renewal was not counted.
    let lost = timeout(2 * LEASE, guard.lost()).await;
    assert!(lost.is_err() && guard.is_held());
    guard.release().await.unwrap();
    free(&server, &[&client]).await;
}

async fn f05_lost_replies_of_all_renewals_are_a_loss_before_the_ttl_ends(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client_with(&proxy.url(), |builder| builder.watchdog_timeout(LEASE)).await;
    warm_up(&client).await;
    let start = Instant::now();
    let guard = client.lock("k").acquire().await.unwrap();
    let (granted, before) = (Instant::now(), renewals(&server).await);
    let unheard = proxy.flow(Select::COMMANDS, Way::Down, Flow::Stall);
    let mut latest_end = granted;
    let told = loop {
        tokio::select! {
            biased;
            () = guard.lost() => break Instant::now(),
            () = sleep(ms(20)) => {
                let now = Instant::now();
                let ttl = u64::try_from(server.pttl("k").await).unwrap_or(0);
                latest_end = latest_end.max(now + ms(ttl));
            }
        }
    };
    row.injected("reply stalled", unheard.hits());
    let renewed = renewals(&server).await - before;
    assert!(
        renewed > 0 && latest_end > granted + LEASE,
        "{renewed} renewals took effect"
    );
    assert!(
        told >= start + LEASE && told < latest_end,
        "the deadline had moved"
    );
    assert!(guard.release().await.unwrap_err().is_lost());
    unheard.lift();
    free(&server, &[&client]).await;
}

/// Keys with a section each, and how many are inside of it.
struct Sections([AtomicU64; 10]);

impl Sections {
    /// Enters, stays a while, and leaves; only the holder of the key may be inside.
    async fn visit(&self, at: usize, guard: &Guard) {
        assert_eq!(self.0[at].fetch_add(1, Ordering::SeqCst), 0, "two inside");
        sleep(ms(2)).await;
        assert!(guard.is_held());
        self.0[at].fetch_sub(1, Ordering::SeqCst);
    }
}

async fn f08_timeouts_on_a_slow_server_leave_no_hold_and_double_none(row: &Row) {
    let server = RedisServer::start().await;
    let clients = [client(&server.url()).await, client(&server.url()).await];
    let sections = Sections(Default::default());
    for slow in ["pause", "sleep"] {
        for client in &clients {
            warm_up(client).await;
        }
        make_slow(&server, slow).await;
        // Half of them try once and give up, half wait: 100 on 10 keys, of two clients.
        let acquired = (0..100).map(async |n: usize| {
            let acquire = clients[n % 2].lock(format!("k:{}", n % 10)).acquire();
            let once = (n / 10).is_multiple_of(2);
            let wait = if once { Duration::ZERO } else { SOON };
            match acquire.wait(wait).await {
                Ok(guard) => {
                    sections.visit(n % 10, &guard).await;
                    guard.release().await.unwrap();
                    0
                }
                Err(error) => {
                    assert!(
                        once && (error.is_unavailable() || error.is_busy()),
                        "{error}"
                    );
                    u64::from(error.is_unavailable())
                }
            }
        });
        let timed_out = join_all(acquired).await.into_iter().sum();
        row.injected("attempt timed out", timed_out);
        assert!(timed_out > 0 || slow == "sleep");
        free(&server, &[&clients[0], &clients[1]]).await;
    }
}

/// Has the server answer nobody for a second.
async fn make_slow(server: &RedisServer, how: &str) {
    if how == "pause" {
        server.cli(&["CLIENT", "PAUSE", "1000"]).await;
        return;
    }
    let mut connection = server.connection().await;
    let sleep = tokio::spawn(async move {
        let mut debug = redis::cmd("DEBUG");
        debug
            .arg("SLEEP")
            .arg(1)
            .query_async::<()>(&mut connection)
            .await
    });
    let asleep = || async { timeout(ms(50), server.connection()).await.is_err() };
    eventually(SOON, "sleep", asleep).await;
    drop(sleep);
}

rows! {
    Real: f01_lost_reply_of_acquire_frees_the_lock,
        f01_clean_up_of_a_lost_acquire_that_fails_is_sent_again,
        f02_acquire_sent_again_counts_once_and_one_release_frees,
        f03_lost_reply_of_a_release_is_no_error,
        f03_release_of_a_hold_whose_key_was_deleted_is_lost,
        f03_release_that_nobody_confirms_by_the_deadline_is_an_error,
        f04_acquire_that_comes_after_its_clean_up_is_freed,
        f04_acquire_that_comes_after_the_release_is_freed,
        f04_attempts_that_a_hung_server_carries_out_after_their_lease_are_ended,
        f05_lost_reply_of_a_renewal_is_no_loss,
        f05_lost_replies_of_all_renewals_are_a_loss_before_the_ttl_ends,
        f08_timeouts_on_a_slow_server_leave_no_hold_and_double_none;
}
