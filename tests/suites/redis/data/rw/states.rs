//! What reads and writes leave in the server, step by step, beside what Redisson leaves.

use distlock::Guard;
use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::{RedisServer, eventually_eq};

use super::{
    assert_fields, assert_left, assert_said, freed, granted, messages, owner, timeout_key, verbs,
};
use crate::redis::{SOON, client, ms};

/// The golden states, but that no lease is added to another, a nested reader is an owner of its own, and a downgrade is
/// told.
#[tokio::test]
async fn states_and_messages_are_redissons() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (reads, writes) = (verbs(&client, Kind::Read), verbs(&client, Kind::Write));
    let mut messages = messages(&server).await;
    let (u1, u2, u3) = (owner(1), owner(2), owner(3));
    let writer = format!("{u1}:write");

    granted(&writes, 1, 600_000).await;
    assert_fields(&server, &[("mode", "write"), (&writer, "1")]).await;
    assert_left(&server, "k", 600_000).await;
    let renewed = writes.renew(&[("k", 1, 2, ms(30_000))]).await.unwrap();
    assert_eq!(renewed, Answer::Renewed(vec![true]));
    assert_fields(&server, &[("mode", "write"), (&writer, "2")]).await;
    assert_left(&server, "k", 600_000).await;

    granted(&reads.inside(1), 2, 100_000).await;
    assert_fields(&server, &[("mode", "write"), (&writer, "2"), (&u2, "1")]).await;
    assert_left(&server, &timeout_key(&u2, 1), 100_000).await;
    assert_left(&server, "k", 600_000).await;
    assert_eq!(server.keys().await, ["k".to_owned(), timeout_key(&u2, 1)]);

    // Left once, and then for good: the first is told to nobody.
    writes.renew(&[("k", 1, 1, ms(30_000))]).await.unwrap();
    assert_fields(&server, &[("mode", "write"), (&writer, "1"), (&u2, "1")]).await;
    assert_left(&server, "k", 600_000).await;
    freed(&writes, 1).await;
    assert_fields(&server, &[("mode", "read"), (&u2, "1")]).await;
    assert_left(&server, "k", 100_000).await;
    assert_said(&mut messages, "1").await;

    granted(&reads, 3, 50_000).await;
    assert_left(&server, "k", 100_000).await;
    freed(&reads, 2).await;
    assert_fields(&server, &[("mode", "read"), (&u3, "1")]).await;
    assert_left(&server, "k", 50_000).await;
    assert_eq!(server.keys().await, ["k".to_owned(), timeout_key(&u3, 1)]);
    // Redisson publishes nothing here: a waiter learns earlier than it was told that the lock is free.
    assert_said(&mut messages, "0").await;

    freed(&reads, 3).await;
    assert!(server.keys().await.is_empty());
    assert_said(&mut messages, "0").await;

    // Nothing is said where nothing was held.
    for verbs in [&reads, &writes] {
        assert_eq!(verbs.release("k", 3).await.unwrap(), Answer::NotOurs);
    }
    granted(&writes, 4, 30_000).await;
    freed(&writes, 4).await;
    assert_said(&mut messages, "1").await;
    granted(&reads, 5, 30_000).await;
    assert_eq!(
        reads.force_release("k").await.unwrap(),
        Answer::Forced(true)
    );
    assert_said(&mut messages, "0").await;
    granted(&writes, 6, 30_000).await;
    granted(&reads.inside(6), 7, 30_000).await;
    assert_eq!(
        reads.force_release("k").await.unwrap(),
        Answer::Forced(false)
    );
    assert_eq!(
        writes.force_release("k").await.unwrap(),
        Answer::Forced(true)
    );
    assert_said(&mut messages, "1").await;
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn each_entry_of_a_reader_has_a_timeout() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let guard = client.rw_lock("k").read().acquire().await.unwrap();
    let owner = guard.owner().to_string();
    let keys = |holds: u32| {
        let timeouts = (1..=holds).map(|hold| timeout_key(&owner, hold));
        std::iter::once("k".to_owned())
            .chain(timeouts)
            .collect::<Vec<_>>()
    };
    let again: Vec<Guard> = (0..2).map(|_| guard.reenter().unwrap()).collect();
    eventually_eq(SOON, "three timeouts", keys(3), || server.keys()).await;
    assert_fields(&server, &[("mode", "read"), (&owner, "3")]).await;
    assert_left(&server, &timeout_key(&owner, 3), 30_000).await;
    for guard in again {
        guard.release().await.unwrap();
    }
    eventually_eq(SOON, "one timeout", keys(1), || server.keys()).await;
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn turn_and_mark_lie_beside_the_lock_and_end() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (reads, writes) = (verbs(&client, Kind::Read), verbs(&client, Kind::Write));
    let (turn, mark) = ("{k}:rwlock_turn", "{k}:rwlock_readers_wait");
    let value = async |key| {
        server
            .try_cli::<Option<String>>(&["GET", key])
            .await
            .unwrap()
    };
    granted(&reads, 1, 30_000).await;
    let waiting = writes.waiting(ms(50_000));
    let attempt =
        async |verbs: &Verbs, number| verbs.attempt("k", number, ms(30_000)).await.unwrap();
    attempt(&waiting, 2).await;
    attempt(&waiting, 3).await;
    assert_eq!(value(turn).await, Some(owner(2)));
    assert_left(&server, turn, 50_000).await;
    attempt(&reads, 4).await;
    assert_eq!(value(mark).await.as_deref(), Some("1"));
    // The answer's and the patience beyond.
    assert_left(&server, mark, 55_000).await;
    assert_fields(&server, &[("mode", "read"), (&owner(1), "1")]).await;
    freed(&reads, 1).await;
    assert_eq!(value(turn).await, Some(owner(2)));
    attempt(&waiting, 2).await;
    assert_eq!(value(turn).await, None);
    attempt(&waiting, 3).await;
    assert_eq!(value(turn).await, Some(owner(3)));
    freed(&writes, 2).await;
    // For a moment, and maybe over already.
    assert!(matches!(
        value(turn).await.as_deref(),
        Some("readers") | None
    ));
    eventually_eq(SOON, "keys", Vec::<String>::new(), || server.keys()).await;
}
