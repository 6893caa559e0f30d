//! Row 80: keys and fields of odd bytes.

use std::time::Duration;

use distlock::Error;
use distlock_tests::RedisServer;
use tokio::time::timeout;

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{SOON, default_client, free, waiting};

const LONGEST: usize = 4096;

fn odd_keys() -> Vec<String> {
    let long = ["k".repeat(LONGEST), "ключ".repeat(LONGEST / 8)];
    let short = [
        "\0",
        "a\0b",
        "\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "a b",
        " ",
        "{",
        "}",
        "{}x",
        "a}b",
        "{cart:1}:lock",
        ":write",
        "mode",
        "*?[x]",
        "\"'\\",
        "ключ",
        "🔒",
    ];
    short.map(String::from).into_iter().chain(long).collect()
}

/// An odd key is held, inspected, waited for on a channel whose name is as odd, and released, alike on both backends.
async fn odd_keys_round_trip(stage: &Stage, row: &Row) {
    let (one, two) = (stage.client().await, stage.client().await);
    for key in odd_keys() {
        let guard = one.lock(&key).acquire().await.unwrap();
        assert_eq!(guard.key(), key);
        let holders = two.lock(&key).holders().await.unwrap();
        assert_eq!(holders[0].owner, guard.owner().to_string());
        let busy = two.lock(&key).acquire().wait(Duration::ZERO).await;
        assert!(matches!(busy, Err(Error::Timeout { key: of, .. }) if of == key));
        let waiter = tokio::spawn(two.lock(&key).acquire().into_future());
        waiting(&two, 1).await;
        guard.release().await.unwrap();
        let next = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
        next.release().await.unwrap();
        row.injected("odd key", 1);
    }
    stage.nothing_is_left().await;
}

async fn f80_odd_keys_are_names_in_redis_byte_for_byte(row: &Row) {
    let server = RedisServer::start().await;
    let client = default_client(&server.url()).await;
    for key in odd_keys() {
        let guard = client.lock(&key).acquire().await.unwrap();
        assert_eq!(server.keys().await, [key.as_str()]);
        guard.release().await.unwrap();
        row.injected("odd key", 1);
    }
    free(&server, &[&client]).await;
}

async fn f80_keys_of_bad_lengths_are_refused_before_anything_is_sent(row: &Row) {
    let server = RedisServer::start().await;
    let client = default_client(&server.url()).await;
    let heard = async || {
        server.info("stats").await["total_net_input_bytes"]
            .parse::<u64>()
            .unwrap()
    };
    // The INFO command itself counts as well.
    let (first, second) = (heard().await, heard().await);
    for length in [0, LONGEST + 1, 1 << 20, 1 << 24] {
        let lock = client.lock("k".repeat(length));
        let wait = Duration::ZERO;
        for refused in [
            lock.acquire().await.err(),
            lock.acquire().wait(wait).run(async {}).await.err(),
            lock.try_acquire().await.err(),
            lock.is_locked().await.err(),
            lock.force_release().await.err(),
        ] {
            let refused = refused.expect("taken");
            assert!(refused.is_permanent(), "{refused}");
            let said = refused.to_string().len();
            assert!(said < 2 * LONGEST, "an error of {said} bytes");
            row.injected("key of a bad length", 1);
        }
    }
    assert_eq!(heard().await - second, second - first);
    free(&server, &[&client]).await;
}

/// Fields that Redisson's other locks write: to a plain lock they are owners like any other.
async fn f80_hash_with_fields_of_other_locks_is_held_by_another(row: &Row) {
    let server = RedisServer::start().await;
    let client = default_client(&server.url()).await;
    let lock = client.lock("k");
    for field in ["mode", "a-uuid:1:write", ":write", "", "\0", "a b", "1"] {
        server.cli(&["HSET", "k", field, "1"]).await;
        server.cli(&["PEXPIRE", "k", "30000"]).await;
        assert!(lock.try_acquire().await.unwrap().is_none());
        let holders = lock.holders().await.unwrap();
        assert_eq!((holders[0].owner.as_str(), holders[0].count), (field, 1));
        let left = server.hgetall("k").await;
        assert_eq!(left.keys().collect::<Vec<_>>(), [field]);
        // It may be somebody's data, so only its owner removes it.
        let refused = lock.force_release().await.unwrap_err();
        assert!(matches!(refused, Error::WrongType { .. }), "{refused}");
        server.cli(&["DEL", "k"]).await;
        let guard = lock.try_acquire().await.unwrap().expect("free");
        guard.release().await.unwrap();
        row.injected("odd owner", 1);
    }
    free(&server, &[&client]).await;
}

rows! {
    Both:
        odd_keys_round_trip =>
            f80_odd_keys_in_memory_are_keys_like_any_other,
            f80_odd_keys_are_keys_like_any_other;
    Real:
        f80_odd_keys_are_names_in_redis_byte_for_byte,
        f80_keys_of_bad_lengths_are_refused_before_anything_is_sent,
        f80_hash_with_fields_of_other_locks_is_held_by_another;
}
