//! Read locks with thousands of readers.

use std::time::Duration;

use distlock::test_util::Kind;
use distlock::{Client, ForceRelease, Guard};
use distlock_tests::{RedisServer, size};
use uuid::Uuid;

use super::{assert_left, assert_said, freed, granted, messages, owner, timeout_key, verbs};
use crate::redis::{SOON, client};

#[tokio::test]
async fn thousands_of_readers_that_leave_at_once_are_all_confirmed() {
    let server = RedisServer::start().await;
    // The last of them waits for the answers to all others, on a busy machine for seconds.
    let patient = Client::builder().response_timeout(Duration::MAX);
    let patient = patient.unavailable_after(SOON * 3);
    let client = patient.connect(&server.url()).await.unwrap();
    let lock = client.rw_lock("k");
    let readers = size(1_000, 4_000);
    let enter = (0..readers).map(|_| lock.read().acquire().into_future());
    let guards = futures_util::future::try_join_all(enter).await.unwrap();
    let leave = guards.into_iter().map(Guard::release);
    futures_util::future::try_join_all(leave).await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn last_of_a_crowd_frees_the_lock_also_when_the_others_died() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = verbs(&client, Kind::Read);
    let mut messages = messages(&server).await;
    for number in 1..=41 {
        granted(&reads, number, 60_000).await;
    }
    for number in 1..=40 {
        server.cli(&["DEL", &timeout_key(&owner(number), 1)]).await;
    }
    freed(&reads, 41).await;
    assert!(server.keys().await.is_empty());
    assert_said(&mut messages, "0").await;
}

/// The lock then keeps the TTL of one that has left only while many are alive.
#[tokio::test]
async fn last_of_a_crowd_frees_the_lock_at_once_after_one_with_a_longer_lease_left_and_others_died()
{
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = verbs(&client, Kind::Read);
    // Names decide in which order the server shows the readers, and so how many of the dead a release looks at.
    for (round, (many, last)) in [(15, 1), (11, 2), (11, 2), (11, 2), (11, 2), (11, 2)]
        .into_iter()
        .enumerate()
    {
        let mut messages = messages(&server).await;
        let first = 100 * round as u64;
        let mut readers: Vec<u64> = (first..first + many).collect();
        for number in &readers {
            granted(&reads, *number, 60_000).await;
        }
        granted(&reads, first + many, 600_000).await;
        freed(&reads, first + many).await;
        assert_left(&server, "k", 600_000).await;
        let alive = readers.split_off(readers.len() - last);
        for number in readers {
            server.cli(&["DEL", &timeout_key(&owner(number), 1)]).await;
        }
        for number in alive {
            freed(&reads, number).await;
        }
        assert!(server.keys().await.is_empty());
        assert_said(&mut messages, "0").await;
    }
}

#[tokio::test]
async fn lock_of_a_crowd_keeps_its_ttl_until_few_readers_are_left() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reads = verbs(&client, Kind::Read);
    let mut messages = messages(&server).await;
    for number in 1..=9 {
        granted(&reads, number, 60_000).await;
    }
    granted(&reads, 10, 90_000).await;
    freed(&reads, 10).await;
    assert_left(&server, "k", 90_000).await;
    freed(&reads, 9).await;
    assert_left(&server, "k", 60_000).await;
    // Only this release was published: the lock may be free earlier than its waiters were answered.
    assert_said(&mut messages, "0").await;
    for number in 1..=8 {
        freed(&reads, number).await;
    }
    assert!(server.keys().await.is_empty());
    assert_said(&mut messages, "0").await;
}

/// A report names a part of a crowd.
#[tokio::test]
async fn crowd_of_readers_is_freed_by_force_only_if_no_more_are_unseen_than_were_unnamed() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let readers = async |first: u64| {
        server.cli(&["FLUSHALL"]).await;
        let add = "redis.call('HSET', KEYS[1], 'mode', 'read')
            for n = ARGV[2], ARGV[2] + 2999 do
              local owner = ARGV[1] .. ':' .. string.format('%.0f', n)
              redis.call('HSET', KEYS[1], owner, '1')
              redis.call('SET', '{k}:' .. owner .. ':rwlock_timeout:1', '1', 'PX', 600000)
            end";
        let first = first.to_string();
        let client = Uuid::from_u128(7).to_string();
        server.cli(&["EVAL", add, "1", "k", &client, &first]).await;
    };
    readers(1).await;
    let seen = client.inspect("k").await.unwrap();
    assert_eq!(seen.holder_total, 3_000);
    readers(10_001).await;
    let forced = client.force_release(&seen).await.unwrap();
    assert!(matches!(forced, ForceRelease::Changed(_)), "{forced:?}");
    readers(1).await;
    let forced = client.force_release(&seen).await.unwrap();
    assert_eq!(forced, ForceRelease::Freed);
}
