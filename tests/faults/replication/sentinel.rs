//! Row 58: Sentinels move the master, by plan or because it does not answer. Row 54: a master becomes a replica.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Guard};
use distlock_tests::server::sentinel::{SERVICE, SentinelSet};
use distlock_tests::{RedisServer, eventually, eventually_eq, long_size};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, free, ms};

/// After the Sentinels have named another master, no two holders may be in a section for longer than this.
const TOGETHER: Duration = Duration::from_secs(1);

/// What the table of rows calls the fault.
const FAULT: &str = "failover";

/// A failover takes some seconds: the Sentinels have to find out, to agree, and to elect.
const FAILOVER: Duration = Duration::from_secs(60);

/// The guards inside each critical section, by key, and when two of them were seen that both counted as held.
#[derive(Default)]
struct Inside {
    guards: Mutex<HashMap<String, Vec<Arc<Guard>>>>,
    together: Mutex<Vec<Instant>>,
    grants: AtomicU64,
}

impl Inside {
    async fn work(&self, guard: Guard) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        let guard = Arc::new(guard);
        let key = guard.key().to_owned();
        let entry = || self.guards.lock().unwrap();
        entry()
            .entry(key.clone())
            .or_default()
            .push(Arc::clone(&guard));
        for _ in 0..5 {
            sleep(ms(2)).await;
            // The own hold last: the others may have had it until just now.
            let is_other = |one: &Arc<Guard>| !Arc::ptr_eq(one, &guard) && one.is_held();
            if entry()[&key].iter().any(is_other) && guard.is_held() {
                self.together.lock().unwrap().push(Instant::now());
            }
        }
        let is_other = |one: &Arc<Guard>| !Arc::ptr_eq(one, &guard);
        entry().entry(key).or_default().retain(is_other);
        if let Some(guard) = Arc::into_inner(guard) {
            // The hold may have ended with its master.
            drop(guard.release().await);
        }
    }
}

/// Tasks of four clients that share a few keys until `stop` is set.
struct Load {
    inside: Arc<Inside>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    clients: Vec<Client>,
}

impl Load {
    async fn start(set: &SentinelSet, lease: Duration) -> Self {
        let (inside, stop) = (
            Arc::new(Inside::default()),
            Arc::new(AtomicBool::new(false)),
        );
        let (mut tasks, mut clients) = (JoinSet::new(), Vec::new());
        for _ in 0..4 {
            let settings = |builder: distlock::Builder| {
                builder.watchdog_timeout(lease).unavailable_after(FAILOVER)
            };
            let client = client_with(&set.url(), settings).await;
            for key in 0..5 {
                let lock = client.lock(format!("k:{key}"));
                let (inside, stop) = (Arc::clone(&inside), Arc::clone(&stop));
                tasks.spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        match lock.acquire().wait(FAILOVER).await {
                            Ok(guard) => inside.work(guard).await,
                            Err(error) => assert!(!error.is_permanent(), "{error}"),
                        }
                    }
                });
            }
            clients.push(client);
        }
        Self {
            inside,
            stop,
            tasks,
            clients,
        }
    }

    fn grants(&self) -> u64 {
        self.inside.grants.load(Ordering::Relaxed)
    }

    /// Completes when the load has been granted this many locks more.
    async fn goes_on(&self, grants: u64) {
        let wanted = self.grants() + grants;
        let granted = async || match self.grants() {
            now if now >= wanted => Ok(()),
            now => Err(format!("{now} of {wanted} grants")),
        };
        eventually(FAILOVER, "the load to go on", granted).await;
    }

    async fn end(mut self) -> Vec<Instant> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        drop(self.clients);
        std::mem::take(&mut *self.inside.together.lock().unwrap())
    }
}

/// Listens to a Sentinel: when it says that another server is the master.
async fn switches(sentinel: &RedisServer) -> impl Future<Output = Instant> + use<> {
    let mut messages = sentinel.client().get_async_pubsub().await.unwrap();
    messages.subscribe("+switch-master").await.unwrap();
    async move {
        let mut messages = messages.into_on_message();
        futures_util::StreamExt::next(&mut messages)
            .await
            .expect("a message");
        Instant::now()
    }
}

