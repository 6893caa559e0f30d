//! Attempts and releases of many tasks that travel in one command.
//!
//! The clients here collect what comes up while anything is under way, as busy clients do. On one thread and in one task, of several
//! operations that begin at once the first may go alone, and the others go together.

mod readers;
mod script;
mod several;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::collect_always;
use distlock::{Client, Error, Guard};
use distlock_tests::rights::PASSWORD;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, Which, eventually_eq};
use futures_util::future::{join_all, poll_immediate};
use tokio::runtime;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::{SOON, client};

/// So many operations at once are two batches, and perhaps a single one before them.
const AT_ONCE: usize = 8;

/// How many scripts the server is sent for them.
const MOST_SCRIPTS: u64 = 3;

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

fn key(number: usize) -> String {
    format!("key:{number}")
}

/// One attempt at each key.
fn attempts(client: &Client) -> Vec<Acquiring> {
    let attempt = |number| -> Acquiring {
        let once = client.lock(key(number)).acquire().wait(Duration::ZERO);
        Box::pin(once.into_future())
    };
    (0..AT_ONCE).map(attempt).collect()
}

/// Holds all keys.
async fn held(client: &Client) -> Vec<Guard> {
    let acquired = join_all(attempts(client)).await;
    acquired.into_iter().map(Result::unwrap).collect()
}

/// How many scripts the server has been sent since this count.
async fn scripts_since(server: &RedisServer, before: u64) -> u64 {
    server.command_calls("evalsha").await - before
}

/// A client whose server knows the scripts.
async fn warm_client(server: &RedisServer) -> Client {
    warmed(client(server).await).await
}

/// The same, which does not learn of a deletion by itself: it would have nothing to release.
async fn untracked_client(server: &RedisServer) -> Client {
    let untracked = Client::builder()
        .response_timeout(Duration::MAX)
        .unavailable_after(SOON)
        .track_holds(false);
    warmed(untracked.connect(&server.url()).await.unwrap()).await
}

/// Puts data of another program under a key.
async fn other_data(server: &RedisServer, key: &str) {
    server.cli(&["SET", key, "data of another program"]).await;
}

async fn warmed(client: Client) -> Client {
    collect_always(&client);
    release_all(held(&client).await).await;
    client
}

