//! The read/write lock as Redisson has it: keys, fields, TTLs, messages, and its own holds beside ours.

mod crowds;
mod states;

use std::time::Duration;

use distlock::Client;
use distlock::test_util::{Answer, Kind, Verbs};
use distlock_tests::{BY_MESSAGE, RedisServer, eventually, eventually_eq};
use futures_util::{Stream, StreamExt};
use tokio::time::{sleep, timeout};

use super::{assert_left, owner, verbs};
use crate::redis::{SOON, client, client_of_lease, ms};

const FOREIGN: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:1";
const CHANNEL: &str = "redisson_rwlock:{k}";

fn timeout_key(owner: &str, hold: u32) -> String {
    format!("{{k}}:{owner}:rwlock_timeout:{hold}")
}

/// Asserts the fields of `k`, in any order.
async fn assert_fields(server: &RedisServer, fields: &[(&str, &str)]) {
    super::assert_fields(server, "k", fields).await;
}

async fn messages(server: &RedisServer) -> impl Stream<Item = String> + Unpin + use<> {
    let mut messages = server.client().get_async_pubsub().await.unwrap();
    messages.subscribe(CHANNEL).await.unwrap();
    let text = |message: redis::Msg| message.get_payload::<String>().unwrap();
    Box::pin(messages.into_on_message().map(text))
}

/// The next message is this one; where nothing was to be said before it, it shows that nothing was.
async fn assert_said(messages: &mut (impl Stream<Item = String> + Unpin), payload: &str) {
    let message = timeout(SOON, messages.next()).await.expect("a message");
    assert_eq!(message.as_deref(), Some(payload));
}

async fn granted(verbs: &Verbs, number: u64, lease: u64) {
    let answer = verbs.attempt("k", number, ms(lease)).await.unwrap();
    assert_eq!(answer, Answer::Granted);
}

async fn freed(verbs: &Verbs, number: u64) {
    assert_eq!(verbs.release("k", number).await.unwrap(), Answer::Freed);
}

#[tokio::test]
async fn commands_sent_twice_have_the_effect_of_one() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (reads, writes) = (verbs(&client, Kind::Read), verbs(&client, Kind::Write));
    for (verbs, field) in [(&reads, owner(1)), (&writes, format!("{}:write", owner(1)))] {
        let mode = if field.ends_with(":write") {
            "write"
        } else {
            "read"
        };
        for lease in [50_000, 10_000] {
            granted(verbs, 1, lease).await;
            assert_fields(&server, &[("mode", mode), (&field, "1")]).await;
            assert_left(&server, "k", 50_000).await;
        }
        for lease in [90_000, 10_000] {
            let renewed = verbs.renew(&[("k", 1, 3, ms(lease))]).await.unwrap();
            assert_eq!(renewed, Answer::Renewed(vec![true]));
            assert_fields(&server, &[("mode", mode), (&field, "3")]).await;
            assert_left(&server, "k", 90_000).await;
        }
        // An attempt that comes late states its one again.
        granted(verbs, 1, 10_000).await;
        assert_fields(&server, &[("mode", mode), (&field, "1")]).await;
        let timeouts = usize::from(mode == "read");
        assert_eq!(server.keys().await.len(), 1 + timeouts);
        freed(verbs, 1).await;
        assert_eq!(verbs.release("k", 1).await.unwrap(), Answer::NotOurs);
        assert!(server.keys().await.is_empty());
    }
}

