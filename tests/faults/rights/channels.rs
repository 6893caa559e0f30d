//! Row 53: a user who may subscribe to some of its channels only.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::test_util::connections;
use distlock::{Builder, PubSub};
use distlock_tests::log::lines_with;
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::{RedisCluster, RedisServer, eventually_eq};
use tokio::time::sleep;

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, ms, waiting};

/// A waiter without messages looks at its key after 4 s at least. A message is faster.
const TOLD: Duration = ms(3_500);

/// A channel that is denied is asked for again after 2 s.
const A_CYCLE: Duration = ms(2_500);

/// The rights for locks and read/write locks, without the messages of the latter.
fn rights() -> Vec<&'static str> {
    let rights = [rights::LOCKS, "read/write lock"].map(rights::of).concat();
    let is_given = |right: &&str| !right.starts_with("&redisson_rwlock");
    rights.into_iter().filter(is_given).collect()
}

/// The user `some` waits for a lock and for a read/write lock at `server`, both held. `listeners` asks for the channel of the lock.
async fn waiter_of_the_lock_is_told(
    row: &Row,
    [lock, rw_lock]: [&str; 2],
    server: &RedisServer,
    (listeners, pub_sub): (&str, PubSub),
    url: &str,
) {
    let holder = client_with(url, |builder| builder.pub_sub(pub_sub)).await;
    let some = |builder: Builder| builder.pub_sub(pub_sub).credentials("some", PASSWORD);
    let waiter = client_with(url, some).await;
    let lease = Duration::from_secs(60);
    let guard = holder.lock(lock).acquire().lease(lease).await.unwrap();
    let write = holder.rw_lock(rw_lock).write().acquire().lease(lease);
    let write = write.await.unwrap();
    let of_rw_lock = tokio::spawn(waiter.rw_lock(rw_lock).write().acquire().into_future());
    let of_lock = tokio::spawn(waiter.lock(lock).acquire().into_future());
    waiting(&waiter, 2).await;
    let channel = format!("redisson_lock__channel:{{{lock}}}");
    let question = ["PUBSUB", listeners, &channel];
    let listened = || async {
        let (_, count): (String, u64) = server.try_cli(&question).await.unwrap();
        count
    };
    eventually_eq(SOON, "listeners", 1, listened).await;
    let in_use = || {
        let seen = connections(&waiter).into_iter();
        let seen = seen.filter_map(|seen| Some((seen.name, seen.in_use?)));
        seen.collect::<BTreeMap<_, _>>()
    };
    let before = in_use();
    sleep(A_CYCLE).await;
    assert_eq!(in_use(), before, "a connection was replaced");
    assert_eq!(listened().await, 1);
    let warned = || async { lines_with(&["WARN", "cannot subscribe", "rwlock", rw_lock]) > 0 };
    eventually_eq(SOON, "a warning that names the channel", true, warned).await;
    guard.release().await.unwrap();
    let told = row.timeout(TOLD, of_lock).await.expect("told");
    told.unwrap().unwrap().release().await.unwrap();
    assert!(!of_rw_lock.is_finished());
    write.release().await.unwrap();
    let asked = row.timeout(SOON, of_rw_lock).await.expect("asked again");
    asked.unwrap().unwrap().release().await.unwrap();
}

async fn f53_channel_that_is_denied_costs_other_waiters_no_message(row: &Row) {
    let server = RedisServer::start().await;
    server.set_user("some", &rights()).await;
    let keys = ["shop:f53:lock", "shop:f53:rw"];
    let by = ("NUMSUB", PubSub::Auto);
    waiter_of_the_lock_is_told(row, keys, &server, by, &server.url()).await;
    row.injected(
        "channel denied",
        server.denied_to("some").await.len() as u64,
    );
}

async fn f53_sharded_channel_that_is_denied_costs_other_waiters_no_message(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let is_sharded = cluster.has_sharded_messages().await;
    // Those for messages of both kinds.
    let mut rights = [rights::in_cluster(rights(), is_sharded), rights()].concat();
    rights.sort_unstable();
    rights.dedup();
    cluster.set_user("some", &rights).await;
    let listeners = if is_sharded { "SHARDNUMSUB" } else { "NUMSUB" };
    for pub_sub in [PubSub::Auto, PubSub::Both] {
        let (lock, rw_lock) = (
            cluster
                .key_at(0, &format!("shop:f53:{pub_sub:?}:lock:"))
                .await,
            cluster
                .key_at(0, &format!("shop:f53:{pub_sub:?}:rw:"))
                .await,
        );
        let keys = [lock.as_str(), rw_lock.as_str()];
        let by = (listeners, pub_sub);
        waiter_of_the_lock_is_told(row, keys, cluster.node(0), by, &cluster.url()).await;
    }
    row.injected(
        "channel denied",
        cluster.denied_to("some").await.len() as u64,
    );
}

rows! {
    Real:
        f53_channel_that_is_denied_costs_other_waiters_no_message;
    Real, left to "engines":
        f53_sharded_channel_that_is_denied_costs_other_waiters_no_message;
}
