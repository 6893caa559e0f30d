//! The states that Redisson's own scripts left in a server, step by step: what of them no other file here compares.
//!
//! Those of read/write locks stand in `rw`, of semaphores in `semaphore`, of permits in `permit`, of latches in `latch`, of
//! a fair queue with waiters of Redisson's in `fair`. Where ours is another state on purpose, it says so and why.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::test_util::{Answer, Kind};
use distlock::{Client, MultiLock};
use distlock_tests::{RedisServer, eventually_eq};
use futures_util::{Stream, StreamExt};
use tokio::time::timeout;

use super::{assert_fields, assert_left, owner, verbs};
use crate::redis::{SOON, client, ms};

const LEASE: Duration = ms(30_000);

/// Refused, for this long.
#[track_caller]
fn assert_held(answer: &Answer, most: Duration) {
    let Answer::Held(Some(left)) = answer else {
        panic!("{answer:?}");
    };
    assert!(
        *left <= most && *left >= most * 3 / 4,
        "{left:?}, not {most:?}"
    );
}

type Said = (String, String);

/// All that is said on any channel.
async fn messages(server: &RedisServer) -> impl Stream<Item = Said> + Unpin + use<> {
    let mut messages = server.client().get_async_pubsub().await.unwrap();
    messages.psubscribe("*").await.unwrap();
    let said = |message: redis::Msg| {
        let payload = message.get_payload::<String>().unwrap();
        (message.get_channel_name().to_owned(), payload)
    };
    messages.into_on_message().map(said)
}

/// These were said since, and nothing else.
async fn assert_said(
    server: &RedisServer,
    messages: &mut (impl Stream<Item = Said> + Unpin),
    expected: &[(&str, &str)],
) {
    server.cli(&["PUBLISH", "end", "end"]).await;
    for (channel, payload) in expected.iter().chain(&[("end", "end")]) {
        let said = timeout(SOON, messages.next()).await.unwrap().unwrap();
        assert_eq!(said, ((*channel).to_owned(), (*payload).to_owned()));
    }
}

#[tokio::test]
async fn lock_that_is_entered_twice_and_left_twice() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut said = messages(&server).await;
    let lock = verbs(&client, Kind::Reentrant);
    let u1 = owner(1);
    assert_eq!(lock.attempt("lk", 1, LEASE).await.unwrap(), Answer::Granted);
    assert_fields(&server, "lk", &[(&u1, "1")]).await;
    assert_left(&server, "lk", 30_000).await;
    // An entry into a scope's own hold tells its count with a renewal: nothing adds one.
    for _ in 0..2 {
        let renewed = lock.renew(&[("lk", 1, 2, LEASE)]).await.unwrap();
        assert_eq!(renewed, Answer::Renewed(vec![true]));
        assert_fields(&server, "lk", &[(&u1, "2")]).await;
    }
    assert_left(&server, "lk", 30_000).await;
    assert_held(&lock.attempt("lk", 2, LEASE).await.unwrap(), LEASE);
    // A release by another owner changes nothing and leaves nothing, not even a latch.
    assert_eq!(lock.release("lk", 2).await.unwrap(), Answer::NotOurs);
    assert_fields(&server, "lk", &[(&u1, "2")]).await;
    assert_eq!(server.keys().await, ["lk"]);
    lock.renew(&[("lk", 1, 1, LEASE)]).await.unwrap();
    assert_fields(&server, "lk", &[(&u1, "1")]).await;
    assert_left(&server, "lk", 30_000).await;
    assert_said(&server, &mut said, &[]).await;
    assert_eq!(lock.release("lk", 1).await.unwrap(), Answer::Freed);
    assert!(server.keys().await.is_empty());
    // Redisson repeats its answer from a latch; ours needs none, as the owner is never used again.
    assert_eq!(lock.release("lk", 1).await.unwrap(), Answer::NotOurs);
    assert_said(&server, &mut said, &[("redisson_lock__channel:{lk}", "0")]).await;
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn renewal_of_three_locks_of_which_one_is_ours() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let lock = verbs(&client, Kind::Reentrant);
    let (ours, theirs) = (owner(1), "0ddad9e6-60bc-45a5-8797-1987353a9077:1");
    for (key, owner) in [("k1", ours.as_str()), ("k2", theirs)] {
        server.cli(&["HSET", key, owner, "1"]).await;
        server.cli(&["PEXPIRE", key, "20000"]).await;
    }
    let batch = ["k1", "k2", "k3"].map(|key| (key, 1, 1, LEASE));
    let renewed = lock.renew(&batch).await.unwrap();
    assert_eq!(renewed, Answer::Renewed(vec![true, false, false]));
    assert_fields(&server, "k1", &[(&ours, "1")]).await;
    assert_fields(&server, "k2", &[(theirs, "1")]).await;
    assert_left(&server, "k1", 30_000).await;
    assert_left(&server, "k2", 20_000).await;
    assert_eq!(server.keys().await, ["k1", "k2"]);
}

