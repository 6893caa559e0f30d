//! Rows 11, 15, 16 and 24: renewals that fail, that outlive their hold, and very many of them.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Guard};
use distlock_tests::log::lines_with;
use distlock_tests::{Flow, RedisServer, Select, Way, eventually, size};
use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep, timeout};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, free, idle, ms, renewals, server_and_proxy, warm_up};

/// Long enough that a machine with other work does not stop a watchdog for all of it.
const LEASE: Duration = ms(3_000);

async fn watched_client(url: &str, lease: Duration) -> Client {
    client_with(url, |builder| builder.watchdog_timeout(lease)).await
}

/// The hold stays for this time.
async fn stays(guard: &Guard, time: Duration) {
    let lost = timeout(time, guard.lost()).await;
    assert!(lost.is_err() && guard.is_held(), "lost");
}

async fn f11_server_down_for_half_a_lease_is_survived(row: &Row) {
    let mut server = RedisServer::builder().appendonly(true).start().await;
    let client = watched_client(&server.url(), LEASE).await;
    let guards = join_all((0..5).map(|n| client.lock(format!("k:{n}")).acquire().into_future()));
    let guards: Vec<_> = guards.await.into_iter().map(Result::unwrap).collect();
    let (before, down) = (server.pid(), Instant::now());
    server.kill();
    sleep((LEASE / 2).saturating_sub(down.elapsed())).await;
    server.restart().await;
    row.injected("server killed", u64::from(server.pid() != before));
    stays(&guards[0], 2 * LEASE).await;
    for guard in guards {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    free(&server, &[&client]).await;
}

/// A client whose pauses between reconnects grow too long comes too late: renewals are due every tenth of a lease.
async fn f11_refusal_of_connections_for_most_of_a_lease_is_survived(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    // Doubled from 20 ms on, the pauses would grow past what is left of it.
    let lease = ms(3_600);
    let mut holds = Vec::new();
    for n in 0..8 {
        let client = watched_client(&proxy.url(), lease).await;
        let guard = client.lock(format!("k:{n}")).acquire().await.unwrap();
        holds.push((client, guard));
    }
    let refused = proxy.refuse();
    row.injected("connection cut", proxy.cut(Select::ALL) as u64);
    sleep(lease * 6 / 10).await;
    row.injected("connection refused", refused.hits());
    refused.lift();
    stays(&holds[0].1, 2 * lease).await;
    for (client, guard) in holds {
        assert!(guard.is_held());
        guard.release().await.unwrap();
        idle(&client).await;
    }
    free(&server, &[]).await;
}

async fn f11_silence_for_half_a_lease_is_survived(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = watched_client(&proxy.url(), LEASE).await;
    warm_up(&client).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let stall = proxy.flow(Select::ALL, Way::Both, Flow::Stall);
    sleep(LEASE / 2).await;
    row.injected("request stalled", stall.hits());
    stall.lift();
    stays(&guard, 2 * LEASE).await;
    guard.release().await.unwrap();
    free(&server, &[&client]).await;
}

async fn f11_hold_that_the_server_refuses_to_renew_takes_no_other_with_it(row: &Row) {
    let server = RedisServer::start().await;
    let rights = ["on", ">p", "~*", "&*", "+@all"];
    let grant = async |rights: &[&str]| {
        let words = [&["ACL", "SETUSER", "shop"], rights].concat();
        server.cli(&words).await;
    };
    grant(&rights).await;
    let url = format!("redis://shop:p@127.0.0.1:{}", server.port());
    let client = watched_client(&url, ms(1_500)).await;
    // All at once, so that they are renewed in one batch.
    let keys = (0..80).map(|n| {
        if n == 40 {
            "stock:1".into()
        } else {
            format!("order:{n}")
        }
    });
    let guards = join_all(keys.map(|key| client.lock(key).acquire().into_future())).await;
    let guards = guards.into_iter().map(Result::unwrap);
    let (stock, orders): (Vec<_>, Vec<_>) = guards.partition(|guard| guard.key() == "stock:1");
    grant(&["resetkeys", "~order:*"]).await;
    timeout(SOON, stock[0].lost()).await.expect("told");
    let refusals: Vec<redis::Value> = server.try_cli(&["ACL", "LOG"]).await.unwrap();
    row.injected("renewal denied", refusals.len() as u64);
    // Granted with it, they would be lost by now as well, had they not been renewed without it.
    sleep(ms(300)).await;
    let held = orders.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, orders.len());
}