async fn release_all(guards: Vec<Guard>) {
    for released in join_all(guards.into_iter().map(Guard::release)).await {
        released.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_of_64_tasks_on_64_keys_send_far_fewer_commands_than_two_each() {
    const TASKS: usize = 64;
    const PAIRS: u64 = 30;
    let server = RedisServer::start().await;
    // As users have it.
    let client = client(&server).await;
    release_all(held(&client).await).await;
    let before = server.command_calls("evalsha").await;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let lock = client.lock(key(number));
        tasks.spawn(async move {
            for _ in 0..PAIRS {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let pairs = TASKS as u64 * PAIRS;
    let sent = scripts_since(&server, before).await;
    assert!(sent < pairs, "{sent} commands for {pairs} pairs");
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn one_task_sends_two_commands_a_pair() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    let before = server.command_calls("evalsha").await;
    let lock = client.lock("k");
    for _ in 0..10 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(scripts_since(&server, before).await, 20);
}

#[tokio::test]
async fn attempt_of_a_batch_that_meets_another_type_or_holder_fails_alone() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    other_data(&server, &key(3)).await;
    let other = super::client(&server).await;
    let theirs = other.lock(key(5)).acquire().await.unwrap();
    let before = server.command_calls("evalsha").await;
    let acquired = join_all(attempts(&client)).await;
    assert!(scripts_since(&server, before).await <= MOST_SCRIPTS);
    for (number, acquired) in acquired.into_iter().enumerate() {
        match number {
            3 => {
                let alone = client.lock(key(3)).try_acquire().await.unwrap_err();
                assert_eq!(acquired.unwrap_err().to_string(), alone.to_string());
            }
            5 => {
                let busy = acquired.unwrap_err();
                assert!(busy.is_busy(), "{busy}");
                assert!(
                    busy.to_string().contains(&theirs.owner().to_string()),
                    "{busy}"
                );
            }
            _ => acquired.unwrap().release().await.unwrap(),
        }
    }
    let data: String = server.try_cli(&["GET", &key(3)]).await.unwrap();
    assert_eq!(data, "data of another program");
    theirs.release().await.unwrap();
}

#[tokio::test]
async fn release_of_a_batch_whose_key_has_another_type_fails_alone() {
    let server = RedisServer::start().await;
    let client = untracked_client(&server).await;
    let alone = client.lock("alone").acquire().await.unwrap();
    let guards = held(&client).await;
    for key in ["alone", &key(3)] {
        server.cli(&["DEL", key]).await;
        other_data(&server, key).await;
    }
    let expected = alone.release().await.unwrap_err().to_string();
    let before = server.command_calls("evalsha").await;
    let released = join_all(guards.into_iter().map(Guard::release)).await;
    // A release of a key with other data is sent once more.
    let sent = scripts_since(&server, before).await;
    assert!(sent <= MOST_SCRIPTS + 1, "{sent}");
    for (number, released) in released.into_iter().enumerate() {
        match number {
            3 => {
                let error = released.unwrap_err().to_string();
                assert_eq!(error.replace(&key(3), "alone"), expected);
            }
            _ => released.unwrap(),
        }
    }
}

#[tokio::test]
async fn error_of_an_operation_of_a_batch_names_the_master_that_sentinels_name() {
    let set = SentinelSet::builder().patient().start().await;
    let master = set.server(set.master().await);
    let client = warmed(Client::connect(&set.url()).await.unwrap()).await;
    let too_many = ["CONFIG", "SET", "min-replicas-to-write", "9"];
    master.cli(&too_many).await;
    let named = format!("master {}: ", master.addr());
    let before = master.command_calls("evalsha").await;
    for acquired in join_all(attempts(&client)).await {
        let text = acquired.unwrap_err().to_string();
        assert!(text.contains(&named), "{text}");
    }
    assert!(scripts_since(master, before).await <= MOST_SCRIPTS);
}

#[tokio::test]
async fn operation_whose_caller_is_gone_before_its_batch_is_not_sent() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    let written = server.command_calls("hset").await;
    let mut attempts = attempts(&client);
    for attempt in &mut attempts {
        assert!(poll_immediate(attempt).await.is_none());
    }
    drop(attempts.remove(3));
    for acquired in join_all(attempts).await {
        acquired.unwrap().release().await.unwrap();
    }
    let sent = server.command_calls("hset").await - written;
    assert_eq!(sent, AT_ONCE as u64 - 1);
}

/// A server, a proxy before it, and a client of the proxy whose server knows the scripts.
async fn behind_a_proxy() -> (RedisServer, Proxy, Client) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let builder = Client::builder().response_timeout(SOON);
    let client = warmed(builder.connect(&proxy.url()).await.unwrap()).await;
    (server, proxy, client)
}

/// The attempt of this number leaves while the batch with its key is under way. All others are granted, and no key is kept.
async fn leave_under_way(
    server: &RedisServer,
    proxy: &Proxy,
    attempts: Vec<Acquiring>,
    leaves: usize,
    key: String,
) {
    let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(key));
    let mut attempts: Vec<_> = attempts.into_iter().map(tokio::spawn).collect();
    let batch = batch.caught(SOON).await;
    let left = attempts.remove(leaves);
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    assert!(batch.deliver().await.is_some());
    for acquired in join_all(attempts).await {
        acquired.unwrap().unwrap().release().await.unwrap();
    }
    // The lease is 30 s: only a release frees the keys in time.
    eventually_eq(SOON, "keys", Vec::<String>::new(), || server.keys()).await;
}

#[tokio::test]
async fn caller_that_leaves_while_its_batch_is_under_way_keeps_no_key_and_no_answer_of_others() {
    let (server, proxy, client) = behind_a_proxy().await;
    leave_under_way(&server, &proxy, attempts(&client), 3, key(3)).await;
}

#[tokio::test]
async fn server_that_has_forgotten_the_scripts_is_sent_the_batch_by_its_source() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    server.cli(&["SCRIPT", "FLUSH"]).await;
    let by_source = server.command_calls("eval").await;
    let guards = held(&client).await;
    let by_source = server.command_calls("eval").await - by_source;
    assert!((1..=MOST_SCRIPTS).contains(&by_source), "{by_source}");
    release_all(guards).await;
}

