//! Leases of permits in the server: whose clock ends them, how they are renewed, and how those go back that are over.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_tests::{RedisServer, eventually};

use super::{
    CHANNEL, FOREIGN, OUT, SEATS, foreign, foreign_permit, free, messages, now, out, told,
};
use crate::redis::{SOON, client, client_of_lease, ms};

#[tokio::test]
async fn ends_are_those_of_the_servers_clock() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(1).await.unwrap();
    let permit = seats.acquire().lease(ms(10_000)).await.unwrap();
    let (_, end) = out(&server, OUT).await[0].clone();
    let here = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    assert!((here..=here + 10_001).contains(&end), "{end} at {here}");
    seats.update_lease(permit.id(), ms(20_000)).await.unwrap();
    eventually(SOON, "the later end", || async {
        let (_, later) = out(&server, OUT).await[0].clone();
        (later >= end + 9_000).then_some(()).ok_or(later)
    })
    .await;
}

in_real_time!(
    LEASE / 6;
    renewals_of_many_semaphores_travel_together,
    without_memory_permits_are_renewed_and_given_back,
);

/// Of permits that are renewed.
const LEASE: Duration = ms(1_500);

async fn renewals_of_many_semaphores_travel_together() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LEASE).await;
    let mut permits = Vec::new();
    for n in 0..50 {
        let seats = client.expirable_semaphore(format!("seats:{n}"));
        seats.try_set_permits(2).await.unwrap();
        permits.push(seats.acquire_many(2).await.unwrap());
    }
    let guard = client.lock("beside").acquire().await.unwrap();
    tokio::time::sleep(ms(2_000)).await;
    let before = server.command_calls("evalsha").await;
    tokio::time::sleep(ms(2_000)).await;
    let sent = server.command_calls("evalsha").await - before;
    assert!(permits.iter().all(|permit| permit.is_held()) && guard.is_held());
    // Four rounds in that time; each of a family alone, and more where they were not acquired together.
    assert!(sent <= 100, "{sent}");
}

async fn without_memory_permits_are_renewed_and_given_back() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LEASE).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(4).await.unwrap();
    let permits = seats.acquire_many(2).await.unwrap();
    let kept = seats.acquire().await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(
        server
            .try_cli::<String>(&["SET", "any", "thing"])
            .await
            .is_err()
    );
    tokio::time::sleep(ms(2_500)).await;
    assert!(permits.is_held() && kept.is_held());
    permits.release().await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(3));
    seats.release(kept.id()).await.unwrap();
    assert_eq!(
        (free(&server, SEATS).await, out(&server, OUT).await.len()),
        (Some(4), 0)
    );
    let another = seats.acquire().await.unwrap();
    another.release().await.unwrap();
    assert!(!seats.try_set_permits(4).await.unwrap());
}

#[tokio::test]
async fn release_after_the_end_reports_failure_and_returns_the_permit() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(2).await.unwrap();
    foreign_permit(&server, FOREIGN, now(&server).await - 1_000).await;
    let mut heard = messages(&server, CHANNEL).await;
    // Reading takes nothing back and tells nobody.
    assert_eq!(seats.available_permits().await.unwrap(), 2);
    assert_eq!(
        (
            seats.acquired_permits().await.unwrap(),
            seats.permits().await.unwrap()
        ),
        (0, 2)
    );
    assert_eq!(
        (free(&server, SEATS).await, out(&server, OUT).await.len()),
        (Some(1), 1)
    );
    assert!(seats.release(foreign()).await.unwrap_err().is_lost());
    assert_eq!(
        (free(&server, SEATS).await, out(&server, OUT).await.len()),
        (Some(2), 0)
    );
    told(&server, &mut heard, &["2"]).await;
}

#[tokio::test]
async fn tens_of_thousands_of_expired_permits_go_back_at_once() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.set_permits(0).await.unwrap();
    let fill = "for i = 1, 25000 do \
        redis.call('ZADD', KEYS[1], i, string.format('%016d', i)) end";
    server.cli(&["EVAL", fill, "1", OUT]).await;
    let mut heard = messages(&server, CHANNEL).await;
    let permits = seats.acquire_many(1_000).await.unwrap();
    assert_eq!(
        (free(&server, SEATS).await, out(&server, OUT).await.len()),
        (Some(24_000), 1_000)
    );
    told(&server, &mut heard, &["24000"]).await;
    permits.release().await.unwrap();
    assert_eq!(
        (free(&server, SEATS).await, out(&server, OUT).await.len()),
        (Some(25_000), 0)
    );
}
