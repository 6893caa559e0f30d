//! Attempts and releases of readers travel together, and a script looks at a lock once for all its readers in a batch.

use std::future::IntoFuture;
use std::time::Duration;

use distlock::test_util::{collect_always, script};
use distlock::{Client, Guard};
use distlock_tests::rights::PASSWORD;
use distlock_tests::{RedisServer, eventually_eq};
use futures_util::future::join_all;
use redis::Value;
use tokio::task::JoinSet;

use super::script::has_no_valid_lease;
use super::{
    AT_ONCE, Acquiring, MOST_SCRIPTS, SOON, behind_a_proxy, but_the_third, key, leave_under_way,
    other_data, release_all, scripts_since, untracked_client, warm_client,
};

/// The lock of several readers.
const LOCK: &str = "lock";

/// One attempt of a reader at each key.
fn attempts(client: &Client, key: impl Fn(usize) -> String) -> Vec<Acquiring> {
    let attempt = |number| -> Acquiring {
        let lock = client.rw_lock(key(number));
        Box::pin(lock.read().acquire().wait(Duration::ZERO).into_future())
    };
    (0..AT_ONCE).map(attempt).collect()
}

/// As many readers of one lock.
fn of_one_lock(client: &Client) -> Vec<Acquiring> {
    attempts(client, |_| LOCK.to_owned())
}

async fn granted(attempts: Vec<Acquiring>) -> Vec<Guard> {
    let acquired = join_all(attempts).await;
    acquired.into_iter().map(Result::unwrap).collect()
}

/// The server knows the scripts for readers afterwards.
async fn warm_up(client: &Client) {
    release_all(granted(of_one_lock(client)).await).await;
}

