//! How many commands the scripts run in the server: its time is shared by all clients.

use std::collections::BTreeMap;

use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::{RedisServer, eventually};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::timeout;
use uuid::Uuid;

use crate::redis::{SOON, client, ms};

/// How often each command was called, also by scripts, since the last `CONFIG RESETSTAT`.
async fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.try_cli::<String>(&["INFO", "commandstats"]).await;
    let line = |line: &str| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = figures.split_once(',')?;
        Some((name.to_owned(), calls.parse().ok()?))
    };
    // Those of this connection, and the call of the script.
    let ours = ["info", "config", "hello", "client", "eval"];
    let asked = |(name, _): &(String, u64)| !ours.iter().any(|own| name.starts_with(own));
    stats
        .unwrap()
        .lines()
        .filter_map(line)
        .filter(asked)
        .collect()
}

/// What a script called: each command, and how often.
macro_rules! called {
    ($($name:literal: $calls:literal),* $(,)?) => {
        BTreeMap::from([$(($name.to_owned(), $calls)),*])
    };
}

#[tokio::test]
async fn multi_lock_looks_at_all_keys_at_once_and_writes_each_by_two_commands() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let verbs = Verbs::new(&client, Uuid::from_u128(7));
    let keys = [
        ("a", 1, ms(30_000)),
        ("b", 2, ms(30_000)),
        ("c", 3, ms(30_000)),
    ];
    // The first attempt of all stores the script.
    assert_eq!(verbs.attempt_all(&keys).await.unwrap(), Answer::Granted);
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(verbs.attempt_all(&keys).await.unwrap(), Answer::Granted);
    let again = called! { "exists": 4, "hexists": 3, "hset": 3, "pexpire": 3, "pttl": 3 };
    assert_eq!(calls(&server).await, again);
    for (key, _, _) in keys {
        server.cli(&["DEL", key]).await;
    }
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(verbs.attempt_all(&keys).await.unwrap(), Answer::Granted);
    let free = called! { "exists": 1, "hset": 3, "pexpire": 3 };
    assert_eq!(calls(&server).await, free);
}

async fn granted(verbs: &Verbs, number: u64, lease: u64) {
    let answer = verbs.attempt("k", number, ms(lease)).await.unwrap();
    assert_eq!(answer, Answer::Granted);
}

/// What the release of a reader calls. The script is stored already.
async fn calls_of_release(
    server: &RedisServer,
    reads: &Verbs,
    number: u64,
) -> BTreeMap<String, u64> {
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(reads.release("k", number).await.unwrap(), Answer::Freed);
    calls(server).await
}

#[tokio::test]
async fn reader_enters_with_seven_commands_as_the_first_one_and_beside_others() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Read);
    granted(&reads, 1, 60_000).await;
    assert_eq!(reads.release("k", 1).await.unwrap(), Answer::Freed);
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    granted(&reads, 2, 60_000).await;
    let first = called! { "exists": 2, "hmget": 1, "hset": 1, "pexpire": 2, "set": 1 };
    assert_eq!(calls(&server).await, first);
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    granted(&reads, 3, 60_000).await;
    assert_eq!(calls(&server).await, joins(&server).await);
}

/// What a reader calls that joins others. Servers before version 7.0 cannot be told to lengthen a lease only.
async fn joins(server: &RedisServer) -> BTreeMap<String, u64> {
    let mut joins = called! {
        "exists": 1, "hmget": 1, "hrandfield": 1, "hset": 1, "pexpire": 1, "pttl": 1, "set": 1
    };
    if !lengthens_only(server).await {
        joins.insert("pttl".to_owned(), 2);
    }
    joins
}

/// Whether the server can be told to lengthen a lease only.
async fn lengthens_only(server: &RedisServer) -> bool {
    !server.info("server").await["redis_version"].starts_with("6.")
}

#[tokio::test]
async fn only_the_reader_with_the_longest_lease_looks_at_the_others_when_it_leaves() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    // Of the version that ids of this crate have. Beside readers of Redisson all are looked at.
    let ours = Uuid::from_u128(0x8000_8000_0000_0000_0007);
    let reads = Verbs::new(&client, ours).of_kind(Kind::Read);
    granted(&reads, 1, 60_000).await;
    assert_eq!(reads.release("k", 1).await.unwrap(), Answer::Freed);
    for number in 1..=8 {
        granted(&reads, number, 60_000 + number * 10_000).await;
    }
    // Its own timeout and the lock's.
    let alone = called! { "del": 1, "hdel": 1, "hlen": 1, "hmget": 1, "hrandfield": 1, "pttl": 2 };
    for number in [1, 4, 7] {
        assert_eq!(calls_of_release(&server, &reads, number).await, alone);
        assert!(server.pttl("k").await > 130_000);
    }
    // Those of the four others as well.
    let longest = calls_of_release(&server, &reads, 8).await;
    assert_eq!((longest["pttl"], longest["hmget"]), (6, 2));
    // The lock is left to the one with the longest lease of them.
    assert!((110_001..=120_000).contains(&server.pttl("k").await));
    assert_eq!(calls_of_release(&server, &reads, 2).await, alone);
}

#[tokio::test]
async fn reader_enters_and_leaves_thousands_with_as_many_commands_as_ten() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Read);
    // The first release of all stores the script.
    granted(&reads, 1, 60_000).await;
    assert_eq!(reads.release("k", 1).await.unwrap(), Answer::Freed);
    for readers in [10, 4_000] {
        let enter = (1..=readers).map(|number| granted(&reads, number, 60_000));
        futures_util::stream::iter(enter)
            .buffer_unordered(100)
            .collect::<Vec<()>>()
            .await;
        for number in [readers, 1, readers / 2] {
            let called = calls_of_release(&server, &reads, number).await;
            let leaves = called! {
                "del": 1, "hdel": 1, "hlen": 1, "hmget": 1, "hrandfield": 1, "pttl": 2
            };
            assert_eq!(called, leaves);
            server.cli(&["CONFIG", "RESETSTAT"]).await;
            granted(&reads, number, 60_000).await;
            assert_eq!(calls(&server).await, joins(&server).await);
        }
        server.cli(&["FLUSHALL"]).await;
    }
}