async fn f15_nothing_is_renewed_after_the_last_release(row: &Row) {
    let (rounds, pauses) = size((3_000, 3), (10_000, 8));
    let server = RedisServer::start().await;
    let lease = ms(1_500);
    let client = watched_client(&server.url(), lease).await;
    warm_up(&client).await;
    let locking = join_all((0..10).map(async |task| {
        for round in 0..rounds / 10 {
            // Neighbours share a key, so that some attempts fail, wait or are handed over.
            let acquire = client.lock(format!("k:{}", task / 2)).acquire();
            let wait = if round % 3 == 0 { Duration::ZERO } else { SOON };
            match acquire.wait(wait).await {
                Ok(guard) if round % 2 == 0 => drop(guard),
                Ok(guard) => drop(guard.release().await),
                Err(error) => assert!(error.is_busy() || error.is_unavailable(), "{error}"),
            }
        }
    }));
    let locking = async {
        locking.await;
        // Renewals end with the guards, whether or not the releases are confirmed.
        assert_eq!(sizes(&client).holds, 0);
    };
    let pausing = async {
        for _ in 0..pauses {
            // Longer than a command may go unanswered: a sixth of the lease.
            server.cli(&["CLIENT", "PAUSE", "400"]).await;
            sleep(ms(800)).await;
        }
    };
    tokio::join!(locking, pausing);
    row.injected("server paused", server.command_calls("client|pause").await);
    idle(&client).await;
    let before = (
        renewals(&server).await,
        server.command_calls("pexpire").await,
    );
    sleep(2 * lease).await;
    let after = (
        renewals(&server).await,
        server.command_calls("pexpire").await,
    );
    assert_eq!(before, after, "(renewals, leases set)");
    free(&server, &[&client]).await;
}

async fn f16_hold_that_was_deleted_does_not_keep_the_next_from_being_renewed(row: &Row) {
    let server = RedisServer::start().await;
    let lease = ms(2_000);
    let client = watched_client(&server.url(), lease).await;
    let lock = client.lock("k");
    let stale = lock.acquire().await.unwrap();
    let deleted: u64 = server.try_cli(&["DEL", "k"]).await.unwrap();
    row.injected("key deleted", deleted);
    let guard = lock.acquire().wait(SOON).await.unwrap();
    stays(&guard, 3 * lease).await;
    timeout(SOON, stale.lost()).await.expect("told");
    assert!(stale.release().await.unwrap_err().is_lost());
    // Nor does what the stale one leaves behind touch it.
    stays(&guard, lease).await;
    guard.release().await.unwrap();
    free(&server, &[&client]).await;
}

/// Three leases show as much as a longer time: from the second on every tick is like the one before.
async fn f24_thousands_of_holds_are_renewed_without_a_loss(row: &Row) {
    let holds: u64 = size(2_000, 10_000);
    let server = RedisServer::start().await;
    let client = watched_client(&server.url(), LEASE).await;
    // All rows share one log. A play of this row finds its own lines by the port of its server.
    let crowd = format!("crowd:{}:", server.port());
    let mut guards = Vec::new();
    for n in 0..holds {
        guards.push(client.lock(format!("{crowd}{n}")).acquire().await.unwrap());
    }
    let (start, busy, before) = (Instant::now(), busy(), renewals(&server).await);
    sleep(3 * LEASE).await;
    let load = (self::busy() - busy).div_duration_f32(start.elapsed());
    let renewed = renewals(&server).await - before;
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    let failed = lines_with(&["renewal failed", "holds=100 "]);
    let why = format!("{renewed} renewals at a load of {load}, {failed} full batches failed");
    assert_eq!(held as u64, holds, "{why}");
    // Everything of the client runs in this one thread: less than a core, or it would be late.
    println!("{holds} holds, {renewed} renewals, {load:.2} of a core");
    row.injected("hold renewed by the server", renewed);
    assert!(renewed >= 6 * holds, "{renewed} renewals");
    let published = server.command_calls("publish").await;
    drop(guards);
    eventually(3 * SOON, "all to be released", || async {
        server.keys().await.is_empty()
    })
    .await;
    free(&server, &[&client]).await;
    // Dropped at once, and none was left to its lease for standing in the way of another: each release publishes a message.
    let published = server.command_calls("publish").await - published;
    assert!(published >= holds, "{published} messages");
}

/// CPU time of this thread.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

rows! {
    Real: f11_server_down_for_half_a_lease_is_survived,
        f11_refusal_of_connections_for_most_of_a_lease_is_survived,
        f11_silence_for_half_a_lease_is_survived,
        f11_hold_that_the_server_refuses_to_renew_takes_no_other_with_it,
        f15_nothing_is_renewed_after_the_last_release,
        f16_hold_that_was_deleted_does_not_keep_the_next_from_being_renewed,
        f24_thousands_of_holds_are_renewed_without_a_loss;
}
