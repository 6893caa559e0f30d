//! The owners that Redisson writes, odd ones too: a read/write lock with them is a lock.

use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::RedisServer;
use uuid::Uuid;

use super::{JAVA, LEASE};
use crate::redis::client;

const CLIENT: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077";

/// Numbers that a caller of Redisson's asynchronous methods may choose, and what a transaction adds.
fn owners() -> Vec<String> {
    let numbers = [
        "1",
        "0",
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "007",
    ];
    let after = [
        "",
        ":7f1c0de5a1b2c3d4e5f60718293a4b5c",
        ":0ddad9e6-60bc-45a5-8797-1987353a9077",
    ];
    let owner = |number: &&str| after.map(|after| format!("{CLIENT}:{number}{after}"));
    let mut owners: Vec<String> = numbers.iter().flat_map(owner).collect();
    owners.push(JAVA.to_uppercase());
    owners
}

#[tokio::test]
async fn readers_with_every_name_that_redisson_gives_them_are_joined_kept_and_freed() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Read);
    let writes = reads.of_kind(Kind::Write);
    for owner in owners() {
        let timeout = format!("{{k}}:{owner}:rwlock_timeout:1");
        server
            .cli(&["HSET", "k", "mode", "read", &owner, "1"])
            .await;
        server.cli(&["SET", &timeout, "1", "PX", "20000"]).await;
        server.cli(&["PEXPIRE", "k", "20000"]).await;
        assert_eq!(
            reads.attempt("k", 1, LEASE).await.unwrap(),
            Answer::Granted,
            "{owner}"
        );
        let refused = writes.waiting(LEASE).attempt("k", 2, LEASE).await.unwrap();
        assert!(
            matches!(refused, Answer::Held(Some(_))),
            "{owner}: {refused:?}"
        );
        assert_eq!(
            server
                .try_cli::<u64>(&["EXISTS", "{k}:rwlock_turn"])
                .await
                .unwrap(),
            1
        );
        assert_eq!(reads.release("k", 1).await.unwrap(), Answer::Freed);
        let left = server.hgetall("k").await;
        assert_eq!(
            left.get(&owner).map(String::as_str),
            Some("1"),
            "{owner}: {left:?}"
        );
        assert!(server.pttl("k").await <= 20_000);
        let Answer::Holders(holders, _) = reads.inspect("k").await.unwrap() else {
            panic!("the holders of {owner}");
        };
        assert_eq!(holders, [(owner, 1)]);
        assert_eq!(
            reads.force_release("k").await.unwrap(),
            Answer::Forced(true)
        );
        server.cli(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn writers_of_redissons_transactions_are_writers() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Read);
    let writes = reads.of_kind(Kind::Write);
    for after in [":write", ":write:7f1c0de5a1b2c3d4e5f60718293a4b5c"] {
        let writer = format!("{CLIENT}:-3{after}");
        server
            .cli(&["HSET", "k", "mode", "write", &writer, "1"])
            .await;
        server.cli(&["PEXPIRE", "k", "20000"]).await;
        for answer in [
            reads.attempt("k", 1, LEASE).await.unwrap(),
            writes.attempt("k", 1, LEASE).await.unwrap(),
        ] {
            assert!(matches!(answer, Answer::Held(Some(_))), "{answer:?}");
        }
        assert_eq!(
            reads.inspect("k").await.unwrap(),
            Answer::Holders(Vec::new(), None)
        );
        let Answer::Holders(holders, Some(_)) = writes.inspect("k").await.unwrap() else {
            panic!("a writer");
        };
        assert_eq!(holders, [(writer.clone(), 1)]);
        let report = client.inspect("k").await.unwrap();
        assert_eq!(
            report.primitive,
            distlock::Primitive::WriteLock,
            "{report:?}"
        );
        assert_eq!(
            reads.force_release("k").await.unwrap(),
            Answer::Forced(false)
        );
        assert_eq!(
            writes.force_release("k").await.unwrap(),
            Answer::Forced(true)
        );
    }
}

/// A field that another program adds to a lock's hash stays, and so does the key then.
#[tokio::test]
async fn fields_that_others_add_to_a_held_lock_outlive_its_release() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let kinds = [Kind::Reentrant, Kind::Fair, Kind::Read, Kind::Write];
    for kind in kinds {
        let verbs = Verbs::new(&client, Uuid::from_u128(7)).of_kind(kind);
        assert_eq!(verbs.attempt("k", 1, LEASE).await.unwrap(), Answer::Granted);
        server
            .cli(&["HSET", "k", "name", "Ada", "size", "1764068400000"])
            .await;
        server.cli(&["PEXPIRE", "k", "1000000"]).await;
        assert_eq!(
            verbs.release("k", 1).await.unwrap(),
            Answer::Freed,
            "{kind:?}"
        );
        let mut left = server.hgetall("k").await;
        left.remove("mode");
        assert_eq!(left.len(), 2, "{kind:?}: {left:?}");
        assert!(server.pttl("k").await > 900_000);
        server.cli(&["FLUSHALL"]).await;
    }
}
