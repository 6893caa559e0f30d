//! No script works for long on what it finds: not on numbers in the server, and not on large values.

use std::collections::BTreeMap;

use distlock::Client;
use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::{RedisServer, size};
use uuid::Uuid;

use super::{JAVA, LEASE, operations};
use crate::redis::client;

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
        // A number beyond 64 bits is no count.
        let inspected = bounded(server, &what("inspect"), reads.inspect("k")).await;
        assert!(inspected.is_ok() || number.len() == 20, "{inspected:?}");
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
    for number in ["1764068400000", "99999999999999999999", "200000"] {
        play(&server, &client, number).await;
    }
}

/// Many fields in the shape of owners, each with a great number: the worst that a read/write lock can look like.
#[tokio::test]
async fn crowd_of_fields_with_great_numbers_bounds_no_loop() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let fill = "for i = 1, tonumber(ARGV[1]) do
        redis.call('HSET', KEYS[1], '0ddad9e6-60bc-45a5-8797-1987353a9077:' .. i, '1764068400000') end
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
