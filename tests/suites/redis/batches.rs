//! Attempts and releases of many tasks that travel in one command.
//!
//! On one thread and in one task, of several operations that begin at once the first may go alone, and the others go together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Guard};
use distlock_tests::rights::PASSWORD;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, Which, eventually_eq};
use futures_util::future::{join_all, poll_immediate};
use redis::Value;
use tokio::runtime;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::{SOON, client};

/// So many operations at once are a batch, and perhaps a single one before it.
const AT_ONCE: usize = 8;

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

async fn warmed(client: Client) -> Client {
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
    let client = warm_client(&server).await;
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
    server
        .cli(&["SET", &key(3), "data of another program"])
        .await;
    let other = super::client(&server).await;
    let theirs = other.lock(key(5)).acquire().await.unwrap();
    let before = server.command_calls("evalsha").await;
    let acquired = join_all(attempts(&client)).await;
    assert!(scripts_since(&server, before).await <= 2);
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
        server.cli(&["SET", key, "data of another program"]).await;
    }
    let expected = alone.release().await.unwrap_err().to_string();
    let before = server.command_calls("evalsha").await;
    let released = join_all(guards.into_iter().map(Guard::release)).await;
    // A release of a key with other data is sent once more.
    let sent = scripts_since(&server, before).await;
    assert!(sent < AT_ONCE as u64 / 2, "{sent}");
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
    let set = SentinelSet::builder().start().await;
    let master = set.server(set.master().await);
    let client = Client::connect(&set.url()).await.unwrap();
    release_all(held(&client).await).await;
    let too_many = ["CONFIG", "SET", "min-replicas-to-write", "9"];
    master.cli(&too_many).await;
    let named = format!("master {}: ", master.addr());
    let before = master.command_calls("evalsha").await;
    for acquired in join_all(attempts(&client)).await {
        let text = acquired.unwrap_err().to_string();
        assert!(text.contains(&named), "{text}");
    }
    assert!(scripts_since(master, before).await <= 2);
}

/// The script of a batch, bare.
const BATCH: &str = concat!(
    include_str!("../../../distlock/src/backend/redis/scripts/publish.lua"),
    include_str!("../../../distlock/src/backend/redis/scripts/held.lua"),
    include_str!("../../../distlock/src/backend/redis/scripts/acquire.lua"),
    include_str!("../../../distlock/src/backend/redis/scripts/acquire_all.lua"),
    include_str!("../../../distlock/src/backend/redis/scripts/release.lua"),
    include_str!("../../../distlock/src/backend/redis/scripts/release_all.lua"),
    include_str!("../../../distlock/src/backend/redis/scripts/lock_batch.lua"),
);

#[tokio::test]
async fn error_of_one_operation_in_the_script_of_a_batch_is_its_own_answer() {
    let server = RedisServer::start().await;
    let owner = |name: &str| format!("0f0e0d0c-0b0a-0908-0706-050403020100:{name}");
    let [one, two, three] = ["1", "2", "3"].map(owner);
    let channel = "redisson_lock__channel:{a}";
    let words = ["EVAL", BATCH, "8", "a", "b", "c", "d", "e", "f", "g", "a"];
    let mut of_each = vec![&*one, "30000", &*two, "1.5"];
    // Two that are granted together, and two of which one has no valid lease.
    of_each.extend(["2", &three, "30000", &three, "30000"]);
    of_each.extend(["2", &three, "30000", &three, "1.5"]);
    of_each.extend([&*three, "30000", &*one, channel]);
    let answer = server.cli(&[&words[..], &of_each].concat()).await;
    let Value::Array(answers) = answer else {
        panic!("{answer:?}")
    };
    let [
        Value::Nil,
        failed,
        Value::Nil,
        too,
        Value::Nil,
        Value::Int(0),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    for failed in [failed, too] {
        let Value::Array(failed) = failed else {
            panic!("{failed:?}")
        };
        let [Value::BulkString(word), Value::BulkString(error)] = failed.as_slice() else {
            panic!("{failed:?}")
        };
        assert_eq!(word, b"failed");
        let error = String::from_utf8_lossy(error);
        assert!(error.contains("not an integer"), "{error}");
    }
    assert_eq!(server.keys().await, ["c", "d", "g"]);
}

#[tokio::test]
async fn owner_that_has_its_locks_already_gets_the_longer_lease_in_a_batch() {
    let server = RedisServer::start().await;
    let owner = "0f0e0d0c-0b0a-0908-0706-050403020100:1";
    for lease in ["30000", "60000"] {
        let words = ["EVAL", BATCH, "4", "a", "b", "c", "d"];
        let of_each = [owner, lease, "2", owner, lease, owner, lease, owner, lease];
        server.cli(&[&words[..], &of_each].concat()).await;
    }
    for key in ["a", "b", "c", "d"] {
        let left = server.pttl(key).await;
        assert!((30_001..=60_000).contains(&left), "{key}: {left}");
    }
}

/// One attempt at two keys each: the first with the third, the second with the fourth, and so on.
fn attempts_at_two(client: &Client) -> Vec<Acquiring> {
    let attempt = |number: usize| -> Acquiring {
        let keys = [0, 2].map(|other| key(4 * (number / 2) + number % 2 + other));
        let lock = client.multi_lock(keys);
        Box::pin(lock.acquire().wait(Duration::ZERO).into_future())
    };
    (0..AT_ONCE).map(attempt).collect()
}

#[tokio::test]
async fn attempts_at_several_keys_travel_together_and_each_gets_all_or_none() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    server
        .cli(&["SET", &key(3), "data of another program"])
        .await;
    let other = super::client(&server).await;
    let theirs = other.lock(key(6)).acquire().await.unwrap();
    let before = server.command_calls("evalsha").await;
    let acquired = join_all(attempts_at_two(&client)).await;
    assert!(scripts_since(&server, before).await <= 2);
    let mut guards = Vec::new();
    for (number, acquired) in acquired.into_iter().enumerate() {
        match number {
            // Keys 1 and 3.
            1 => {
                let text = acquired.unwrap_err().to_string();
                assert!(text.contains("another type of value"), "{text}");
            }
            // Keys 4 and 6.
            2 => {
                let busy = acquired.unwrap_err();
                assert!(busy.is_busy(), "{busy}");
                let text = busy.to_string();
                assert!(text.contains(&theirs.owner().to_string()), "{text}");
            }
            _ => guards.push(acquired.unwrap()),
        }
    }
    for free in [1, 4] {
        assert!(!server.keys().await.contains(&key(free)));
    }
    assert_eq!(server.keys().await.len(), 2 * (AT_ONCE - 2) + 2);
    let before = server.command_calls("evalsha").await;
    release_all(guards).await;
    assert!(scripts_since(&server, before).await <= 2);
    theirs.release().await.unwrap();
    assert_eq!(server.keys().await, [key(3)]);
}

