//! Numbers that expire, as they stand in the server.

use std::time::Duration;

use distlock_tests::{RedisServer, eventually};

use crate::redis::{client, client_of_lease, ms};

const SOON: Duration = Duration::from_secs(10);

/// Far longer than a test takes.
const LONG: Duration = Duration::from_secs(1_000);

/// Asserts that a key ends in about this time.
async fn ends_after(server: &RedisServer, key: &str, expected: Duration) {
    let left = server.pttl(key).await;
    let most = expected.as_millis() as i64;
    assert!((most - 100_000..=most).contains(&left), "{key}: {left}");
}

#[tokio::test]
async fn key_and_what_is_beside_it_have_the_same_end_and_a_use_moves_both() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool");
    let pool = |time| pool.clone().expire_after(time);
    pool(LONG).try_set_permits(3).await.unwrap();
    ends_after(&server, "pool", LONG).await;
    let held = pool(LONG).acquire().await.unwrap();
    ends_after(&server, "{pool}:distlock_owners", LONG).await;
    pool(2 * LONG).add_permits(1).await.unwrap();
    ends_after(&server, "pool", 2 * LONG).await;
    ends_after(&server, "{pool}:distlock_owners", 2 * LONG).await;
    let second = pool(3 * LONG).acquire().await.unwrap();
    held.release().await.unwrap();
    ends_after(&server, "pool", 3 * LONG).await;
    ends_after(&server, "{pool}:distlock_owners", 3 * LONG).await;
    drop(second);
    let seats = client.expirable_semaphore("seats").expire_after(LONG);
    seats.try_set_permits(3).await.unwrap();
    ends_after(&server, "seats", LONG).await;
    let seat = seats.acquire().await.unwrap();
    ends_after(&server, "{seats}:timeout", LONG).await;
    let later = seats.clone().expire_after(2 * LONG);
    later.set_permits(4).await.unwrap();
    ends_after(&server, "seats", 2 * LONG).await;
    ends_after(&server, "{seats}:timeout", 2 * LONG).await;
    let last = seats.clone().expire_after(3 * LONG);
    let last = last.acquire().await.unwrap();
    ends_after(&server, "seats", 3 * LONG).await;
    ends_after(&server, "{seats}:timeout", 3 * LONG).await;
    drop((seat, last));
    let jobs = client.count_down_latch("jobs").expire_after(LONG);
    jobs.try_set_count(3).await.unwrap();
    ends_after(&server, "jobs", LONG).await;
    let later = jobs.clone().expire_after(2 * LONG);
    later.count_down().await.unwrap();
    ends_after(&server, "jobs", 2 * LONG).await;
}

/// Redisson's `trySetPermits(permits, ttl)` and `expire` set an end, which a handle with a time moves.
#[tokio::test]
async fn end_that_redisson_set_is_moved_and_one_that_it_removed_is_not_set_again() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let pool = client.semaphore("pool").expire_after(LONG);
    server.cli(&["SET", "pool", "2", "PX", "60000"]).await;
    client.semaphore("pool").add_permits(1).await.unwrap();
    assert!(server.pttl("pool").await <= 60_000);
    pool.acquire().await.unwrap().release().await.unwrap();
    ends_after(&server, "pool", LONG).await;
    // As `addPermits` and `drainPermits` do it.
    server.cli(&["SET", "pool", "5"]).await;
    pool.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(server.pttl("pool").await, -1);
}