#[tokio::test]
async fn redissons_readers_and_writers_count_as_ours_do() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let lock = client.rw_lock("k");
    let foreign_read = async |lease: &str| {
        server
            .cli(&["HSET", "k", "mode", "read", FOREIGN, "1"])
            .await;
        server
            .cli(&["SET", &timeout_key(FOREIGN, 1), "1", "PX", lease])
            .await;
        server.cli(&["PEXPIRE", "k", "30000"]).await;
    };
    foreign_read("20000").await;
    assert!(lock.write().try_acquire().await.unwrap().is_none());
    let guard = lock.read().acquire().lease(ms(60_000)).await.unwrap();
    assert_eq!(lock.read().holders().await.unwrap().len(), 2);
    assert_left(&server, "k", 60_000).await;
    guard.release().await.unwrap();
    // Its reader stays, for as long as it has.
    assert_fields(&server, &[("mode", "read"), (FOREIGN, "1")]).await;
    assert_left(&server, "k", 20_000).await;
    // One that died goes with the last of ours.
    let guard = lock.read().acquire().await.unwrap();
    server.cli(&["DEL", &timeout_key(FOREIGN, 1)]).await;
    assert_eq!(lock.read().holders().await.unwrap().len(), 1);
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
    // And what Redisson's release left of a reader of ours is not ours any more.
    let guard = lock.read().acquire().await.unwrap();
    server
        .cli(&["DEL", &timeout_key(&guard.owner().to_string(), 1)])
        .await;
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(server.keys().await.is_empty());

    let writer = format!("{FOREIGN}:write");
    server
        .cli(&["HSET", "k", "mode", "write", &writer, "1", FOREIGN, "1"])
        .await;
    server.cli(&["PEXPIRE", "k", "30000"]).await;
    assert!(lock.read().try_acquire().await.unwrap().is_none());
    assert!(lock.write().try_acquire().await.unwrap().is_none());
    assert_eq!(lock.write().holders().await.unwrap()[0].owner, writer);
    let waiter = tokio::spawn(lock.read().acquire().into_future());
    eventually_eq(SOON, "listeners", 1, || server.pubsub_numsub(CHANNEL)).await;
    server.cli(&["DEL", "k"]).await;
    server.cli(&["PUBLISH", CHANNEL, "1"]).await;
    let guard = timeout(BY_MESSAGE, waiter)
        .await
        .expect("woken")
        .unwrap()
        .unwrap();
    guard.release().await.unwrap();
}

in_real_time!(LEASE / 6; readers_of_others_are_never_renewed, full_memory_is_in_nobodys_way);

/// Of holds that are renewed.
const LEASE: Duration = ms(1_500);

async fn readers_of_others_are_never_renewed() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LEASE).await;
    let guard = client.rw_lock("k").read().acquire().await.unwrap();
    server.cli(&["HSET", "k", FOREIGN, "1"]).await;
    server
        .cli(&["SET", &timeout_key(FOREIGN, 1), "1", "PX", "200000"])
        .await;
    server.cli(&["PEXPIRE", "k", "200000"]).await;
    let owner = guard.owner().to_string();
    for _ in 0..3 {
        sleep(LEASE / 2).await;
        let (ours, theirs) = (timeout_key(&owner, 1), timeout_key(FOREIGN, 1));
        assert!(server.pttl(&ours).await <= 1_500);
        assert!(server.pttl(&theirs).await < 199_500);
        // Nor is the lease of the lock shortened to ours.
        assert_left(&server, "k", 200_000).await;
    }
    assert!(guard.is_held());
}

#[tokio::test]
async fn dead_reader_of_redisson_keeps_no_ttl_of_the_writer_that_left_before_it() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = verbs(&client, Kind::Read);
    let mut messages = messages(&server).await;
    server
        .cli(&["HSET", "k", "mode", "read", FOREIGN, "1"])
        .await;
    server.cli(&["PEXPIRE", "k", "300000"]).await;
    granted(&reads, 1, 30_000).await;
    freed(&reads, 1).await;
    assert!(server.keys().await.is_empty());
    assert_said(&mut messages, "0").await;
}

/// Redisson renews a lock for its own lease, also if another reader has a longer one.
#[tokio::test]
async fn refusal_names_no_reader_that_has_ended() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (reads, writes) = (verbs(&client, Kind::Read), verbs(&client, Kind::Write));
    server
        .cli(&["HSET", "k", "mode", "read", FOREIGN, "1"])
        .await;
    server.cli(&["PEXPIRE", "k", "300000"]).await;
    let refused = async || {
        let answer = writes.attempt("k", 2, ms(30_000)).await.unwrap();
        assert!(matches!(answer, Answer::Held(Some(_))), "{answer:?}");
        writes.take_refused_by()
    };
    assert_eq!(refused().await, None);
    granted(&reads, 1, 30_000).await;
    // The server picks fields at random.
    for _ in 0..20 {
        let named = refused().await.expect("a holder");
        assert_eq!((named.owner, named.others), (Some(owner(1)), 1));
    }
}

