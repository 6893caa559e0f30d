//! Sets of servers with Sentinels: their verbs, their users, their proxies, and their end.

use std::collections::HashMap;
use std::time::Instant;

use distlock_tests::proxy::Role;
use distlock_tests::{RedisServer, Select, SentinelSet, eventually};
use redis::{AsyncTypedCommands, Value};

use super::{SOON, ends, has_keys, took};

/// The pids of all processes of a set.
fn pids(set: &SentinelSet) -> Vec<u32> {
    let servers = (0..3).map(|index| set.server(index).pid());
    servers
        .chain((0..3).map(|index| set.sentinel(index).pid()))
        .collect()
}

/// The servers without the master.
fn replicas(master: usize) -> [usize; 2] {
    [(master + 1) % 3, (master + 2) % 3]
}

async fn set(server: &RedisServer, key: &str) {
    server.cli(&["SET", key, "1"]).await;
}

#[tokio::test]
async fn started_set_replicates_and_each_sentinel_names_its_master() {
    let start = Instant::now();
    let sets = tokio::join!(SentinelSet::start(), SentinelSet::builder().start());
    took("start of two sets side by side", start);
    for set in [&sets.0, &sets.1] {
        let master = set.master().await;
        self::set(set.server(master), "key").await;
        for replica in replicas(master) {
            has_keys(set.server(replica), &["key"]).await;
            assert!(
                set.server(replica)
                    .try_cli::<Value>(&["SET", "key", "2"])
                    .await
                    .is_err()
            );
        }
        for sentinel in 0..3 {
            let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"];
            let (_, port): (String, u16) = set.sentinel(sentinel).try_cli(&question).await.unwrap();
            assert_eq!(port, set.server(master).port());
        }
    }
    let url = sets.0.url();
    let hosts: Vec<_> = (0..3)
        .map(|index| sets.0.sentinel(index).addr().to_string())
        .collect();
    assert_eq!(url, format!("redis+sentinel://{}/locks", hosts.join(",")));
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn planned_failover_names_another_master_while_the_old_one_goes_on() {
    let set = SentinelSet::builder().start().await;
    let old = set.master().await;
    let start = Instant::now();
    let master = set.fail_over().await;
    took("planned failover", start);
    assert_ne!(master, old);
    self::set(set.server(master), "new").await;
    // Two masters: the set is not stable before the old one has become a replica.
    self::set(set.server(old), "old").await;
    set.wait_until_stable().await;
    took("until the old master is a replica", start);
    has_keys(set.server(old), &["new"]).await;
    let next = set.fail_over().await;
    assert_ne!(next, master);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn killed_master_is_replaced_and_comes_back_as_a_replica() {
    let mut set = SentinelSet::builder().start().await;
    let old = set.master().await;
    self::set(set.server(old), "key").await;
    for replica in replicas(old) {
        has_keys(set.server(replica), &["key"]).await;
    }
    let start = Instant::now();
    assert_eq!(set.kill_master().await, old);
    let master = set.master_after(old).await;
    took("master after a kill", start);
    has_keys(set.server(master), &["key"]).await;
    set.wait_until_stable().await;
    took("stable after a kill", start);
    set.server_mut(old).restart().await;
    set.wait_until_stable().await;
    took("stable after a restart", start);
    let info = set.server(old).info("replication").await;
    let ports = (&info["role"], &info["master_port"]);
    assert_eq!(
        ports,
        (&"slave".to_owned(), &set.server(master).port().to_string())
    );
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn stopped_master_is_replaced_and_steps_down_when_it_goes_on() {
    let mut set = SentinelSet::builder().start().await;
    let old = set.master().await;
    set.server_mut(old).stop();
    // Not before the Sentinels have seen it.
    set.wait_until_stable().await;
    let master = set.master().await;
    assert_ne!(master, old);
    set.server_mut(old).cont();
    set.wait_until_stable().await;
    assert_eq!(set.master().await, master);
    assert_eq!(set.server(old).info("replication").await["role"], "slave");
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn without_a_majority_of_sentinels_a_killed_master_stays_the_named_one() {
    let mut set = SentinelSet::builder().start().await;
    set.sentinel_mut(0).kill();
    // Not stopped: one that stood still does nothing for half a minute when it goes on.
    set.sentinel_mut(1).kill();
    let old = set.kill_master().await;
    let sentinel = set.sentinel(2);
    let down = async || {
        let master = sentinel.cli(&["SENTINEL", "MASTER", "locks"]).await;
        format!("{master:?}").contains("s_down")
    };
    eventually(SOON, "the Sentinel to miss the master", down).await;
    assert_eq!(set.master().await, old);
    set.sentinel_mut(1).restart().await;
    assert_ne!(set.master_after(old).await, old);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn sentinel_that_missed_a_failover_names_the_new_master_after_its_restart() {
    let mut set = SentinelSet::builder().start().await;
    set.sentinel_mut(0).kill();
    let master = set.fail_over().await;
    set.sentinel_mut(0).restart().await;
    set.wait_until_stable().await;
    assert_eq!(set.master().await, master);
    // By its file, and not by the others.
    let url = set.url();
    set.sentinel_mut(0).restart().await;
    let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"];
    let (_, port): (String, u16) = set.sentinel(0).try_cli(&question).await.unwrap();
    assert_eq!((port, set.url()), (set.server(master).port(), url));
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn what_is_written_while_the_replicas_are_cut_off_is_lost_with_the_master() {
    let mut set = SentinelSet::builder().start().await;
    let old = set.master().await;
    self::set(set.server(old), "before").await;
    for replica in replicas(old) {
        has_keys(set.server(replica), &["before"]).await;
    }
    let start = Instant::now();
    set.cut_replicas().await;
    took("cut", start);
    self::set(set.server(old), "after").await;
    assert_eq!(set.kill_master().await, old);
    set.reconnect_replicas();
    let master = set.master_after(old).await;
    took("promotion after a cut and a kill", start);
    has_keys(set.server(master), &["before"]).await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn replicas_that_were_cut_off_catch_up_when_they_are_connected_again() {
    let mut set = SentinelSet::builder().start().await;
    let old = set.master().await;
    set.cut_replicas().await;
    self::set(set.server(old), "key").await;
    set.reconnect_replicas();
    set.wait_until_stable().await;
    for replica in replicas(old) {
        has_keys(set.server(replica), &["key"]).await;
    }
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn users_and_passwords_of_servers_and_sentinels_are_asked_for() {
    let builder = SentinelSet::builder().credentials("shop", "p:w@/1");
    let set = builder.sentinel_credentials("watch", "other").start().await;
    let old = set.master().await;
    assert!(
        set.url()
            .starts_with("redis+sentinel://shop:p%3Aw%40%2F1@127.0.0.1:")
    );
    assert!(
        set.url()
            .ends_with("/locks?sentinel_user=watch&sentinel_password=other")
    );
    for process in [set.server(1), set.sentinel(1)] {
        let client = redis::Client::open(format!("redis://{}", process.addr())).unwrap();
        let mut stranger = client.get_multiplexed_async_connection().await.unwrap();
        let error = stranger.ping().await.unwrap_err();
        assert_eq!(error.code(), Some("NOAUTH"), "{error}");
    }
    let master = set.fail_over().await;
    self::set(set.server(master), "key").await;
    let other = replicas(master)
        .into_iter()
        .find(|index| *index != old)
        .unwrap();
    has_keys(set.server(other), &["key"]).await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn settings_of_the_test_win() {
    let builder = SentinelSet::builder().arg("--maxclients", "77");
    let set = builder
        .sentinel_setting("failover-timeout", "7000")
        .start()
        .await;
    assert_eq!(set.server(2).info("clients").await["maxclients"], "77");
    let master = set.sentinel(2).cli(&["SENTINEL", "MASTER", "locks"]).await;
    let fields: HashMap<String, String> = redis::from_redis_value(master).unwrap();
    assert_eq!(fields["failover-timeout"], "7000");
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn sentinels_name_the_proxies_and_replicas_come_through_them() {
    let mut set = SentinelSet::builder().proxies(true).start().await;
    let old = set.master().await;
    let named = async |set: &SentinelSet, sentinel: usize| {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"];
        set.sentinel(sentinel)
            .try_cli::<(String, u16)>(&question)
            .await
            .unwrap()
            .1
    };
    assert_eq!(named(&set, 0).await, set.proxy(old).addr().port());
    let of_role = |index: usize, role| {
        let connections = set.proxy(index).connections();
        connections.iter().filter(|open| open.role == role).count()
    };
    // Each Sentinel has one connection for commands and one that listens.
    assert_eq!(
        (of_role(old, Role::Replica), of_role(old, Role::Sentinel)),
        (2, 6)
    );
    assert_eq!(of_role(replicas(old)[0], Role::Replica), 0);
    let client = redis::Client::open(set.proxy(old).url()).unwrap();
    let mut client = RedisServer::connection_of(&client).await.unwrap();
    client.set("key", "x".repeat(1_000_000)).await.unwrap();
    assert_eq!(of_role(old, Role::Commands), 1);
    for replica in replicas(old) {
        has_keys(set.server(replica), &["key"]).await;
    }
    // A cut of the replicas alone, which connect again and catch up.
    let accepted = set.proxy(old).accepted();
    assert_eq!(set.proxy(old).cut(Select::REPLICAS), 2);
    client.set("other", "1").await.unwrap();
    for replica in replicas(old) {
        has_keys(set.server(replica), &["key", "other"]).await;
    }
    assert!(set.proxy(old).accepted() >= accepted + 2);
    set.kill_master().await;
    let master = set.master_after(old).await;
    assert_eq!(named(&set, 1).await, set.proxy(master).addr().port());
    set.wait_until_stable().await;
}

#[tokio::test]
async fn dropped_set_is_gone() {
    let mut set = SentinelSet::builder().start().await;
    set.server_mut(1).stop();
    set.sentinel_mut(1).stop();
    ends::is_gone_when_dropped(set, pids);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn set_of_a_test_that_panics_is_gone() {
    ends::is_gone_after_a_panic(SentinelSet::builder().start(), pids).await;
}

#[tokio::test]
async fn shared_set_dies_with_a_killed_test_process() {
    ends::dies_with_a_killed_test_process("sentinel", 6).await;
}

#[test]
fn shared_set_outlives_the_runtime_that_started_it() {
    ends::outlives_the_runtime_that_started_it(async || {
        let set = SentinelSet::shared().await;
        (pids(set), set.master().await)
    });
}
