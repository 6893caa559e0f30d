//! Permits as Redisson has them in the server: keys, members, scores and TTLs.

mod crowds;
mod lease;
mod messages;
mod without_number;

use std::time::Duration;

use distlock::test_util::{Answer, Kind, PermitChange, Verbs};
use distlock::{Blocker, Client, Error, PermitId};
use distlock_tests::{RedisServer, eventually_eq};
use futures_util::{Stream, StreamExt};
use tokio::time::timeout;
use uuid::Uuid;

use crate::redis::{SOON, client, ms};

const SEATS: &str = "seats";
const OUT: &str = "{seats}:timeout";
const CHANNEL: &str = "redisson_sc:{seats}";

/// The score of a permit of Redisson's without a lease.
const PERMANENT: i64 = 922_337_203_685_477;

/// An id that Redisson may have drawn.
const FOREIGN: &str = "0123456789abcdef";

fn foreign() -> PermitId {
    let digits: String = FOREIGN.bytes().map(|byte| format!("{byte:02x}")).collect();
    digits.parse().unwrap()
}

/// How many permits are free, as it stands in the server.
async fn free(server: &RedisServer, key: &str) -> Option<i64> {
    server.try_cli(&["GET", key]).await.unwrap()
}

/// The permits that are out, by their end.
async fn out(server: &RedisServer, key: &str) -> Vec<(Vec<u8>, i64)> {
    let words = ["ZRANGE", key, "0", "-1", "WITHSCORES"];
    server.try_cli(&words).await.unwrap()
}

async fn now(server: &RedisServer) -> i64 {
    let (seconds, micros): (i64, i64) = server.try_cli(&["TIME"]).await.unwrap();
    seconds * 1_000 + micros / 1_000
}

/// Lets Redisson have a permit until then: what its scripts leave.
async fn foreign_permit(server: &RedisServer, id: &str, end: i64) {
    server.cli(&["DECR", SEATS]).await;
    server.cli(&["ZADD", OUT, &end.to_string(), id]).await;
}

async fn messages(
    server: &RedisServer,
    channel: &str,
) -> impl Stream<Item = String> + Unpin + use<> {
    let mut messages = server.client().get_async_pubsub().await.unwrap();
    messages.subscribe(channel).await.unwrap();
    let text = |message: redis::Msg| message.get_payload::<String>().unwrap();
    messages.into_on_message().map(text)
}

/// The next messages are these; then one of the test's own, so that there was no other.
async fn told(
    server: &RedisServer,
    messages: &mut (impl Stream<Item = String> + Unpin),
    expected: &[&str],
) {
    server.cli(&["PUBLISH", CHANNEL, "end"]).await;
    for expected in expected.iter().chain(&["end"]) {
        let message = timeout(SOON, messages.next()).await.unwrap().unwrap();
        assert_eq!(message, *expected);
    }
}

#[tokio::test]
async fn golden_states_of_three_permits() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    let mut heard = messages(&server, CHANNEL).await;
    seats.try_set_permits(3).await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(3));
    assert_eq!(server.pttl(SEATS).await, -1);
    told(&server, &mut heard, &["3"]).await;

    foreign_permit(&server, FOREIGN, PERMANENT).await;
    let before = now(&server).await;
    let five = seats.acquire().lease(ms(50_000)).await.unwrap();
    let nine = seats.acquire().lease(ms(90_000)).await.unwrap();
    let after = now(&server).await + 1;
    let permits = out(&server, OUT).await;
    let ids: Vec<&[u8]> = permits.iter().map(|(id, _)| id.as_slice()).collect();
    let [(_, first), (_, second), (_, third)] = permits[..] else {
        panic!("{permits:?}");
    };
    assert_eq!(
        ids,
        [
            five.id().as_bytes(),
            nine.id().as_bytes(),
            FOREIGN.as_bytes()
        ]
    );
    assert!(
        (before + 50_000..=after + 50_000).contains(&first),
        "{first}"
    );
    assert!(
        (before + 90_000..=after + 90_000).contains(&second),
        "{second}"
    );
    assert_eq!(third, PERMANENT);
    assert_eq!(
        (free(&server, SEATS).await, server.pttl(OUT).await),
        (Some(0), -1)
    );
    let refused = seats.acquire().wait(Duration::ZERO).await.unwrap_err();
    let Error::Timeout {
        blocker: Blocker::Owner(Some(left)),
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert!(left <= ms(50_000) && left > ms(20_000), "{left:?}");
    told(&server, &mut heard, &[]).await;

    // Each release tells how many are free.
    five.release().await.unwrap();
    nine.release().await.unwrap();
    told(&server, &mut heard, &["1", "2"]).await;
    assert_eq!(seats.remaining_lease(foreign()).await.unwrap(), None);
    let _two = seats.acquire_many(2).await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(0));
    // With only permanent ones in the way no end is known.
    drop(_two);
    eventually_eq(SOON, "free", Some(2), || free(&server, SEATS)).await;
    seats.add_permits(-2).await.unwrap();
    let refused = seats.acquire().wait(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Timeout {
                blocker: Blocker::Owner(None),
                ..
            }
        ),
        "{refused:?}"
    );
    seats.release(foreign()).await.unwrap();
    assert_eq!(
        server
            .keys()
            .await
            .iter()
            .filter(|key| !key.ends_with(":request"))
            .count(),
        1
    );
    assert_eq!(free(&server, SEATS).await, Some(1));
}

