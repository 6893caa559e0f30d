//! No script takes long because of what it finds: neither numbers in the server nor large values.

use std::collections::BTreeMap;

use distlock::test_util::{Answer, Kind, SemaphoreChange, Verbs};
use distlock::{Client, Error};
use distlock_tests::{RedisServer, size};
use futures_util::StreamExt;
use tokio::time::timeout;
use uuid::Uuid;

use super::{JAVA, LEASE, operations};
use crate::redis::{SOON, client, ms};

/// More commands than one script runs on anything, most of them for a lock with thousands of readers.
const MOST: u64 = 45_000;

/// How many commands the server has carried out.
async fn commands(server: &RedisServer) -> u64 {
    let stats: BTreeMap<String, String> = server.info("commandstats").await.into_iter().collect();
    let calls = |figures: &String| {
        let calls = figures
            .split(',')
            .find_map(|part| part.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    stats.values().map(calls).sum()
}

/// Runs one operation, which is bounded.
async fn bounded<T>(server: &RedisServer, what: &str, operation: impl Future<Output = T>) -> T {
    let before = commands(server).await;
    let answer = operation.await;
    let ran = commands(server).await - before;
    assert!(ran <= MOST, "{what} ran {ran} commands");
    answer
}

#[tokio::test]
async fn counts_of_another_program_have_a_sum() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let most = "9999999999999999999";
    server.cli(&["HSET", "k", "one", most, "two", most]).await;
    let count = client.lock("k").hold_count().await;
    assert!(
        matches!(count, Ok(u64::MAX) | Err(Error::WrongType { .. })),
        "{count:?}"
    );
}

/// Plays what a holder does whose own field, or that of another reader, has a number of another program.
async fn play(server: &RedisServer, client: &Client, number: &str) {
    let reads = Verbs::new(client, Uuid::from_u128(7)).of_kind(Kind::Read);
    let ours = format!("{}:1", Uuid::from_u128(7));
    for (own, other) in [(number, None), ("1", Some(number)), (number, Some(number))] {
        let stage = async || {
            server.cli(&["FLUSHALL"]).await;
            assert_eq!(reads.attempt("k", 1, LEASE).await.unwrap(), Answer::Granted);
            server.cli(&["HSET", "k", &ours, own]).await;
            if let Some(other) = other {
                server.cli(&["HSET", "k", JAVA, other]).await;
            }
        };
        let what = |operation: &str| format!("{operation} with {own:?} beside {other:?}");
        stage().await;
        let renewed = reads.renew(&[("k", 1, 1, LEASE)]);
        let renewed = bounded(server, &what("renew"), renewed).await;
        assert_eq!(renewed.unwrap(), Answer::Renewed(vec![true]));
        stage().await;
        let again = reads.attempt("k", 1, LEASE);
        let again = bounded(server, &what("acquire again"), again).await;
        assert_eq!(again.unwrap(), Answer::Granted);
        stage().await;
        // A number beyond 64 bits is not a count.
        let inspected = bounded(server, &what("inspect"), reads.inspect("k")).await;
        let is_count = number.parse::<u64>().is_ok();
        assert!(inspected.is_ok() || !is_count, "{inspected:?}");
        bounded(server, &what("report"), client.inspect("k"))
            .await
            .unwrap();
        stage().await;
        let released = bounded(server, &what("release"), reads.release("k", 1)).await;
        assert_eq!(released.unwrap(), Answer::Freed);
        stage().await;
        let forced = bounded(server, &what("force release"), reads.force_release("k")).await;
        assert_eq!(forced.unwrap(), Answer::Forced(true));
    }
}

#[tokio::test]
async fn number_in_the_field_of_a_reader_bounds_no_loop() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for number in ["1764068400000", "99999999999999999999", "200000", "nan"] {
        play(&server, &client, number).await;
    }
}

/// The worst that a read/write lock can look like: many fields in the shape of owners. Each has a great number, or a text that Lua does
/// not compare as a number.
#[tokio::test]
async fn crowd_of_fields_with_great_numbers_bounds_no_loop() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let fill = "for i = 1, tonumber(ARGV[1]) do
        redis.call('HSET', KEYS[1], '0ddad9e6-60bc-45a5-8797-1987353a9077:' .. i, i % 20 == 0 and 'nan' or '1764068400000') end
        redis.call('HSET', KEYS[1], 'mode', ARGV[2])";
    let many = size(20_000, 100_000).to_string();
    for mode in ["read", "write"] {
        for kind in [Kind::Read, Kind::Write, Kind::Reentrant, Kind::Fair] {
            server.cli(&["FLUSHALL"]).await;
            server.cli(&["EVAL", fill, "1", "k", &many, mode]).await;
            let what = format!("{kind:?}, {mode}");
            // Its own release finds the crowd beside it.
            let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(kind);
            let owner = format!(
                "{}:9{}",
                Uuid::from_u128(7),
                if kind == Kind::Write { ":write" } else { "" }
            );
            server.cli(&["HSET", "k", &owner, "1"]).await;
            let released = bounded(&server, &what, verbs.release("k", 9)).await;
            let before = commands(&server).await;
            released.unwrap();
            bounded(&server, &what, client.inspect("k")).await.unwrap();
            // Ten operations.
            drop(operations(&client, kind).await);
            let ran = commands(&server).await - before;
            assert!(ran <= 3 * MOST, "{what} ran {ran} commands");
        }
    }
}

/// Fills `KEYS[1]` with owners of Redisson's, or with ids of permits, that have ended long ago.
async fn fill(server: &RedisServer, key: &str, command: &str) {
    let fill = format!(
        "for i = 1, tonumber(ARGV[1]) do
           local owner = string.format('0ddad9e6-60bc-45a5-8797-1987353a9077:%d', i)
           local id = string.format('%016d', i)
           redis.call({command})
         end"
    );
    let many = size(20_000, 100_000).to_string();
    server.cli(&["EVAL", &fill, "1", key, &many]).await;
}