#[tokio::test]
async fn release_of_several_keys_in_a_batch_frees_those_that_are_no_other_data() {
    let server = RedisServer::start().await;
    let client = untracked_client(&server).await;
    let acquired = join_all(attempts_at_two(&client)).await;
    server.cli(&["DEL", &key(3)]).await;
    server
        .cli(&["SET", &key(3), "data of another program"])
        .await;
    let guards = acquired.into_iter().map(Result::unwrap);
    let released = join_all(guards.map(Guard::release)).await;
    for (number, released) in released.into_iter().enumerate() {
        // Keys 1 and 3.
        assert_eq!(released.is_err(), number == 1, "{number}: {released:?}");
    }
    assert_eq!(server.keys().await, [key(3)]);
}

#[tokio::test]
async fn attempt_at_several_keys_that_leaves_while_its_batch_is_under_way_keeps_none() {
    let (server, proxy, client) = behind_a_proxy().await;
    release_multi_locks(&client).await;
    let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(key(9)));
    let attempts = attempts_at_two(&client);
    let mut attempts: Vec<_> = attempts.into_iter().map(tokio::spawn).collect();
    let batch = batch.caught(SOON).await;
    // Keys 9 and 11.
    let left = attempts.remove(5);
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    assert!(batch.deliver().await.is_some());
    for acquired in join_all(attempts).await {
        acquired.unwrap().unwrap().release().await.unwrap();
    }
    // The lease is 30 s: only a release frees them in time.
    eventually_eq(SOON, "keys", Vec::<String>::new(), || server.keys()).await;
}

/// The server knows the scripts for several keys afterwards.
async fn release_multi_locks(client: &Client) {
    let acquired = join_all(attempts_at_two(client)).await;
    release_all(acquired.into_iter().map(Result::unwrap).collect()).await;
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
    let client = builder.connect(&proxy.url()).await.unwrap();
    release_all(held(&client).await).await;
    (server, proxy, client)
}

#[tokio::test]
async fn caller_that_leaves_while_its_batch_is_under_way_keeps_no_key_and_no_answer_of_others() {
    let (server, proxy, client) = behind_a_proxy().await;
    let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(key(3)));
    let mut attempts: Vec<_> = attempts(&client).into_iter().map(tokio::spawn).collect();
    let batch = batch.caught(SOON).await;
    let left = attempts.remove(3);
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    assert!(batch.deliver().await.is_some());
    for acquired in join_all(attempts).await {
        acquired.unwrap().unwrap().release().await.unwrap();
    }
    // The lease is 30 s: only a release frees it in time.
    eventually_eq(SOON, "keys", Vec::<String>::new(), || server.keys()).await;
}

#[tokio::test]
async fn server_that_has_forgotten_the_scripts_is_sent_the_batch_by_its_source() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    server.cli(&["SCRIPT", "FLUSH"]).await;
    let by_source = server.command_calls("eval").await;
    let guards = held(&client).await;
    let by_source = server.command_calls("eval").await - by_source;
    assert!((1..=2).contains(&by_source), "{by_source}");
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
async fn locks_of_several_keys_of_which_one_has_no_lease_all_stay_free() {
    let server = RedisServer::start().await;
    let leases = format!("(+pexpire {})", but_the_third().join(" "));
    let rights = ["+@all", "-pexpire", "~*", "&*", &leases].map(String::from);
    server.set_user("some", &rights).await;
    let url = format!("redis://some:{PASSWORD}@{}", server.addr());
    let client = Client::connect(&url).await.unwrap();
    let lock = client.multi_lock([key(1), key(2), key(3)]);
    let denied = lock.try_acquire().await.unwrap_err();
    assert!(denied.to_string().contains("denied"), "{denied}");
    assert_eq!(server.keys().await, Vec::<String>::new());
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
