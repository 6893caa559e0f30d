//! Rows 54 and 57: servers that became replicas, and masters that are cut off.

use distlock::Builder;
use distlock_tests::eventually_eq;

use super::pair::{Pair, assert_unconfirmed};
use crate::row::{Row, rows};
use crate::server::refusals::errors;
use crate::support::{SOON, client_with, default_client, free};

async fn f54_server_that_became_a_replica_after_a_grant_is_waited_for(row: &Row) {
    let pair = Pair::start().await;
    let patient = |builder: Builder| {
        let builder = builder.replicas(1, SOON).unavailable_after(SOON * 6);
        builder.response_timeout(SOON)
    };
    let client = client_with(&pair.primary.url(), patient).await;
    // All its connections stand from here on.
    let guard = client.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    // It grants although it is a replica. So the grant is refused where it is confirmed, as in a failover just after a grant.
    let writable = ["CONFIG", "SET", "replica-read-only", "no"];
    pair.primary.cli(&writable).await;
    pair.primary.cli(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let before = pair.primary.command_calls("wait").await;
    let waiting = client.lock("k").acquire().wait(SOON * 6);
    let waiting = tokio::spawn(waiting.into_future());
    let refused = || async { pair.primary.command_calls("wait").await > before };
    eventually_eq(SOON, "a confirmation that was refused", true, refused).await;
    row.injected("WAIT at a replica", 1);
    // It grants nothing more until it is promoted: what a replica writes does not reach its own replicas.
    let read_only = ["CONFIG", "SET", "replica-read-only", "yes"];
    pair.primary.cli(&read_only).await;
    let before = errors(&pair.primary, "READONLY").await;
    let is_refused = || async { errors(&pair.primary, "READONLY").await > before };
    eventually_eq(SOON, "an attempt that was refused", true, is_refused).await;
    pair.primary.cli(&["REPLICAOF", "NO", "ONE"]).await;
    let guard = waiting.await.unwrap().unwrap();
    assert!(pair.replica.keys().await.contains(&"k".to_owned()));
    guard.release().await.unwrap();
    free(&pair.primary, &[&client]).await;
}

async fn f57_master_that_is_cut_off_gives_nothing_out(row: &Row) {
    let pair = Pair::start().await;
    let here = default_client(&pair.primary.url()).await;
    let confirmed = pair.confirmed_client().await;
    pair.cut().await;
    pair.promote().await;
    let there = default_client(&pair.replica.url()).await;
    row.injected("two masters", 1);
    // Without confirmation both grant the same lock.
    let one = here.lock("k").acquire().await.unwrap();
    let other = there.lock("k").acquire().await.unwrap();
    assert!(one.is_held() && other.is_held());
    assert_unconfirmed(&confirmed.lock("other").acquire().await.unwrap_err());
}

rows! {
    Real: f54_server_that_became_a_replica_after_a_grant_is_waited_for,
        f57_master_that_is_cut_off_gives_nothing_out;
}