/// Tokens of Redisson's count from 1, and grow with each entry; ours are at least the time, so that they grow also where
/// the last one was lost, and an entry is of the same grant.
#[tokio::test]
async fn fenced_lock_and_its_token() {
    const TOKEN: &str = "redisson_lock_token:{k}";
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut said = messages(&server).await;
    let micros = || -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_micros().try_into().unwrap()
    };
    let stored = async || server.try_cli::<u64>(&["GET", TOKEN]).await.unwrap();
    // As Redisson left it.
    server.cli(&["SET", TOKEN, "2"]).await;
    let before = micros();
    let guard = client.fenced_lock("k").acquire().await.unwrap();
    let first = guard.token();
    assert!((before..=micros()).contains(&first), "{first} at {before}");
    assert_eq!(stored().await, first);
    assert_eq!(server.pttl(TOKEN).await, -1);
    let holder = guard.owner().to_string();
    assert_fields(&server, "k", &[(&holder, "1")]).await;
    assert_left(&server, "k", 30_000).await;
    assert_eq!(server.keys().await, ["k", TOKEN]);

    let again = guard.reenter().unwrap();
    let count = || async { server.hgetall("k").await.into_values().next() };
    eventually_eq(SOON, "the count", Some("2".to_owned()), count).await;
    assert_eq!((again.token(), stored().await), (first, first));
    let other = verbs(&client, Kind::Fenced);
    assert_held(&other.attempt("k", 2, LEASE).await.unwrap(), LEASE);
    assert_eq!(stored().await, first);
    again.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, [TOKEN]);
    assert_said(&server, &mut said, &[("redisson_lock__channel:{k}", "0")]).await;

    // Redisson counts on from ours, and we from its. A multi-lock of Redisson with a lease sets an end to the token.
    server
        .cli(&["SET", TOKEN, "8000000000000000", "PX", "60000"])
        .await;
    let guard = client.fenced_lock("k").acquire().await.unwrap();
    assert_eq!(guard.token(), 8_000_000_000_000_001);
    assert!(client.fenced_lock("k").force_release().await.unwrap());
    assert_eq!(stored().await, 8_000_000_000_000_001);
    assert_eq!(server.pttl(TOKEN).await, -1);
}

/// Redisson's tokens would begin at 1 again after it, so it has to be asked for.
#[tokio::test]
async fn token_is_kept_for_as_long_as_is_wanted() {
    const TOKEN: &str = "redisson_lock_token:{k}";
    let server = RedisServer::start().await;
    let builder = Client::builder().fencing_token_ttl(ms(60_000));
    let client = builder.connect(&server.url()).await.unwrap();
    for _ in 0..2 {
        let guard = client.fenced_lock("k").acquire().await.unwrap();
        assert_left(&server, TOKEN, 60_000).await;
        guard.release().await.unwrap();
        assert_left(&server, TOKEN, 60_000).await;
        // With each grant anew.
        server.cli(&["PEXPIRE", TOKEN, "1000"]).await;
    }
}

/// Of plain locks, which go in one command, and of others.
#[tokio::test]
async fn members_of_a_multi_lock_are_stored_as_if_each_was_taken_alone() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let multi = MultiLock::of([
        client.lock("a").into(),
        client.spin_lock("b").into(),
        client.fair_lock("c").into(),
        client.rw_lock("d").write().into(),
    ]);
    let guard = multi.acquire().await.unwrap();
    let owned =
        |by: &str, what: &str| by.starts_with(&format!("{}:", client.id())) && by.ends_with(what);
    for key in ["a", "b", "c"] {
        let fields = server.hgetall(key).await;
        let fields: Vec<_> = fields.iter().collect();
        let [(by, count)] = fields[..] else {
            panic!("{key}: {fields:?}");
        };
        assert!(owned(by, "") && count == "1", "{key}: {fields:?}");
        assert_left(&server, key, 30_000).await;
    }
    let mut fields = server.hgetall("d").await;
    assert_eq!(fields.remove("mode").as_deref(), Some("write"));
    let fields: Vec<_> = fields.iter().collect();
    assert!(matches!(fields[..], [(by, count)] if owned(by, ":write") && count == "1"));
    assert_left(&server, "d", 30_000).await;
    assert_eq!(server.keys().await, ["a", "b", "c", "d"]);
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

