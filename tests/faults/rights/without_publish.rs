//! Row 53: the server does not publish the message of a script. The script does the rest, and waiters look at their keys.

use std::time::Instant;

use distlock::Client;
use distlock_tests::log::lines_with;
use distlock_tests::{RedisCluster, RedisServer, rights};
use futures_util::future::join_all;
use tokio::sync::Mutex;

use crate::foreign::Foreign;
use crate::lives::{LIVES, Stage};
use crate::row::{Row, rows};
use crate::support::{SOON, ms};

/// What the one warning of a client says.
const WARNING: &str = "refuses to publish";

/// All that the guide grants, without what messages need.
fn without_messages() -> Vec<&'static str> {
    let mut rights = rights::all();
    rights.retain(|right| !right.starts_with('&') && *right != "+publish");
    // Waiters can listen, and hear nothing.
    rights.push("&*");
    rights
}

/// Plays a life of each primitive, by two clients each. Returns how many warnings these gave.
async fn play_all(server: &RedisServer) -> usize {
    let address = server.addr().to_string();
    let warned = || lines_with(&["WARN", &address, WARNING]);
    let before = warned();
    let other = Mutex::new(Foreign::on(server).await);
    let other = &other;
    let lives = LIVES.map(|life| async move {
        let stage = Stage {
            server,
            other,
            user: "shop",
            prefix: "shop:",
        };
        let played = stage.play(life, &format!("{life:?}")).await;
        played.unwrap_or_else(|error| panic!("{life:?}: {error}"));
    });
    join_all(lives).await;
    warned() - before
}

async fn f53_user_who_may_not_publish_ends_every_primitive_and_each_client_warns_once(row: &Row) {
    let server = RedisServer::start().await;
    server.set_user("shop", &without_messages()).await;
    let warnings = play_all(&server).await;
    // Two clients for each life, of which one may have had nothing to tell.
    assert!(
        (LIVES.len()..=2 * LIVES.len()).contains(&warnings),
        "{warnings}"
    );
    row.injected(
        "kind of denial",
        server.denied_to("shop").await.len() as u64,
    );
}

async fn f53_server_without_publish_ends_every_primitive_and_each_client_warns_once(row: &Row) {
    let builder = RedisServer::builder()
        .arg("--rename-command", "PUBLISH")
        .arg("HIDDEN", "--rename-command")
        .arg("LOLWUT", "LOLWHAT");
    let server = builder.start().await;
    server.set_user("shop", &["+@all", "~*", "&*"]).await;
    let warnings = play_all(&server).await;
    assert!(
        (LIVES.len()..=2 * LIVES.len()).contains(&warnings),
        "{warnings}"
    );
    row.injected(
        "command that is not there",
        u64::from(!server.knows("PUBLISH").await),
    );
}

async fn f53_waiter_of_a_client_that_is_not_told_takes_the_key_after_a_look(row: &Row) {
    let server = RedisServer::start().await;
    server.set_user("shop", &without_messages()).await;
    let connect = || {
        let builder = Client::builder().key_prefix("shop:");
        let builder = builder.credentials("shop", rights::PASSWORD);
        let url = server.url();
        async move { builder.connect(&url).await.unwrap() }
    };
    let (one, two) = (connect().await, connect().await);
    let guard = one.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(two.lock("k").acquire().wait(SOON).into_future());
    let channel = "redisson_lock__channel:{shop:k}";
    distlock_tests::eventually_eq(SOON, "listeners", 1, || server.pubsub_numsub(channel)).await;
    let freed = Instant::now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().expect("free");
    guard.release().await.unwrap();
    // Without a message it has looked, long before the lease of 30 s.
    println!("taken after {:?}", freed.elapsed());
    assert!(freed.elapsed() > ms(20), "it was told");
    row.injected("denial", server.denied_to("shop").await.len() as u64);
}

async fn f53_user_who_may_not_publish_in_a_cluster_frees_the_key(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let is_sharded = cluster.has_sharded_messages().await;
    let mut rights = rights::all_in_cluster(is_sharded);
    rights.retain(|right| !right.starts_with('&') && !["+publish", "+spublish"].contains(right));
    rights.push("&*");
    cluster.set_user("shop", &rights).await;
    let builder = Client::builder().key_prefix("shop:");
    let builder = builder.credentials("shop", rights::PASSWORD);
    let client = builder.connect(&cluster.url()).await.unwrap();
    for key in ["a", "b", "c"] {
        let guard = client.lock(key).acquire().wait(SOON).await.unwrap();
        guard.release().await.unwrap();
        let again = client.lock(key).try_acquire().await.unwrap();
        again.expect("free").release().await.unwrap();
    }
    let server = client.servers();
    let first = server.split(',').next().unwrap_or_default();
    assert_eq!(lines_with(&["WARN", first, WARNING]), 1);
    row.injected("denial", cluster.denied_to("shop").await.len() as u64);
}

rows! {
    Real: f53_user_who_may_not_publish_ends_every_primitive_and_each_client_warns_once,
        f53_server_without_publish_ends_every_primitive_and_each_client_warns_once,
        f53_waiter_of_a_client_that_is_not_told_takes_the_key_after_a_look,
        f53_user_who_may_not_publish_in_a_cluster_frees_the_key;
}
