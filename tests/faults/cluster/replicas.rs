//! Row 56 on a cluster: grants that replicas confirm.

use distlock::Client;
use std::time::Duration;

use distlock_tests::RedisCluster;
use tokio::time::sleep;

use super::load::{Load, What};
use crate::row::{Row, rows};
use crate::support::{SOON, assert_told_of_too_few_replicas, client_with, ms};

/// How long a master serves without its replica.
const UNREPLICATED: Duration = ms(500);

/// A grant that a replica has confirmed survives the master. So no holder learns of a loss, and no two are inside.
async fn f56_killed_master_takes_no_confirmed_grant_with_it(row: &Row) {
    let mut cluster = RedisCluster::start().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let builder = Client::builder().replicas(1, SOON);
        let builder = builder.unavailable_after(SOON * 6);
        clients.push(builder.connect(&cluster.url()).await.unwrap());
    }
    let slot = cluster.slot_of("{hot}").await;
    let master = cluster.node_of(slot).await;
    let load = Load::start(&clients, "{hot}:", What::Locks);
    load.goes_on(100).await;
    // Of a grant that does not wait for its confirmation from here on, the promoted node knows nothing.
    let replicas = cluster.cut_replicas(master).await;
    sleep(UNREPLICATED).await;
    cluster.node_mut(master).kill();
    for replica in replicas {
        cluster.node_mut(replica).cont();
    }
    row.injected("master killed", 1);
    cluster.node_of_after(slot, master).await;
    // The new master needs a replica as well.
    cluster.node_mut(master).restart().await;
    load.goes_on(100).await;
    println!("{} grants", load.end().await);
}

async fn f56_more_replicas_than_a_shard_has_are_told_with_both_numbers(row: &Row) {
    let cluster = RedisCluster::start().await;
    let more = |builder: distlock::Builder| {
        let builder = builder.replicas(2, ms(500)).response_timeout(SOON);
        builder.unavailable_after(ms(500))
    };
    let client = client_with(&cluster.url(), more).await;
    row.injected("grant with too few replicas", 1);
    assert_told_of_too_few_replicas(&client, "1 of 2 replicas").await;
}

rows! {
    Threads, left to "engines":
        f56_killed_master_takes_no_confirmed_grant_with_it;
    Real:
        f56_more_replicas_than_a_shard_has_are_told_with_both_numbers;
}