rows! {
    Real:
        f54_master_that_becomes_a_replica_is_found_again,
        f58_killed_master_is_followed_by_the_promoted_one;
    Real, left to "engines":
        f58_planned_failovers_bring_no_two_holders_together_and_leave_the_old_master_alone,
        f58_stopped_master_is_left_and_may_come_back,
        f58_stopped_master_is_not_taken_again_by_who_has_asked_it,
        f58_holds_go_on_while_no_sentinel_answers,
        f58_sentinel_that_was_learned_is_heard,
        f58_sentinel_that_is_gone_is_forgotten,
        f58_sentinels_that_are_gone_have_no_vote,
        f58_sentinel_that_is_outvoted_takes_no_client_from_its_master,
        f58_client_that_may_not_listen_asks;
}

async fn f58_planned_failovers_bring_no_two_holders_together_and_leave_the_old_master_alone(
    row: &Row,
) {
    let set = SentinelSet::start().await;
    let load = Load::start(&set, ms(10_000)).await;
    load.goes_on(100).await;
    let mut longest = Duration::ZERO;
    for _ in 0..long_size(2, 20) {
        let old = set.master().await;
        let heard = switches(set.sentinel(0)).await;
        let failing_over = set.fail_over();
        let (new, heard) = tokio::join!(failing_over, timeout(FAILOVER, heard));
        let heard = heard.expect("a message about the new master");
        row.injected(FAULT, 1);
        assert_ne!(old, new);
        // All clients hear it within moments. After that nobody sends a command to the old master.
        let after = heard + row.stretch(TOGETHER);
        tokio::time::sleep_until(after).await;
        let before = set.server(old).command_calls("evalsha").await;
        load.goes_on(100).await;
        let calls = set.server(old).command_calls("evalsha").await;
        assert_eq!(calls, before, "commands to the old master");
        let together = std::mem::take(&mut *load.inside.together.lock().unwrap());
        for at in together {
            longest = longest.max(at.saturating_duration_since(heard));
            assert!(at < after, "two holders {:?} after the message", at - heard);
        }
        set.wait_until_stable().await;
    }
    println!("two holders together for at most {longest:?} after the message");
    load.end().await;
}

async fn f58_killed_master_is_followed_by_the_promoted_one(row: &Row) {
    let mut set = SentinelSet::start().await;
    let load = Load::start(&set, ms(3_000)).await;
    load.goes_on(100).await;
    let old = set.kill_master().await;
    row.injected(FAULT, 1);
    set.master_after(old).await;
    let promoted = Instant::now();
    load.goes_on(1).await;
    println!(
        "the first grant came {:?} after the promotion",
        promoted.elapsed()
    );
    load.goes_on(100).await;
    load.end().await;
}

async fn f58_stopped_master_is_left_and_may_come_back(row: &Row) {
    let mut set = SentinelSet::start().await;
    let load = Load::start(&set, ms(3_000)).await;
    load.goes_on(100).await;
    let old = set.master().await;
    set.server_mut(old).stop();
    row.injected(FAULT, 1);
    set.master_after(old).await;
    load.goes_on(100).await;
    // What lay in its sockets is carried out now. It is made a replica some time later.
    set.server_mut(old).cont();
    set.wait_until_stable().await;
    load.goes_on(100).await;
    load.end().await;
}

async fn f58_stopped_master_is_not_taken_again_by_who_has_asked_it(row: &Row) {
    let mut set = SentinelSet::start().await;
    let settings = |builder: distlock::Builder| {
        let builder = builder.connect_timeout(FAILOVER * 2);
        builder
            .response_timeout(ms(100))
            .unavailable_after(FAILOVER)
    };
    let client = client_with(&set.url(), settings).await;
    let pair = async || {
        let guard = client.lock("k").acquire().wait(FAILOVER).await.unwrap();
        guard.release().await.unwrap();
    };
    pair().await;
    let old = set.master().await;
    set.server_mut(old).stop();
    row.injected(FAULT, 1);
    // The client looks for the master before the Sentinels miss it, so they name the old one. It asks that one and waits.
    let fails_over = async {
        set.master_after(old).await;
        // It says that it is the master to those who have asked.
        set.server_mut(old).cont();
    };
    tokio::join!(fails_over, pair());
    let before = set.server(old).command_calls("evalsha").await;
    for _ in 0..20 {
        pair().await;
    }
    let calls = set.server(old).command_calls("evalsha").await;
    assert_eq!(calls, before, "commands to the old master");
}