/// A reader whose lease ends with that of the lock ends the search: the lock keeps its end.
#[tokio::test]
async fn few_readers_that_end_together_look_at_one_of_the_others_when_they_leave() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Read);
    granted(&reads, 1, 60_000).await;
    assert_eq!(reads.release("k", 1).await.unwrap(), Answer::Freed);
    for number in 1..=8 {
        granted(&reads, number, 60_000).await;
    }
    // In one script, in which no time passes.
    let together = "for n = 1, 8 do redis.call('PEXPIRE', ARGV[1] .. n .. ':rwlock_timeout:1', 60000) end \
                    redis.call('PEXPIRE', 'k', 60000)";
    let stem = format!("{{k}}:{}:", Uuid::from_u128(7));
    server.cli(&["EVAL", together, "0", &stem]).await;
    // Its own timeout, the lock's and that of one other.
    let one = called! { "del": 1, "hdel": 1, "hlen": 1, "hmget": 2, "hrandfield": 1, "pttl": 3 };
    assert_eq!(calls_of_release(&server, &reads, 8).await, one);
}

/// The commands that clients have sent, as MONITOR shows them, without those inside of scripts.
async fn sent_during(server: &RedisServer, work: impl Future) -> BTreeMap<String, usize> {
    let monitor = server.client().get_async_monitor().await.unwrap();
    let mut lines = monitor.into_on_message::<String>();
    work.await;
    server.cli(&["ECHO", "end"]).await;
    let mut sent = BTreeMap::new();
    loop {
        let line = timeout(SOON, lines.next()).await.expect("ECHO").unwrap();
        let verb = line.split('"').nth(1).unwrap().to_uppercase();
        if verb == "ECHO" {
            return sent;
        }
        // The connection that sends the ECHO greets first.
        if !line.contains(" lua]") && !["HELLO", "CLIENT"].contains(&&*verb) {
            *sent.entry(verb).or_default() += 1;
        }
    }
}

// A hold that is older than a second is read as well.
in_real_time!(ms(1_000); readers_of_one_key_send_less_than_a_command_for_each_pair);

async fn readers_of_one_key_send_less_than_a_command_for_each_pair() {
    const READERS: usize = 64;
    const PAIRS: usize = 5;
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let lock = client.rw_lock("k").read();
    // The first ones of all store the scripts.
    lock.acquire().await.unwrap().release().await.unwrap();
    let reader = async || {
        for _ in 0..PAIRS {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    };
    let readers = join_all((0..READERS).map(|_| reader()));
    let sent = sent_during(&server, readers).await;
    // EVAL stores the script with which many of them travel together.
    assert!(sent.keys().all(|verb| verb.starts_with("EVAL")), "{sent:?}");
    let commands: usize = sent.values().sum();
    assert!(commands < READERS * PAIRS, "{sent:?}");
}

#[tokio::test]
async fn renewal_runs_two_commands_for_each_lock() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let verbs = Verbs::new(&client, Uuid::from_u128(7));
    for (key, number) in [("a", 1), ("b", 2)] {
        let answer = verbs.attempt(key, number, ms(30_000)).await.unwrap();
        assert_eq!(answer, Answer::Granted);
    }
    // The first renewal of all stores the script, and enters `b` once more.
    // Each one is longer than that before: in the same millisecond, an equal one takes further commands.
    let batch = |count, more: u64| {
        [
            ("a", 1, 1, ms(40_000 + more)),
            ("b", 2, count, ms(50_000 + more)),
        ]
    };
    let renewed = Answer::Renewed(vec![true, true]);
    assert_eq!(verbs.renew(&batch(2, 0)).await.unwrap(), renewed);
    let mut called = called! { "hget": 2, "pexpire": 2 };
    if !lengthens_only(&server).await {
        called.insert("pttl".to_owned(), 2);
    }
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(verbs.renew(&batch(2, 100)).await.unwrap(), renewed);
    assert_eq!(calls(&server).await, called);
    server.cli(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(verbs.renew(&batch(1, 200)).await.unwrap(), renewed);
    called.insert("hset".to_owned(), 1);
    assert_eq!(calls(&server).await, called);
    assert!(server.pttl("a").await <= 40_200 && server.pttl("b").await > 45_000);
}

/// If it waited for a turn that is over, it would look each millisecond whether somebody takes the key, for 20 ms.
#[tokio::test]
async fn client_acquires_again_without_looks_once_the_one_that_waited_had_its_turn() {
    const ROUNDS: u64 = 10;
    let server = RedisServer::start().await;
    let clients = [client(&server).await, client(&server).await];
    let [ours, theirs] = clients.each_ref().map(|client| client.lock("k"));
    let before = server.command_calls("evalsha").await;
    for _ in 0..ROUNDS {
        let guard = ours.acquire().await.unwrap();
        let sent = server.command_calls("evalsha").await;
        let waiting = tokio::spawn(theirs.acquire().into_future());
        eventually(SOON, "its attempt or its look", || async {
            (server.command_calls("evalsha").await > sent).then_some(())
        })
        .await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let sent = server.command_calls("evalsha").await - before;
    // Some six a round, and more in the first: it does not listen yet, and knows nothing of that turn.
    assert!(sent < 10 * ROUNDS, "{sent}");
}