/// As over Redis.
#[tokio::test(start_paused = true)]
async fn refusal_names_no_reader_that_has_ended_in_memory() {
    let client = Client::in_memory();
    let (reads, writes) = (verbs(&client, Kind::Read), verbs(&client, Kind::Write));
    granted(&reads, 1, 1_000).await;
    granted(&reads, 2, 30_000).await;
    sleep(ms(1_001)).await;
    let answer = writes.attempt("k", 3, ms(30_000)).await.unwrap();
    assert!(matches!(answer, Answer::Held(Some(_))), "{answer:?}");
    let named = writes.take_refused_by().expect("a holder");
    assert_eq!((named.owner, named.others), (Some(owner(2)), 1));
}

#[tokio::test]
async fn lock_that_redisson_has_cut_short_lasts_as_long_as_its_readers_when_one_leaves() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = verbs(&client, Kind::Read);
    granted(&reads, 1, 120_000).await;
    server.cli(&["PEXPIRE", "k", "30000"]).await;
    granted(&reads, 2, 30_000).await;
    freed(&reads, 2).await;
    assert_left(&server, "k", 120_000).await;
    // So it does when the longest of them attempts again.
    server.cli(&["PEXPIRE", "k", "30000"]).await;
    granted(&reads, 1, 10_000).await;
    assert_left(&server, "k", 120_000).await;
}

#[tokio::test]
async fn hash_without_a_mode_and_other_values_stay_as_they_are() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let lock = client.rw_lock("k");
    server.cli(&["HSET", "k", FOREIGN, "2"]).await;
    server.cli(&["PEXPIRE", "k", "30000"]).await;
    for lock in [lock.read().acquire(), lock.write().acquire()] {
        assert!(lock.wait(Duration::ZERO).await.unwrap_err().is_busy());
    }
    for refused in [
        lock.force_release().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
    ] {
        assert!(
            matches!(refused, distlock::Error::WrongType { .. }),
            "{refused}"
        );
    }
    assert_fields(&server, &[(FOREIGN, "2")]).await;
    // Nor is a reader granted inside of a writer if the mode is missing.
    let writer = format!("{}:write", owner(1));
    server.cli(&["HSET", "k", &writer, "1"]).await;
    let nested = verbs(&client, Kind::Read).inside(1);
    let answer = nested.attempt("k", 2, ms(60_000)).await.unwrap();
    assert!(matches!(answer, Answer::Held(Some(_))), "{answer:?}");
    assert_fields(&server, &[(FOREIGN, "2"), (&writer, "1")]).await;
    server.cli(&["SET", "k", "v"]).await;
    for lock in [lock.read().acquire(), lock.write().acquire()] {
        let error = lock.await.unwrap_err();
        assert!(
            matches!(error, distlock::Error::WrongType { .. }),
            "{error}"
        );
    }
    assert!(lock.is_locked().await.is_err() && lock.force_release().await.is_err());
    assert_eq!(server.keys().await, ["k"]);
}

async fn full_memory_is_in_nobodys_way() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LEASE).await;
    let (held, free) = (client.rw_lock("k"), client.rw_lock("free"));
    let reader = held.read().acquire().await.unwrap();
    let writer = client.rw_lock("w").write().acquire().await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // As with the other locks the first write is one that passes; and nothing is left half done.
    let other = free.write().acquire().await.unwrap();
    other.release().await.unwrap();
    assert!(held.write().try_acquire().await.unwrap().is_none());
    assert!(
        client
            .rw_lock("w")
            .read()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let again = reader.reenter().unwrap();
    sleep(ms(2_000)).await;
    assert!(reader.is_held() && writer.is_held());
    for guard in [again, reader, writer] {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn writer_that_waits_for_a_key_in_braces_keeps_no_reader_from_the_key_without() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (plain, tagged) = (client.rw_lock("q"), client.rw_lock("{q}"));
    let reader = tagged.read().acquire().await.unwrap();
    let writer = tokio::spawn(tagged.write().acquire().into_future());
    let turn = eventually(SOON, "the writer's turn", || async {
        let mut keys = server.keys().await.into_iter();
        keys.find(|key| key.ends_with(":rwlock_turn"))
    });
    let turn = turn.await;
    let free = plain.read().try_acquire().await.unwrap();
    free.expect("nobody waits for it").release().await.unwrap();
    assert_eq!(turn, "{q}:tagged:rwlock_turn");
    reader.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
}