/// Otherwise the list would end at its former time, and a permit that was taken just before could not be given back.
#[tokio::test]
async fn list_beside_a_number_whose_end_redisson_removed_outlives_the_next_permit() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (plain, seats) = (client.semaphore("p"), client.expirable_semaphore("s"));
    let (short_plain, short_seats) = (
        plain.clone().expire_after(LONG),
        seats.clone().expire_after(LONG),
    );
    short_plain.try_set_permits(3).await.unwrap();
    short_seats.try_set_permits(3).await.unwrap();
    let (held, seat) = (
        short_plain.acquire().await.unwrap(),
        short_seats.acquire().await.unwrap(),
    );
    for (number, list) in [("p", "{p}:distlock_owners"), ("s", "{s}:timeout")] {
        // As `addPermits` does it.
        server.cli(&["SET", number, "5"]).await;
        ends_after(&server, list, LONG).await;
    }
    // By handles with and without a time.
    let (later, later_seat) = (
        short_plain.acquire().await.unwrap(),
        seats.acquire().await.unwrap(),
    );
    for (number, list) in [("p", "{p}:distlock_owners"), ("s", "{s}:timeout")] {
        assert_eq!(server.pttl(number).await, -1);
        ends_after(&server, list, Duration::from_secs(45 * 24 * 3600)).await;
    }
    for permit in [held, later] {
        permit.release().await.unwrap();
    }
    for permit in [seat, later_seat] {
        permit.release().await.unwrap();
    }
    // A number that never had an end has a list without one.
    let eternal = client.semaphore("e");
    eternal.try_set_permits(3).await.unwrap();
    let _held = (
        eternal.acquire().await.unwrap(),
        eternal.acquire().await.unwrap(),
    );
    assert_eq!(server.pttl("{e}:distlock_owners").await, -1);
}

/// Otherwise it would end while they are held and renewed.
#[tokio::test]
async fn permits_beside_a_number_whose_end_redisson_removed_outlive_the_next_renewal() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, ms(6_000)).await;
    let (eternal, later) = (client.expirable_semaphore("s"), 45 * 24 * 3600 * 1000);
    let short = eternal.clone().expire_after(LONG);
    for renewing in [&short, &eternal] {
        short.try_set_permits(3).await.unwrap();
        let held = renewing.acquire().await.unwrap();
        ends_after(&server, "{s}:timeout", LONG).await;
        // As `addPermits` does it.
        server.cli(&["SET", "s", "5"]).await;
        eventually(SOON, "a later end", || async {
            let left = server.pttl("{s}:timeout").await;
            (left > later / 2 && left <= later)
                .then_some(())
                .ok_or(left)
        })
        .await;
        held.release().await.unwrap();
        assert!(short.delete().await.unwrap());
    }
}

/// Redisson's `expire` moves the end of the number, and not of the list beside it.
#[tokio::test]
async fn list_beside_a_number_whose_end_redisson_moved_gets_that_end_at_the_next_use() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let eternal = client.semaphore("p");
    let short = eternal.clone().expire_after(LONG);
    short.try_set_permits(3).await.unwrap();
    let held = [
        short.acquire().await.unwrap(),
        short.acquire().await.unwrap(),
    ];
    for (at, pool) in [&short, &eternal].into_iter().enumerate() {
        let end = LONG * (at as u32 + 2);
        let millis = end.as_millis().to_string();
        server.cli(&["PEXPIRE", "p", &millis]).await;
        pool.add_permits(1).await.unwrap();
        ends_after(&server, "p", end).await;
        ends_after(&server, "{p}:distlock_owners", end).await;
    }
    let [one, two] = held;
    server.cli(&["PEXPIRE", "p", "9000000"]).await;
    one.release().await.unwrap();
    ends_after(&server, "{p}:distlock_owners", LONG * 9).await;
    two.release().await.unwrap();
}

#[tokio::test]
async fn numbers_that_were_used_once_leave_no_keys() {
    const MANY: usize = 20;
    // It must not end while the number is in use.
    const SHORT: Duration = ms(3_000);
    let server = RedisServer::start().await;
    // The semaphore lasts at least as long as the lease of its permit.
    let client = client_of_lease(&server, SHORT).await;
    for n in 0..MANY {
        let pool = client.semaphore(format!("pool:{n}")).expire_after(SHORT);
        pool.try_set_permits(1).await.unwrap();
        pool.acquire().await.unwrap().forget();
        let seats = client.expirable_semaphore(format!("seats:{n}"));
        let seats = seats.expire_after(SHORT);
        seats.try_set_permits(1).await.unwrap();
        seats.acquire().await.unwrap().release().await.unwrap();
        let jobs = client.count_down_latch(format!("jobs:{n}"));
        jobs.expire_after(SHORT).try_set_count(2).await.unwrap();
    }
    eventually(SOON, "no keys", || async {
        // The mark of the last request goes with the next command.
        client.semaphore("other").available_permits().await.unwrap();
        server.keys().await.is_empty()
    })
    .await;
}