async fn f58_holds_go_on_while_no_sentinel_answers(row: &Row) {
    let mut set = SentinelSet::start().await;
    let lease = ms(1_500);
    let client = client_with(&set.url(), |builder| builder.watchdog_timeout(lease)).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    for at in 0..3 {
        set.sentinel_mut(at).kill();
    }
    row.injected(FAULT, 1);
    sleep(lease * 2).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    let master = (0..3).find(|at| set.server(*at).runs()).unwrap();
    free(set.server(master), &[&client]).await;
}

async fn f58_sentinel_that_was_learned_is_heard(row: &Row) {
    let mut set = SentinelSet::start().await;
    let url = format!("redis+sentinel://{}/{SERVICE}", set.sentinel(0).addr());
    let client = client_with(&url, |builder| builder.unavailable_after(FAILOVER)).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    // The others know of the client once it listens to them.
    for at in [1, 2] {
        let listens = async || match set.sentinel(at).client_list().await {
            lines if lines.iter().any(|line| line.field("sub") == "1") => Ok(()),
            lines => Err(format!("{lines:?}")),
        };
        eventually(SOON, "the client to listen", listens).await;
    }
    set.sentinel_mut(0).kill();
    let old = set.kill_master().await;
    row.injected(FAULT, 1);
    set.master_after(old).await;
    let guard = client.lock("k").acquire().wait(FAILOVER).await.unwrap();
    guard.release().await.unwrap();
}

