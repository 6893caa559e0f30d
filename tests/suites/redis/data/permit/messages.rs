//! Messages on the channel of permits, as Redisson sends and reads them, and the waiters that they wake.

use std::time::Duration;

use distlock::Client;
use distlock::test_util::script;
use distlock_tests::{Pulse, RedisServer, eventually_eq};
use tokio::time::timeout;

use super::{
    CHANNEL, FOREIGN, OUT, PERMANENT, SEATS, foreign_permit, free, messages, now, out, told,
};
use crate::redis::{SOON, client, ms};

/// Below the 5 s after which a waiter without messages asks again.
const TOLD: Duration = Duration::from_secs(3);

async fn listened(server: &RedisServer) {
    eventually_eq(SOON, "listeners", 1, || server.pubsub_numsub(CHANNEL)).await;
}

#[tokio::test]
async fn release_of_two_tells_how_many_are_free() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(3).await.unwrap();
    let two = seats.acquire_many(2).await.unwrap();
    let mut heard = messages(&server, CHANNEL).await;
    assert_eq!(free(&server, SEATS).await, Some(1));
    two.release().await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(3));
    // Redisson publishes 2 here, the number released: too few wake-ups for a waiter for three permits.
    told(&server, &mut heard, &["3"]).await;
}

#[tokio::test]
async fn numbers_below_one_are_told_to_nobody() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    let mut heard = messages(&server, CHANNEL).await;
    seats.set_permits(0).await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(-1));
    seats.add_permits(-5).await.unwrap();
    seats.add_permits(3).await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(-3));
    permit.release().await.unwrap();
    told(&server, &mut heard, &[]).await;
    seats.add_permits(i32::MAX).await.unwrap();
    // No more than a Java int holds.
    assert!(seats.add_permits(i32::MAX).await.is_err());
    told(&server, &mut heard, &["2147483645"]).await;
}

#[tokio::test]
async fn redissons_release_wakes_us_and_its_expired_permit_is_ours() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(1).await.unwrap();
    foreign_permit(&server, FOREIGN, PERMANENT).await;
    let waiting = tokio::spawn(seats.acquire().into_future());
    listened(&server).await;
    server.cli(&["ZREM", OUT, FOREIGN]).await;
    server.cli(&["INCRBY", SEATS, "1"]).await;
    server.cli(&["PUBLISH", CHANNEL, "1"]).await;
    let ours = timeout(SOON, waiting)
        .await
        .expect("woken")
        .unwrap()
        .unwrap();
    ours.release().await.unwrap();
    foreign_permit(&server, FOREIGN, now(&server).await + 500).await;
    let ours = timeout(SOON, seats.acquire().into_future());
    ours.await
        .expect("expired")
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(
        (free(&server, SEATS).await, out(&server, OUT).await.len()),
        (Some(1), 0)
    );
}

/// As Redisson's `updateLeaseTime` does it, which publishes nothing.
#[tokio::test]
async fn permit_that_redisson_lets_end_sooner_goes_to_a_waiter_that_no_message_wakes() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(1).await.unwrap();
    foreign_permit(&server, FOREIGN, PERMANENT).await;
    let waiting = tokio::spawn(seats.acquire().into_future());
    listened(&server).await;
    let end = now(&server).await + 500;
    server.cli(&["ZADD", OUT, &end.to_string(), FOREIGN]).await;
    // It looks every 5 s.
    let ours = timeout(3 * SOON, waiting).await.expect("it looks");
    ours.unwrap().unwrap().release().await.unwrap();
    assert_eq!(free(&server, SEATS).await, Some(1));
}

/// While the slot of the channel moves to another node, the command that publishes may fail. The script is sent again then.
#[tokio::test]
async fn change_whose_message_fails_is_not_made_again_by_the_same_request() {
    const FAILS: &str = "local function fails() return { err = 'ERR the cluster is down' } end\n";
    let server = RedisServer::start().await;
    server.cli(&["SET", SEATS, "3"]).await;
    foreign_permit(&server, FOREIGN, now(&server).await + 1_000_000).await;
    let requests: [(&str, &[&str], i64, i64); 3] = [
        ("PERMIT_UPDATE_LEASE", &[FOREIGN, "500000"], 1, 2),
        ("PERMIT_RELEASE_ONE", &[FOREIGN], 1, 3),
        ("PERMIT_SET", &["add", "4"], 7, 7),
    ];
    for (name, own, answer, left) in requests {
        let source = script(name).unwrap();
        let failing = FAILS.to_owned() + &source.replace("redis.pcall('PUBLISH', ", "fails(");
        for (source, is_published) in [(&*failing, false), (source, true)] {
            let mut words = vec!["EVAL", source, "3", SEATS, OUT, name];
            words.extend(own);
            words.extend([CHANNEL, "60000", "0"]);
            let answered = server.try_cli::<i64>(&words).await;
            let expected = is_published.then_some(answer);
            assert_eq!(answered.ok(), expected, "{name}");
            assert_eq!(free(&server, SEATS).await, Some(left), "{name}");
            // The request is known from then on.
            let known: i64 = server.try_cli(&["EXISTS", name]).await.unwrap();
            assert_eq!(known, 1, "{name}");
        }
    }
}

// A waiter that has slept for too long looks by itself.
in_real_time!(ms(300); any_count_in_a_message_wakes_and_odd_messages_do_not);

async fn any_count_in_a_message_wakes_and_odd_messages_do_not() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let seats = client.expirable_semaphore(SEATS);
    seats.try_set_permits(0).await.unwrap();
    for count in ["1", "2", "2147483647", "0"] {
        let before = server.command_calls("evalsha").await;
        let waiting = tokio::spawn(seats.acquire().into_future());
        // One before the subscription, and one after.
        eventually_eq(SOON, "attempts", before + 2, || {
            server.command_calls("evalsha")
        })
        .await;
        for odd in [
            "-1",
            "1.0",
            "",
            "one",
            "+1",
            "1e3",
            "2147483647000000000000",
        ] {
            server.cli(&["PUBLISH", CHANNEL, odd]).await;
        }
        server.cli(&["INCRBY", SEATS, "1"]).await;
        server.cli(&["PUBLISH", CHANNEL, count]).await;
        let permit = pulse.timeout(TOLD, waiting).await.expect("woken").unwrap();
        assert_eq!(server.command_calls("evalsha").await, before + 3, "{count}");
        permit.unwrap().release().await.unwrap();
        server.cli(&["SET", SEATS, "0"]).await;
    }
}

#[tokio::test]
async fn added_permits_wake_all_waiters_that_they_suffice_for() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let (one, two) = (client(&server).await, client(&server).await);
    let seats = one.expirable_semaphore(SEATS);
    seats.try_set_permits(0).await.unwrap();
    let waits =
        |client: &Client| tokio::spawn(client.expirable_semaphore(SEATS).acquire().into_future());
    let waiting: Vec<_> = [&one, &two, &one, &two].into_iter().map(waits).collect();
    eventually_eq(SOON, "listeners", 2, || server.pubsub_numsub(CHANNEL)).await;
    seats.add_permits(4).await.unwrap();
    for waiting in waiting {
        let permit = pulse
            .timeout(TOLD, waiting)
            .await
            .expect("woken")
            .unwrap()
            .unwrap();
        let _kept = permit.into_id().unwrap();
    }
    assert_eq!(free(&server, SEATS).await, Some(0));
}