/// Redisson's waiters count as dead minutes after they came, each from the one before it, and who acquires or gives up
/// takes its minutes from all behind it. Ours ask often, so each counts from its last sign, and takes nothing.
#[tokio::test]
async fn fair_queue_of_three() {
    const QUEUE: &str = "redisson_lock_queue:{fl}";
    const TIMEOUTS: &str = "redisson_lock_timeout:{fl}";
    const PLACE: Duration = ms(60_000);
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut said = messages(&server).await;
    let fair = verbs(&client, Kind::Fair);
    let waits = fair.waiting(PLACE);
    let (a, b, c) = (owner(2), owner(3), owner(4));
    let attempt = async |number| waits.attempt("fl", number, LEASE).await.unwrap();
    let assert_queue = async |owners: &[&String]| {
        let queue: Vec<String> = server.try_cli(&["LRANGE", QUEUE, "0", "-1"]).await.unwrap();
        assert_eq!(queue.iter().collect::<Vec<_>>(), owners);
        let words = ["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"];
        let scores: Vec<(String, f64)> = server.try_cli(&words).await.unwrap();
        assert_eq!(scores.len(), owners.len(), "{scores:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for (one, score) in scores {
            assert!(owners.contains(&&one), "{one}");
            let left = score - now.as_secs_f64() * 1_000.0;
            assert!((50_000.0..=60_050.0).contains(&left), "{left}");
        }
    };

    assert_eq!(attempt(1).await, Answer::Granted);
    assert_held(&attempt(2).await, LEASE);
    // A waiter that is not the next one waits for longer than the first one lives.
    assert_held(&attempt(3).await, LEASE + PLACE);
    assert_held(&attempt(4).await, LEASE + PLACE);
    assert_queue(&[&a, &b, &c]).await;
    assert_fields(&server, "fl", &[(&owner(1), "1")]).await;
    assert_left(&server, "fl", 30_000).await;
    assert_held(&attempt(2).await, LEASE);
    assert_queue(&[&a, &b, &c]).await;
    assert_said(&server, &mut said, &[]).await;

    assert_eq!(fair.release("fl", 1).await.unwrap(), Answer::Freed);
    let channel = format!("redisson_lock__channel:{{fl}}:{a}");
    // Redisson says nothing on the lock's own channel, to which those listen that only wait until the lock is free.
    let of_lock = "redisson_lock__channel:{fl}";
    assert_said(&server, &mut said, &[(&channel, "0"), (of_lock, "0")]).await;
    // Redisson says 0 here, on which its waiters ask without a pause.
    assert_held(&attempt(3).await, PLACE);
    assert_held(&attempt(4).await, 2 * PLACE);
    assert_queue(&[&a, &b, &c]).await;

    assert_eq!(attempt(2).await, Answer::Granted);
    assert_fields(&server, "fl", &[(&a, "1")]).await;
    assert_queue(&[&b, &c]).await;
    // Redisson says nothing here: the next of ours learns of a lease that may end before it asks by itself.
    let channel = format!("redisson_lock__channel:{{fl}}:{b}");
    assert_said(&server, &mut said, &[(&channel, "0")]).await;
    assert_eq!(fair.withdraw("fl", 3).await.unwrap(), Answer::NotOurs);
    assert_queue(&[&c]).await;
    assert_said(&server, &mut said, &[]).await;
}

#[tokio::test]
async fn reader_that_expired_goes_with_the_last_that_lives() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut said = messages(&server).await;
    let reads = verbs(&client, Kind::Read);
    let (u1, u2) = (owner(1), owner(2));
    let timeout_of = |owner: &str| format!("{{rw}}:{owner}:rwlock_timeout:1");
    assert_eq!(
        reads.attempt("rw", 1, ms(3_000)).await.unwrap(),
        Answer::Granted
    );
    assert_eq!(
        reads.attempt("rw", 2, LEASE).await.unwrap(),
        Answer::Granted
    );
    let left = ["rw".to_owned(), timeout_of(&u2)].to_vec();
    eventually_eq(SOON, "keys", left, || server.keys()).await;
    assert_fields(&server, "rw", &[("mode", "read"), (&u1, "1"), (&u2, "1")]).await;
    assert_left(&server, "rw", 30_000).await;
    assert_eq!(reads.release("rw", 2).await.unwrap(), Answer::Freed);
    assert!(server.keys().await.is_empty());
    assert_said(&server, &mut said, &[("redisson_rwlock:{rw}", "0")]).await;
}

/// Redisson says so of a lock that is not there; ours has nothing to tell.
#[tokio::test]
async fn ends_of_what_is_not_held_are_told_to_nobody() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut said = messages(&server).await;
    let kinds = [
        Kind::Reentrant,
        Kind::Fenced,
        Kind::Fair,
        Kind::Read,
        Kind::Write,
    ];
    for kind in kinds {
        let verbs = verbs(&client, kind);
        for end in [verbs.release("k", 1).await, verbs.withdraw("k", 1).await] {
            assert_eq!(end.unwrap(), Answer::NotOurs, "{kind:?}");
        }
        assert_eq!(
            verbs.force_release("k").await.unwrap(),
            Answer::Forced(false)
        );
    }
    assert!(server.keys().await.is_empty());
    assert_said(&server, &mut said, &[]).await;
}

/// A state of our own: Redisson keeps no lock that nobody holds.
#[tokio::test]
async fn key_that_rests_names_no_owner_that_a_late_command_could_find() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let job = client.lock("k").acquire().hold_at_least(ms(60_000));
    let job = job.await.unwrap();
    let rest = format!("{}:rest", job.owner());
    job.release().await.unwrap();
    assert_fields(&server, "k", &[(&rest, "1")]).await;
    assert_left(&server, "k", 60_000).await;
}