fn timeout_key(guard: &Guard) -> String {
    format!("{{{LOCK}}}:{}:rwlock_timeout:1", guard.owner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_of_64_readers_send_far_fewer_commands_than_two_each() {
    const TASKS: usize = 64;
    const PAIRS: u64 = 30;
    let server = RedisServer::start().await;
    // As users have it.
    let client = super::client(&server).await;
    warm_up(&client).await;
    let before = server.command_calls("evalsha").await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = client.rw_lock(LOCK).read();
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
async fn readers_of_many_locks_in_a_batch_are_granted_or_refused_for_their_own_lock() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    warm_up(&client).await;
    other_data(&server, &key(3)).await;
    let other = super::client(&server).await;
    let writer = other.rw_lock(key(5)).write().acquire().await.unwrap();
    let reader = other.rw_lock(key(6)).read().acquire().await.unwrap();
    let before = server.command_calls("evalsha").await;
    let acquired = join_all(attempts(&client, key)).await;
    assert!(scripts_since(&server, before).await <= MOST_SCRIPTS);
    let mut guards = Vec::new();
    for (number, acquired) in acquired.into_iter().enumerate() {
        match number {
            3 => {
                let alone = client.rw_lock(key(3)).read().try_acquire().await;
                assert_eq!(
                    acquired.unwrap_err().to_string(),
                    alone.unwrap_err().to_string()
                );
            }
            5 => {
                let busy = acquired.unwrap_err();
                assert!(busy.is_busy(), "{busy}");
                let text = busy.to_string();
                assert!(text.contains(&writer.owner().to_string()), "{text}");
            }
            _ => guards.push(acquired.unwrap()),
        }
    }
    let before = server.command_calls("evalsha").await;
    release_all(guards).await;
    assert!(scripts_since(&server, before).await <= MOST_SCRIPTS);
    for theirs in [writer, reader] {
        theirs.release().await.unwrap();
    }
    let mut left = server.keys().await;
    // Those of the writer end by themselves.
    left.retain(|key| !key.ends_with(":rwlock_turn") && !key.ends_with(":rwlock_readers_wait"));
    assert_eq!(left, [key(3)]);
}

#[tokio::test]
async fn reader_of_a_batch_whose_lease_has_ended_is_lost_alone() {
    let server = RedisServer::start().await;
    let client = untracked_client(&server).await;
    let guards = granted(of_one_lock(&client)).await;
    server.cli(&["DEL", &timeout_key(&guards[4])]).await;
    let released = join_all(guards.into_iter().map(Guard::release)).await;
    for (number, released) in released.into_iter().enumerate() {
        match number {
            4 => assert!(released.unwrap_err().is_lost()),
            _ => released.unwrap(),
        }
    }
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn readers_that_leave_in_a_batch_wake_the_writer_that_waits() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    let guards = granted(of_one_lock(&client)).await;
    // By itself the writer would look again only after the test.
    let other = Client::builder().waiter_timeout(SOON * 6);
    let other = other.connect(&server.url()).await.unwrap();
    let writer = other.rw_lock(LOCK).write();
    let waiting = tokio::spawn(writer.acquire().into_future());
    let turn = format!("{{{LOCK}}}:rwlock_turn");
    eventually_eq(SOON, "its turn", true, || async {
        server.keys().await.contains(&turn)
    })
    .await;
    // While it waits, a batch of new readers is refused.
    for refused in join_all(of_one_lock(&client)).await {
        assert!(refused.unwrap_err().is_busy());
    }
    release_all(guards).await;
    let guard = tokio::time::timeout(SOON, waiting).await.expect("woken");
    guard.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn reader_that_leaves_while_its_batch_is_under_way_keeps_nothing() {
    let (server, proxy, client) = behind_a_proxy().await;
    warm_up(&client).await;
    leave_under_way(&server, &proxy, attempts(&client, key), 3, key(3)).await;
}

#[tokio::test]
async fn reader_of_a_key_that_a_user_may_not_use_fails_alone() {
    let server = RedisServer::start().await;
    let others = (0..AT_ONCE).filter(|number| *number != 3);
    let beside = others.map(|number| format!("~{{{}}}:*", key(number)));
    let rights = ["+@all", "&*"].map(String::from).into_iter();
    let rights: Vec<String> = rights.chain(but_the_third()).chain(beside).collect();
    server.set_user("some", &rights).await;
    let url = format!("redis://some:{PASSWORD}@{}", server.addr());
    let client = Client::connect(&url).await.unwrap();
    collect_always(&client);
    for _ in 0..2 {
        let acquired = join_all(attempts(&client, key)).await;
        for (number, acquired) in acquired.into_iter().enumerate() {
            match number {
                3 => {
                    let text = acquired.unwrap_err().to_string();
                    assert!(text.contains("denied"), "{text}");
                }
                _ => acquired.unwrap().release().await.unwrap(),
            }
        }
        assert_eq!(server.keys().await, Vec::<String>::new());
    }
}

/// The keys of one group in the call of the script.
fn group(key: &str) -> [String; 3] {
    [
        key.to_owned(),
        format!("{{{key}}}:rwlock_turn"),
        format!("{{{key}}}:rwlock_readers_wait"),
    ]
}

#[tokio::test]
async fn readers_that_become_few_in_a_batch_leave_a_lock_no_ttl_of_one_that_left_before() {
    let server = RedisServer::start().await;
    let owner = |number| format!("0f0e0d0c-0b0a-8908-8706-050403020100:{number}");
    let short: Vec<String> = (1..=11).map(owner).collect();
    let long = owner(12);
    let channel = "redisson_rwlock:{a}";
    let keys = vec![group("a"); 4].concat();
    let mut words = vec!["EVAL", script("RW_READ_BATCH").unwrap(), "12"];
    words.extend(keys.iter().map(String::as_str));
    words.push("5000");
    words.extend(["{a}:", "30000", "11"]);
    words.extend(short.iter().map(String::as_str));
    words.extend(["{a}:", "600000", "1", &long]);
    words.extend(["{a}:", channel, "1", &long]);
    words.extend(["{a}:", channel, "4"]);
    words.extend(short[..4].iter().map(String::as_str));
    let answer = server.cli(&words).await;
    let granted = vec![Value::Nil; 12];
    let freed = vec![Value::Int(0); 5];
    assert_eq!(answer, Value::Array([granted, freed].concat()));
    let left = server.pttl("a").await;
    assert!((1..=30_000).contains(&left), "{left}");
}

#[tokio::test]
async fn error_of_one_group_in_the_script_of_a_batch_is_the_answer_of_its_readers() {
    let server = RedisServer::start().await;
    let owner = |number| format!("0f0e0d0c-0b0a-0908-0706-050403020100:{number}");
    let [one, two, three] = [1, 2, 3].map(owner);
    let keys = ["a", "b", "c", "a"].map(group).concat();
    let mut words = vec!["EVAL", script("RW_READ_BATCH").unwrap(), "12"];
    words.extend(keys.iter().map(String::as_str));
    words.push("5000");
    words.extend(["{a}:", "30000", "2", &one, &two]);
    words.extend(["{b}:", "1.5", "2", &one, &two]);
    words.extend(["{c}:", "30000", "1", &three]);
    // A short name: its channel is as short as a long number.
    words.extend(["{a}:", "redisson_rwlock:{a}", "2", &one, &three]);
    let answer = server.cli(&words).await;
    let Value::Array(answers) = answer else {
        panic!("{answer:?}")
    };
    let [
        Value::Nil,
        Value::Nil,
        failed,
        too,
        Value::Nil,
        Value::Int(0),
        Value::Int(-1),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    for failed in [failed, too] {
        has_no_valid_lease(failed);
    }
    let left = |key: &str, owner: &str| format!("{{{key}}}:{owner}:rwlock_timeout:1");
    let mut expected = vec!["a".into(), "c".into(), left("a", &two), left("c", &three)];
    expected.sort();
    assert_eq!(server.keys().await, expected);
}