#[tokio::test]
async fn names_follow_the_rule_of_the_brace() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    for (key, permits, channel) in [
        ("order:42", "{order:42}:timeout", "redisson_sc:{order:42}"),
        ("{cart:1}:s", "{cart:1}:s:timeout", "redisson_sc:{cart:1}:s"),
    ] {
        let seats = client.expirable_semaphore(key);
        let mut heard = messages(&server, channel).await;
        seats.try_set_permits(1).await.unwrap();
        let permit = seats.acquire().await.unwrap();
        assert_eq!(out(&server, permits).await.len(), 1);
        let message = timeout(SOON, heard.next()).await.unwrap();
        assert_eq!(message.as_deref(), Some("1"));
        permit.release().await.unwrap();
        assert!(seats.delete().await.unwrap());
    }
    // What else was written is ours alone, lies beside the semaphore, and ends.
    for key in server.keys().await {
        let ours = key.starts_with("{order:42}:") || key.starts_with("{cart:1}:s:");
        assert!(ours && key.ends_with(":request"), "{key}");
        assert!(key.contains(&client.id().to_string()), "{key}");
        let ttl = server.pttl(&key).await;
        assert!((1..=35_000).contains(&ttl), "{key}: {ttl}");
    }
}

#[tokio::test]
async fn ttl_of_the_number_is_kept_and_given_to_the_permits() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    server.cli(&["SET", SEATS, "2", "PX", "60000"]).await;
    let permit = seats.acquire().await.unwrap();
    let has_ttl = async |key| {
        let ttl = server.pttl(key).await;
        assert!((50_000..=60_000).contains(&ttl), "{key}: {ttl}");
    };
    has_ttl(SEATS).await;
    has_ttl(OUT).await;
    seats.add_permits(2).await.unwrap();
    seats.set_permits(3).await.unwrap();
    seats.update_lease(permit.id(), ms(40_000)).await.unwrap();
    has_ttl(SEATS).await;
    has_ttl(OUT).await;
    permit.release().await.unwrap();
    has_ttl(SEATS).await;
}

#[tokio::test]
async fn verbs_sent_twice_leave_what_they_left_once() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let verbs = Verbs::new(&client, Uuid::from_u128(7))
        .of_kind(Kind::ExpirableSemaphore)
        .with_permits(2);
    verbs
        .adjust(SEATS, 100, PermitChange::TrySet(3))
        .await
        .unwrap();
    let members = |number| {
        let mut ids: Vec<_> = verbs
            .permit_ids(number)
            .iter()
            .map(|id| id.as_bytes().to_vec())
            .collect();
        ids.sort();
        ids
    };
    let long = ms(100_000);
    for _ in 0..2 {
        assert_eq!(
            verbs.attempt(SEATS, 1, long).await.unwrap(),
            Answer::Granted
        );
        let ids: Vec<_> = out(&server, OUT)
            .await
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        let mut sorted = ids.clone();
        sorted.sort();
        assert_eq!((free(&server, SEATS).await, sorted), (Some(1), members(1)));
    }
    let ends = out(&server, OUT).await;
    // A late copy with a shorter lease changes nothing.
    assert_eq!(
        verbs.attempt(SEATS, 1, ms(1_000)).await.unwrap(),
        Answer::Granted
    );
    let renewal = [(SEATS, 1, 1, ms(1_000)), (SEATS, 2, 1, ms(1_000))];
    assert_eq!(
        verbs.renew(&renewal).await.unwrap(),
        Answer::Renewed(vec![true, false])
    );
    assert_eq!(out(&server, OUT).await, ends);
    assert_eq!(verbs.withdraw(SEATS, 1).await.unwrap(), Answer::Freed);
    let mark = format!("{{{SEATS}}}:{}:1:ended", Uuid::from_u128(7));
    let ttl = server.pttl(&mark).await;
    assert!((20_000..=30_000).contains(&ttl), "{ttl}");
    for _ in 0..2 {
        assert_eq!(verbs.release(SEATS, 1).await.unwrap(), Answer::NotOurs);
        assert_eq!(
            verbs.renew(&renewal).await.unwrap(),
            Answer::Renewed(vec![false, false])
        );
        assert_eq!(
            verbs.attempt(SEATS, 1, long).await.unwrap(),
            Answer::Held(None)
        );
        assert_eq!(
            (free(&server, SEATS).await, out(&server, OUT).await.len()),
            (Some(3), 0)
        );
    }
    // Once the mark has gone, so has the reason to refuse.
    server.cli(&["DEL", &mark]).await;
    assert_eq!(
        verbs.attempt(SEATS, 1, long).await.unwrap(),
        Answer::Granted
    );
}

#[tokio::test]
async fn values_of_another_type_are_refused_and_left_alone() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    server.cli(&["SET", "text", "abc"]).await;
    server.cli(&["SET", "seats", "3"]).await;
    server.cli(&["SET", OUT, "no set"]).await;
    for key in ["text", "seats"] {
        let seats = client.expirable_semaphore(key);
        let refused = [
            seats.try_acquire().await.unwrap_err(),
            seats.permits().await.unwrap_err(),
            seats.set_permits(5).await.unwrap_err(),
            seats.release(foreign()).await.unwrap_err(),
            seats.remaining_lease(foreign()).await.unwrap_err(),
            seats.delete().await.unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, Error::WrongType { .. }), "{error}");
        }
    }
    assert_eq!(server.keys().await, ["seats", "text", OUT]);
    assert_eq!(free(&server, "seats").await, Some(3));
}