async fn f58_sentinel_that_is_gone_is_forgotten(row: &Row) {
    let set = SentinelSet::start().await;
    let url = format!("redis+sentinel://{}/{SERVICE}", set.sentinel(0).addr());
    let client = client_with(&url, |builder| builder).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    // Those of the harness and of other Sentinels have names.
    let connections = async |at: usize| {
        let lines = set.sentinel(at).client_list().await;
        lines
            .iter()
            .filter(|line| line.field("name").is_empty())
            .count()
    };
    for at in 1..3 {
        let listens = || async { connections(at).await > 0 };
        eventually_eq(SOON, "a connection to a learned Sentinel", true, listens).await;
    }
    // As an operator removes a Sentinel: it watches the service no more, and the others get the command to forget it.
    let remove = ["SENTINEL", "REMOVE", SERVICE];
    set.sentinel(2).cli(&remove).await;
    for at in 0..2 {
        set.sentinel(at).cli(&["SENTINEL", "RESET", SERVICE]).await;
    }
    row.injected("Sentinel taken away", 1);
    let left = || connections(2);
    eventually_eq(FAILOVER, "connections to the one that is gone", 0, left).await;
    for at in 0..2 {
        let listens = || async { connections(at).await > 0 };
        eventually_eq(SOON, "a connection to one that stays", true, listens).await;
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// They named the server that was promoted. The last one names the first master again.
async fn f58_sentinels_that_are_gone_have_no_vote(row: &Row) {
    let mut set = SentinelSet::start().await;
    let client = client_with(&set.url(), |builder| builder.unavailable_after(FAILOVER)).await;
    let pair = async || {
        let guard = client.lock("k").acquire().wait(FAILOVER).await.unwrap();
        guard.release().await.unwrap();
    };
    pair().await;
    let old = set.master().await;
    set.fail_over().await;
    pair().await;
    for at in [0, 1] {
        set.sentinel_mut(at).kill();
    }
    set.sentinel(2).cli(&["SENTINEL", "REMOVE", SERVICE]).await;
    for at in (0..3).filter(|at| *at != old) {
        set.server_mut(at).kill();
    }
    row.injected(FAULT, 1);
    set.server(old).cli(&["REPLICAOF", "NO", "ONE"]).await;
    let port = set.server(old).port().to_string();
    let monitor = ["SENTINEL", "MONITOR", SERVICE, "127.0.0.1", &port, "1"];
    set.sentinel(2).cli(&monitor).await;
    pair().await;
}

/// It names an earlier master, which still says that it is one.
async fn f58_sentinel_that_is_outvoted_takes_no_client_from_its_master(row: &Row) {
    let set = SentinelSet::builder().patient().start().await;
    let earlier = RedisServer::start().await;
    let monitor = format!("sentinel monitor {SERVICE} 127.0.0.1 {} 1", earlier.port());
    let outvoted = RedisServer::builder().sentinel(vec![monitor]);
    let mut outvoted = outvoted.start().await;
    outvoted.stop();
    let url = set
        .url()
        .replace("://", &format!("://{},", outvoted.addr()));
    let client = client_with(&url, |builder| builder).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    outvoted.cont();
    let names_it = async || {
        let lines = outvoted.client_list().await;
        lines
            .iter()
            .any(|line| line.field("cmd") == "sentinel|get-master-addr-by-name")
    };
    eventually_eq(FAILOVER, "the question for the master", true, names_it).await;
    row.injected("Sentinel that names an earlier master", 1);
    // Otherwise the client would go there within a moment.
    assert!(timeout(ms(2_000), guard.lost()).await.is_err());
    guard.release().await.unwrap();
    // Nor does a new connection lead there.
    let master = set.server(set.master().await);
    for _ in 0..5 {
        master.kill_clients("normal").await;
        let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
        assert_eq!(earlier.keys().await, Vec::<String>::new());
        guard.release().await.unwrap();
    }
}

async fn f58_client_that_may_not_listen_asks(row: &Row) {
    let set = SentinelSet::builder()
        .sentinel_credentials("watcher", "pw")
        .start()
        .await;
    for at in 0..3 {
        set.sentinel(at)
            .cli(&["ACL", "SETUSER", "watcher", "resetchannels"])
            .await;
    }
    let client = client_with(&set.url(), |builder| builder.unavailable_after(FAILOVER)).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    set.wait_until_all_have("k").await;
    let old = set.master().await;
    set.fail_over().await;
    row.injected(FAULT, 1);
    // The old master would go on answering for ten seconds. The client asks the Sentinels as often.
    let moved = async || {
        let lock = client.lock("other");
        let before = set.server(old).command_calls("evalsha").await;
        let guard = lock
            .acquire()
            .wait(SOON)
            .await
            .map_err(|error| error.to_string())?;
        guard.release().await.map_err(|error| error.to_string())?;
        match set.server(old).command_calls("evalsha").await {
            calls if calls == before => Ok(()),
            _ => Err("the old master was asked".to_owned()),
        }
    };
    eventually(FAILOVER, "the client to move", moved).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn f54_master_that_becomes_a_replica_is_found_again(row: &Row) {
    let set = SentinelSet::start().await;
    let client = client_with(&set.url(), |builder| builder.unavailable_after(FAILOVER)).await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    let old = set.master().await;
    // By hand, and unknown to the Sentinels: they go on naming it until they take it for down and move the master themselves.
    // The other server has to be promoted first. A ring of replicas would end in Redis 7 alone: in Redis 6 a server that
    // becomes a replica drops its own replicas, none of them syncs again, and the Sentinels promote none without a link.
    let other = set.server((old + 1) % 3);
    other.cli(&["REPLICAOF", "NO", "ONE"]).await;
    let other = other.port().to_string();
    set.server(old)
        .cli(&["REPLICAOF", "127.0.0.1", &other])
        .await;
    row.injected(FAULT, 1);
    let refused = set.server(old).try_cli::<()>(&["SET", "probe", "1"]).await;
    assert!(refused.unwrap_err().to_string().contains("read only"));
    let next = client.lock("next").acquire().wait(FAILOVER).await.unwrap();
    next.release().await.unwrap();
    drop(guard);
}
