//! Data of other programs under the names that a primitive uses beside its key.

use distlock::Error;
use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::RedisServer;
use uuid::Uuid;

use super::{LEASE, assert_same, operations, snapshot};
use crate::redis::{client, ms};

const TOKEN: &str = "redisson_lock_token:{k}";
const QUEUE: &str = "redisson_lock_queue:{k}";
const TIMEOUTS: &str = "redisson_lock_timeout:{k}";
const OURS: &str = "{k}:distlock_waiters";
const PERMITS: &str = "{k}:timeout";
const OWNERS: &str = "{k}:distlock_owners";

/// A value of each type but one under a key.
fn of_other_types<'a>(key: &'a str, own: &str) -> Vec<Vec<&'a str>> {
    let values = [
        ("string", vec!["SET", key, "precious"]),
        ("list", vec!["RPUSH", key, "precious"]),
        ("set", vec!["SADD", key, "precious"]),
        ("zset", vec!["ZADD", key, "1", "precious"]),
        ("hash", vec!["HSET", key, "precious", "1"]),
        ("stream", vec!["XADD", key, "1-1", "precious", "1"]),
    ];
    let others = values.into_iter().filter(|(kind, _)| *kind != own);
    others.map(|(_, words)| words).collect()
}

/// Each kind, with what is there before it comes, and what another program has.
fn scenes() -> Vec<(Kind, &'static str, Vec<&'static str>)> {
    let mut scenes = Vec::new();
    for (kind, key, own) in [
        (Kind::Fenced, TOKEN, "string"),
        (Kind::Fair, QUEUE, "list"),
        (Kind::Fair, TIMEOUTS, "zset"),
        (Kind::Fair, OURS, "zset"),
        (Kind::ExpirableSemaphore, PERMITS, "zset"),
        (Kind::Semaphore, OWNERS, "hash"),
    ] {
        let others = of_other_types(key, own).into_iter();
        scenes.extend(others.map(|words| (kind, key, words)));
    }
    for text in ["precious", "", "007", "-5", "1.5", "99999999999999999999"] {
        scenes.push((Kind::Fenced, TOKEN, vec!["SET", TOKEN, text]));
    }
    for (key, words) in [
        (QUEUE, vec!["RPUSH", QUEUE, "job:1", "job:2"]),
        (QUEUE, vec!["RPUSH", QUEUE, ""]),
        (
            TIMEOUTS,
            vec!["ZADD", TIMEOUTS, "1", "job:1", "inf", "job:2"],
        ),
        (OURS, vec!["ZADD", OURS, "1", "job:1"]),
        (OURS, vec!["ZADD", OURS, "inf", "job:1"]),
    ] {
        scenes.push((Kind::Fair, key, words));
    }
    for words in [
        vec!["ZADD", PERMITS, "1", "job:1"],
        vec!["ZADD", PERMITS, "4102444800000", "job:1"],
        vec!["ZADD", PERMITS, "4102444800000", ""],
        vec!["ZADD", PERMITS, "-inf", "job:1", "inf", "job:2"],
        vec!["ZADD", PERMITS, "1", "0123456789abcdef", "2", "job:1"],
        vec!["ZADD", PERMITS, "1", "0ddad9e6-60bc-45a5-8797-198735"],
    ] {
        scenes.push((Kind::ExpirableSemaphore, PERMITS, words));
    }
    scenes
}

/// The key itself is the primitive's own: a number, or free.
#[tokio::test]
async fn no_operation_changes_what_another_program_has_beside_the_key() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for (kind, key, words) in scenes() {
        let numbers: &[Option<&str>] = match kind {
            Kind::Semaphore | Kind::ExpirableSemaphore => &[None, Some("7")],
            _ => &[None],
        };
        for (number, ttl) in numbers.iter().flat_map(|n| [(n, false), (n, true)]) {
            server.cli(&["FLUSHALL"]).await;
            if let Some(number) = number {
                server.cli(&["SET", "k", number]).await;
            }
            server.cli(&words).await;
            if ttl {
                server.cli(&["PEXPIRE", key, "1000000"]).await;
            }
            let what = format!("{kind:?} beside {words:?} with {number:?}");
            let before = snapshot(&server).await;
            let answers = operations(&client, kind).await;
            let (mut before, mut after) = (before, snapshot(&server).await);
            before.retain(|name, _| name == key);
            after.retain(|name, _| name == key);
            assert_same(&before, &after, &what);
            // No operation fails in any other way.
            for (operation, answer) in &answers {
                let is_known = matches!(answer, Ok(_) | Err(Error::WrongType { .. }));
                assert!(is_known, "{what}: {operation} answered {answer:?}");
            }
            // Only a waiter that stands in line writes the times of a line, and here nobody waits.
            assert!(
                key == TIMEOUTS || answers.iter().any(|(_, answer)| answer.is_err()),
                "{what}: {answers:?}"
            );
        }
    }
}

/// A waiter that would stand in line finds out before it does.
#[tokio::test]
async fn waiter_does_not_stand_in_a_line_that_is_another_programs() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let fair = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    for words in [
        vec!["RPUSH", QUEUE, "job:1"],
        vec!["ZADD", TIMEOUTS, "4102444800000", "job:1"],
        vec!["ZADD", OURS, "4102444800000", "job:1"],
    ] {
        server.cli(&["FLUSHALL"]).await;
        assert_eq!(fair.attempt("k", 1, LEASE).await.unwrap(), Answer::Granted);
        server.cli(&words).await;
        let before = snapshot(&server).await;
        let refused = fair.waiting(ms(5_000)).attempt("k", 2, LEASE).await;
        assert!(
            matches!(refused, Err(Error::WrongType { .. })),
            "{words:?}: {refused:?}"
        );
        assert_same(&before, &snapshot(&server).await, &format!("{words:?}"));
    }
}