/// Each of the keys of a fair lock's queue, with many waiters that are dead, and with many that live.
#[tokio::test]
async fn crowd_of_waiters_bounds_no_loop_of_a_fair_lock() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (queue, timeouts) = ("redisson_lock_queue:{k}", "redisson_lock_timeout:{k}");
    let listed = (queue, "'RPUSH', KEYS[1], owner");
    let died = (timeouts, "'ZADD', KEYS[1], i, owner");
    let live = (timeouts, "'ZADD', KEYS[1], 4102444800000 + i, owner");
    let ours = ("{k}:distlock_waiters", "'ZADD', KEYS[1], i, owner");
    for crowd in [
        &[listed][..],
        &[listed, died],
        &[listed, live],
        &[listed, died, ours],
        &[ours],
        &[live],
    ] {
        server.cli(&["FLUSHALL"]).await;
        for (key, command) in crowd {
            fill(&server, key, command).await;
        }
        let fair = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
        let waits = fair.waiting(ms(60_000));
        let what = format!("{crowd:?}");
        for number in 1..=3 {
            bounded(&server, &what, waits.attempt("k", number, LEASE))
                .await
                .unwrap();
        }
        // Others drop a waiter of ours, which comes back.
        let owner = format!("{}:2", Uuid::from_u128(7));
        server.cli(&["ZREM", timeouts, &owner]).await;
        bounded(&server, &what, waits.attempt("k", 2, LEASE))
            .await
            .unwrap();
        bounded(&server, &what, client.inspect("k")).await.unwrap();
        bounded(&server, &what, fair.release("k", 1)).await.unwrap();
        bounded(&server, &what, fair.force_release("k"))
            .await
            .unwrap();
    }
}

/// Each waiter gives such a sign several times in 5 s, also if nothing happens.
#[tokio::test]
async fn sign_of_life_beside_a_waiter_of_redissons_looks_at_few_of_a_crowd() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let fair = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    let waits = fair.waiting(ms(600_000));
    let crowd = "for i = 1, 2000 do
        local owner = ARGV[1] .. ':' .. i
        redis.call('RPUSH', KEYS[1], owner)
        redis.call('ZADD', KEYS[2], 4102444800000, owner)
        redis.call('ZADD', KEYS[3], 4102444800000, owner)
        end
        redis.call('RPUSH', KEYS[1], ARGV[2])
        redis.call('ZADD', KEYS[2], 4102444800000, ARGV[2])";
    let (queue, timeouts) = ("redisson_lock_queue:{k}", "redisson_lock_timeout:{k}");
    let ours = "{k}:distlock_waiters";
    let id = Uuid::from_u128(7).to_string();
    let holder = format!("{}:9", Uuid::from_u128(8));
    let crowd = ["EVAL", crowd, "3", queue, timeouts, ours, &id, JAVA];
    server.cli(&crowd).await;
    server.cli(&["HSET", "k", &holder, "1"]).await;
    server.cli(&["PEXPIRE", "k", "600000"]).await;
    for number in [1, 1_000, 2_000] {
        let monitor = server.client().get_async_monitor().await.unwrap();
        let mut lines = monitor.into_on_message::<String>();
        let answer = waits.attempt("k", number, LEASE).await.unwrap();
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
        server.cli(&["ECHO", "end"]).await;
        let mut looked_at = 0;
        loop {
            let line = timeout(SOON, lines.next()).await.expect("ECHO").unwrap();
            let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
            match words[0].to_uppercase().as_str() {
                "ECHO" => break,
                "LRANGE" | "ZRANGE" if words.len() == 4 => {
                    let place = |word: &str| word.parse::<u64>().unwrap();
                    looked_at += 1 + place(words[3]) - place(words[2]);
                }
                "LINDEX" | "ZSCORE" => looked_at += 1,
                _ => {}
            }
        }
        assert!(
            (1..=250).contains(&looked_at),
            "{number} looks at {looked_at}"
        );
    }
}

#[tokio::test]
async fn crowd_of_ended_permits_bounds_no_loop_and_goes_back_in_the_end() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    server.cli(&["SET", "k", "0"]).await;
    fill(&server, "{k}:timeout", "'ZADD', KEYS[1], i, id").await;
    let permits = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::ExpirableSemaphore);
    let many = size(20_000, 100_000) as u64;
    let what = "permits";
    bounded(&server, what, permits.inspect("k")).await.unwrap();
    let before = commands(&server).await;
    for number in 1..=3 {
        let answer = bounded(&server, what, permits.attempt("k", number, LEASE)).await;
        assert_eq!(answer.unwrap(), Answer::Granted);
    }
    for number in 1..=3 {
        bounded(&server, what, permits.release("k", number))
            .await
            .unwrap();
    }
    let ran = commands(&server).await - before;
    assert!(ran < 1_000, "{ran} commands");
    assert_eq!(server.try_cli::<u64>(&["GET", "k"]).await.unwrap(), many);
    // A number of another program that a semaphore takes for its own is only added to.
    server.cli(&["SET", "n", "1764068400000"]).await;
    let seats = permits.with_permits(1_000);
    bounded(&server, what, seats.attempt("n", 1, LEASE))
        .await
        .unwrap();
    bounded(&server, what, seats.release("n", 1)).await.unwrap();
    let plain = permits.of_kind(Kind::Semaphore);
    bounded(&server, what, plain.adjust("n", 1, SemaphoreChange::Count))
        .await
        .unwrap();
}
