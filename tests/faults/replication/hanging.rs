//! Row 58: a connection is being made to the old master, which hangs, when another server becomes the master.

use std::future::IntoFuture;

use distlock::Builder;
use distlock_tests::proxy::{Flow, Way};
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Select, listened};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with};

async fn f58_connection_for_messages_that_hangs_at_the_old_master_is_made_at_the_new_one(
    row: &Row,
) {
    let set = SentinelSet::builder().proxies(true).start().await;
    // Without the failover, the connection hangs for longer than this test.
    let patient = |builder: Builder| builder.connect_timeout(20 * SOON);
    let client = client_with(&set.url(), patient).await;
    let holder = client_with(&set.url(), |builder| builder).await;
    let guard = holder.lock("k").acquire().wait(SOON).await.unwrap();
    set.wait_until_all_have("k").await;
    let waiting = tokio::spawn(client.lock("k").acquire().wait(20 * SOON).into_future());
    let old = set.master().await;
    listened(set.server(old), "k", 1).await;
    let hangs = set.proxy(old).flow(Select::NEW, Way::Both, Flow::Stall);
    assert!(set.proxy(old).cut(Select::SUBSCRIBERS) > 0);
    listened(set.server(old), "k", 0).await;
    hangs.reach(1, SOON).await;
    let new = set.fail_over().await;
    row.injected("handshake that hangs", hangs.hits());
    listened(set.server(new), "k", 1).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    hangs.lift();
}

rows! {
    Real: f58_connection_for_messages_that_hangs_at_the_old_master_is_made_at_the_new_one;
}