/// The patterns of all keys but the third.
fn but_the_third() -> Vec<String> {
    let others = (0..AT_ONCE).filter(|number| *number != 3);
    others.map(|number| format!("~{}", key(number))).collect()
}

/// A user with these rights is refused the third key alone, and nothing is left of it.
async fn third_key_fails_alone(rights: &[String]) {
    let server = RedisServer::start().await;
    server.set_user("some", rights).await;
    let url = format!("redis://some:{PASSWORD}@{}", server.addr());
    let client = Client::connect(&url).await.unwrap();
    collect_always(&client);
    for _ in 0..2 {
        for (number, acquired) in join_all(attempts(&client)).await.into_iter().enumerate() {
            match number {
                3 => {
                    let alone = client.lock(key(3)).try_acquire().await.unwrap_err();
                    // The server adds the line of a script to the errors that nothing in it catches.
                    let [acquired, alone] = [acquired.unwrap_err(), alone].map(|error| {
                        let text = error.to_string();
                        text.split(" script: ").next().map(str::to_owned)
                    });
                    assert_eq!(acquired, alone);
                }
                _ => acquired.unwrap().release().await.unwrap(),
            }
        }
        assert_eq!(server.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn key_that_a_user_may_not_use_fails_alone_and_the_others_of_its_batch_are_granted() {
    let rights = ["+@all", "&*"].map(String::from);
    let rights: Vec<String> = rights.into_iter().chain(but_the_third()).collect();
    third_key_fails_alone(&rights).await;
}

#[tokio::test]
async fn key_whose_lease_a_user_may_not_set_fails_alone_and_stays_free() {
    let leases = format!("(+pexpire {})", but_the_third().join(" "));
    let rights = ["+@all", "-pexpire", "~*", "&*", &leases].map(String::from);
    third_key_fails_alone(&rights).await;
}

#[tokio::test]
async fn operation_that_waits_when_the_runtime_of_the_others_ends_is_sent_by_its_caller() {
    let (_server, proxy, client) = behind_a_proxy().await;
    let stalled = proxy.flow(Select::COMMANDS, Way::Up, Flow::Stall);
    let ending = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    // What sends their batches runs there.
    let begun = Arc::new(AtomicUsize::new(0));
    for mut attempt in attempts(&client) {
        let begun = Arc::clone(&begun);
        ending.spawn(async move {
            assert!(poll_immediate(&mut attempt).await.is_none());
            begun.fetch_add(1, Ordering::Relaxed);
            attempt.await
        });
    }
    let begun = || async { begun.load(Ordering::Relaxed) };
    eventually_eq(SOON, "attempts that have begun", AT_ONCE, begun).await;
    let mut ours = Box::pin(client.lock("ours").acquire().into_future());
    assert!(poll_immediate(&mut ours).await.is_none());
    ending.shutdown_background();
    stalled.lift();
    let guard = timeout(SOON, ours).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn operations_of_one_runtime_do_not_wait_for_another_one_that_stands_still() {
    let (server, proxy, client) = behind_a_proxy().await;
    // Nothing is answered while they begin.
    let stalled = proxy.flow(Select::COMMANDS, Way::Up, Flow::Stall);
    let standing = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let begun = client.clone();
    let (standing, others) = spawn_blocking(move || {
        let others = standing.block_on(async {
            let mut others = attempts(&begun);
            for attempt in &mut others {
                assert!(poll_immediate(attempt).await.is_none());
            }
            others
        });
        // From here on nothing runs there, what sends their batches included.
        (standing, others)
    })
    .await
    .unwrap();
    stalled.lift();
    let ours =
        (AT_ONCE..2 * AT_ONCE).map(|number| client.lock(key(number)).acquire().into_future());
    let ours = timeout(SOON, join_all(ours)).await.expect("they are sent");
    release_all(ours.into_iter().map(Result::unwrap).collect()).await;
    spawn_blocking(move || {
        let others = standing.block_on(join_all(others));
        let released = release_all(others.into_iter().map(Result::unwrap).collect());
        standing.block_on(released);
    })
    .await
    .unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}
