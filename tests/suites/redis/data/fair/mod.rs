//! The fair lock's queue as Redisson has it, beside waiters of Redisson's, and among several processes.

mod crashes;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::test_util::{Answer, Kind, Verbs};
use distlock::{Client, Error, ForceRelease, Guard};
use distlock_tests::{Pulse, RedisServer, eventually_eq};
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::redis::{SOON, client, ms};

const QUEUE: &str = "redisson_lock_queue:{k}";
const TIMEOUTS: &str = "redisson_lock_timeout:{k}";
const OURS: &str = "{k}:distlock_waiters";
const JAVA: [&str; 2] = [
    "0ddad9e6-60bc-45a5-8797-1987353a9077:1",
    "0ddad9e6-60bc-45a5-8797-1987353a9077:2",
];

/// What Redisson gives a waiter that sets no limit, in ms.
const REDISSONS: f64 = 300_000.0;

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs_f64() * 1_000.0
}

async fn queue(server: &RedisServer) -> Vec<String> {
    server.try_cli(&["LRANGE", QUEUE, "0", "-1"]).await.unwrap()
}

/// How long from now each waiter counts as dead, in ms, in the order of the queue; both know the same waiters.
async fn places(server: &RedisServer) -> Vec<f64> {
    let scores: Vec<(String, f64)> = server
        .try_cli(&["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"])
        .await
        .unwrap();
    let (queue, now) = (queue(server).await, now());
    assert_eq!(queue.len(), scores.len(), "{queue:?}, {scores:?}");
    let of = |one: &String| scores.iter().find(|(other, _)| one == other).unwrap().1 - now;
    queue.iter().map(of).collect()
}

#[track_caller]
fn assert_close(pulse: &Pulse, places: &[f64], expected: &[f64]) {
    // Up to a third of its time has passed since a waiter of ours gave a sign.
    let late = pulse.stretch(Duration::ZERO).as_secs_f64() * 1_000.0;
    let close =
        |(one, other): (&f64, &f64)| *one <= other + 50.0 + late && *one >= other - 3_000.0 - late;
    let all_close = places.iter().zip(expected).all(close);
    assert!(
        places.len() == expected.len() && all_close,
        "{places:?}, not {expected:?}"
    );
}

async fn queued(
    server: &RedisServer,
    client: &Client,
    before: usize,
) -> JoinHandle<Result<Guard, Error>> {
    let waiter = tokio::spawn(client.fair_lock("k").acquire().into_future());
    has_places(server, before + 1).await;
    waiter
}

async fn has_places(server: &RedisServer, places: usize) {
    eventually_eq(SOON, "places", places, || async {
        queue(server).await.len()
    })
    .await;
}

/// As Redisson does when a thread begins to wait.
async fn java_waits(server: &RedisServer, owner: &str, dead_in: f64) {
    let score = format!("{:.0}", now() + dead_in);
    server.cli(&["ZADD", TIMEOUTS, &score, owner]).await;
    server.cli(&["RPUSH", QUEUE, owner]).await;
}

/// The same behind the last waiter: its own wait is added to the time of that one.
async fn java_waits_behind(server: &RedisServer, owner: &str, wait: f64) {
    let last = places(server).await.pop().expect("a waiter");
    java_waits(server, owner, last + wait).await;
}

/// As Redisson does for the first in its queue.
async fn java_acquires(server: &RedisServer, owner: &str) {
    java_that_waited_acquires(server, owner, REDISSONS).await;
}

async fn java_that_waited_acquires(server: &RedisServer, owner: &str, wait: f64) {
    assert_eq!(queue(server).await[0], owner);
    server.cli(&["LPOP", QUEUE]).await;
    server.cli(&["ZREM", TIMEOUTS, owner]).await;
    let less = format!("{:.0}", -wait);
    for other in queue(server).await {
        server.cli(&["ZINCRBY", TIMEOUTS, &less, &other]).await;
    }
    server.cli(&["HSET", "k", owner, "1"]).await;
    server.cli(&["PEXPIRE", "k", "30000"]).await;
}

async fn granted(waiter: JoinHandle<Result<Guard, Error>>) -> Guard {
    let granted = timeout(SOON, waiter).await.expect("granted soon");
    granted.unwrap().unwrap()
}

#[tokio::test]
async fn places_are_a_list_and_a_sorted_set_and_the_first_is_told_alone() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let mut messages = server.client().get_async_pubsub().await.unwrap();
    messages.psubscribe("*").await.unwrap();
    let mut messages = messages.into_on_message();
    let held = client.fair_lock("k").acquire().await.unwrap();
    assert_eq!(
        server.hgetall("k").await,
        [(held.owner().to_string(), String::from("1"))].into()
    );
    assert_eq!(server.keys().await, ["k"]);
    let first = queued(&server, &client, 0).await;
    let second = queued(&server, &client, 1).await;
    assert_eq!(server.keys().await, ["k", QUEUE, TIMEOUTS, OURS]);
    assert_close(&pulse, &places(&server).await, &[5_000.0, 5_000.0]);
    let line = queue(&server).await;
    // None outlives another, and all outlive every waiter. Each PTTL reads the clock, so they may be 1 ms apart.
    let apart = "return redis.call('PTTL', KEYS[1]) - redis.call('PTTL', KEYS[2])";
    for other in [TIMEOUTS, OURS] {
        let question = ["EVAL", apart, "2", QUEUE, other];
        let apart: i64 = server.try_cli(&question).await.unwrap();
        assert!(
            apart.abs() <= 1 && server.pttl(QUEUE).await > 3_600_000,
            "{other}: {apart}"
        );
    }
    held.release().await.unwrap();
    let guard = granted(first).await;
    assert_eq!(guard.owner().to_string(), line[0]);
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    assert!(server.keys().await.is_empty());
    // Each release is also told on the lock's own channel, to those that wait without a place in the queue.
    let of_lock = String::from("redisson_lock__channel:{k}");
    let of_owner = |owner: &String| format!("{of_lock}:{owner}");
    let expected = [
        of_owner(&line[0]),
        of_lock.clone(),
        of_owner(&line[1]),
        of_lock.clone(),
        of_lock.clone(),
    ];
    for channel in expected {
        let message = timeout(SOON, messages.next()).await.unwrap().unwrap();
        assert_eq!(message.get_channel_name(), channel);
        assert_eq!(message.get_payload_bytes(), b"0");
    }
    assert!(
        timeout(ms(100), messages.next()).await.is_err(),
        "nobody else is told"
    );
}

#[tokio::test]
async fn next_waiter_is_told_if_those_before_it_leave_shortly_before_the_lease_ends() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for leaves in [true, false] {
        let held = client.fair_lock("k").acquire().lease(SOON).await.unwrap();
        let first = queued(&server, &client, 0).await;
        let second = queued(&server, &client, 1).await;
        let line = queue(&server).await;
        let mut messages = server.client().get_async_pubsub().await.unwrap();
        messages.psubscribe("*").await.unwrap();
        let mut messages = messages.into_on_message();
        server.cli(&["PEXPIRE", "k", "4900"]).await;
        if leaves {
            first.abort();
        } else {
            // It is dead, as the next attempt of the second one shows.
            server.cli(&["ZADD", OURS, "1", &line[0]]).await;
            server.cli(&["ZADD", TIMEOUTS, "1", &line[0]]).await;
        }
        let message = timeout(SOON, messages.next()).await.unwrap().unwrap();
        let told = format!("redisson_lock__channel:{{k}}:{}", line[1]);
        assert_eq!(message.get_channel_name(), told);
        first.abort();
        drop(held);
        granted(second).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn names_with_a_hash_tag_are_not_wrapped() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let lock = client.fair_lock("{a}:b");
    let _held = lock.acquire().await.unwrap();
    let _waiter = tokio::spawn(lock.acquire().into_future());
    let names = [
        "redisson_lock_queue:{a}:b",
        "redisson_lock_timeout:{a}:b",
        "{a}:b",
        "{a}:b:distlock_waiters",
    ];
    let names = names.map(String::from).to_vec();
    eventually_eq(SOON, "keys", names, || server.keys()).await;
}

#[tokio::test]
async fn keys_that_differ_in_braces_share_one_queue_as_in_redisson() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let (held, other) = (client.fair_lock("k"), client.fair_lock("{k}"));
    let guard = held.acquire().await.unwrap();
    let waiter = queued(&server, &client, 0).await;
    assert!(!other.is_locked().await.unwrap());
    assert!(other.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn commands_sent_twice_have_the_effect_of_one() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let tries = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    let (lease, waits) = (
        Duration::from_secs(30),
        tries.waiting(Duration::from_secs(5)),
    );
    let line = |numbers: &[u64]| -> Vec<String> {
        let owner = |number| format!("{}:{number}", Uuid::from_u128(7));
        numbers.iter().map(owner).collect()
    };
    for _ in 0..2 {
        assert_eq!(waits.attempt("k", 1, lease).await.unwrap(), Answer::Granted);
    }
    for number in [2, 3, 2, 3] {
        let held = waits.attempt("k", number, lease).await.unwrap();
        assert!(matches!(held, Answer::Held(Some(_))));
    }
    assert_eq!(queue(&server).await, line(&[2, 3]));
    assert_close(&pulse, &places(&server).await, &[5_000.0, 5_000.0]);
    for answer in [Answer::Freed, Answer::NotOurs] {
        assert_eq!(tries.withdraw("k", 1).await.unwrap(), answer);
    }
    for _ in 0..2 {
        assert_eq!(waits.attempt("k", 2, lease).await.unwrap(), Answer::Granted);
        assert_eq!(queue(&server).await, line(&[3]));
    }
    assert_eq!(
        server.hgetall("k").await.into_values().collect::<Vec<_>>(),
        ["1"]
    );
    for _ in 0..2 {
        assert_eq!(tries.withdraw("k", 3).await.unwrap(), Answer::NotOurs);
        assert_eq!(server.keys().await, ["k"]);
    }
}

#[tokio::test]
async fn place_behind_redissons_waiters_outlasts_what_they_take() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    // The first came long ago, so that more is taken than it shows.
    java_waits(&server, JAVA[0], 100_000.0).await;
    java_waits(&server, JAVA[1], 100_000.0 + REDISSONS).await;
    let ours = queued(&server, &client, 2).await;
    let behind = queued(&server, &client, 3).await;
    let most = 2.0 * REDISSONS + 5_000.0;
    let expected = [100_000.0, 100_000.0 + REDISSONS, most, most];
    assert_close(&pulse, &places(&server).await, &expected);
    held.release().await.unwrap();
    java_acquires(&server, JAVA[0]).await;
    server.cli(&["DEL", "k"]).await;
    java_acquires(&server, JAVA[1]).await;
    assert_close(&pulse, &places(&server).await, &[5_000.0, 5_000.0]);
    // Alive, by signs that no longer count on anybody before them.
    sleep(ms(4_000)).await;
    assert_close(&pulse, &places(&server).await, &[5_000.0, 5_000.0]);
    // Before the key is free: a sign of life of the first in line may take it.
    let line = queue(&server).await;
    server.cli(&["DEL", "k"]).await;
    let channel = format!("redisson_lock__channel:{{k}}:{}", line[0]);
    server.cli(&["PUBLISH", &channel, "0"]).await;
    let guard = granted(ours).await;
    assert_eq!(guard.owner().to_string(), line[0]);
    guard.release().await.unwrap();
    granted(behind).await.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn redissons_place_behind_ours_loses_nothing_by_us() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    let ours = queued(&server, &client, 0).await;
    let leaves = queued(&server, &client, 1).await;
    java_waits_behind(&server, JAVA[0], REDISSONS).await;
    leaves.abort();
    has_places(&server, 2).await;
    assert_close(
        &pulse,
        &places(&server).await,
        &[5_000.0, 5_000.0 + REDISSONS],
    );
    held.release().await.unwrap();
    let guard = granted(ours).await;
    assert_close(&pulse, &places(&server).await, &[REDISSONS]);
    let mut messages = server.client().get_async_pubsub().await.unwrap();
    let channel = format!("redisson_lock__channel:{{k}}:{}", JAVA[0]);
    messages.subscribe(&channel).await.unwrap();
    let mut messages = messages.into_on_message();
    guard.release().await.unwrap();
    let message = timeout(SOON, messages.next()).await.unwrap().unwrap();
    assert_eq!(message.get_payload_bytes(), b"0");
    // It is redisson's turn: we neither take the lock nor ask for it without a pause.
    let waiter = queued(&server, &client, 1).await;
    let (before, since) = (server.command_calls("evalsha").await, Instant::now());
    sleep(ms(1_000)).await;
    let asked = server.command_calls("evalsha").await - before;
    let most = 3 * since.elapsed().as_secs().max(1);
    assert!(!waiter.is_finished() && asked <= most, "{asked} times");
    assert!(client.fair_lock("k").try_acquire().await.unwrap().is_none());
    waiter.abort();
}

/// Each waiter of Redisson's is added behind one of ours, and the other way round, and the queue is never empty.
#[tokio::test]
async fn times_of_redissons_waiters_behind_ours_do_not_grow_with_each_round() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let wait = 60_000.0;
    let place = Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::Fair);
    let place = place.waiting(ms(600_000));
    let held = client.fair_lock("k").acquire().await.unwrap();
    java_waits(&server, JAVA[0], wait).await;
    drop(held);
    let mut most: f64 = 0.0;
    for round in 1..=8 {
        let answer = place.attempt("k", round, ms(30_000)).await.unwrap();
        assert!(!matches!(answer, Answer::Granted), "{answer:?}");
        java_waits_behind(&server, JAVA[1], wait).await;
        server.cli(&["DEL", "k"]).await;
        java_that_waited_acquires(&server, JAVA[0], wait).await;
        // Our waiter gives a sign while the other one has the lock.
        place.attempt("k", round, ms(30_000)).await.unwrap();
        server.cli(&["DEL", "k"]).await;
        let answer = place.attempt("k", round, ms(30_000)).await.unwrap();
        assert!(matches!(answer, Answer::Granted), "{answer:?}");
        let last = places(&server).await[0];
        most = most.max(last);
        // The one that is left is the first of the next round.
        server.cli(&["LSET", QUEUE, "0", JAVA[0]]).await;
        let score = format!("{:.0}", now() + last);
        server.cli(&["ZREM", TIMEOUTS, JAVA[1]]).await;
        server.cli(&["ZADD", TIMEOUTS, &score, JAVA[0]]).await;
    }
    assert!(most <= wait + 50.0, "{most}");
}

#[tokio::test]
async fn server_without_memory_still_lets_waiters_in() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    let first = queued(&server, &client, 0).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let second = queued(&server, &client, 1).await;
    held.release().await.unwrap();
    granted(first).await.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    assert!(client.fair_lock("k").force_release().await.is_ok());
}

/// Without waiters the lock looked like any other one.
#[tokio::test]
async fn redissons_waiter_that_came_after_the_look_is_told_of_the_force_release() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for is_fenced in [false, true] {
        let held = client.fair_lock("k").acquire().await.unwrap();
        if is_fenced {
            server.cli(&["SET", "redisson_lock_token:{k}", "7"]).await;
        }
        let seen = client.inspect("k").await.unwrap();
        java_waits(&server, JAVA[0], REDISSONS).await;
        let mut messages = server.client().get_async_pubsub().await.unwrap();
        let channel = format!("redisson_lock__channel:{{k}}:{}", JAVA[0]);
        messages.subscribe(&channel).await.unwrap();
        let mut messages = messages.into_on_message();
        let freed = client.force_release(&seen).await.unwrap();
        assert_eq!(freed, ForceRelease::Freed, "{seen:?}");
        let message = timeout(SOON, messages.next()).await.expect("a message");
        assert_eq!(message.unwrap().get_payload_bytes(), b"0");
        drop(held);
        server.cli(&["DEL", QUEUE, TIMEOUTS]).await;
    }
}

/// They would make the other lock fail. A lock of Redisson may end like the permits of a semaphore, and so may ours.
#[tokio::test]
async fn names_of_what_another_lock_has_beside_it_are_refused() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for key in [
        "redisson_lock_timeout:{vic}",
        "redisson_lock_queue:{vic}",
        "redisson_lock_token:{vic}",
        "redisson_unlock_latch:{vic}:0123456789abcdef0123456789abcdef",
        "{vic}:distlock_waiters",
    ] {
        let error = client.lock(key).try_acquire().await.unwrap_err();
        assert!(
            error.is_permanent() && error.to_string().contains(key),
            "{error}"
        );
        assert!(client.semaphore(key).try_set_permits(1).await.is_err());
    }
    assert_eq!(server.keys().await, Vec::<String>::new());
    for key in [
        "{vic}:timeout",
        "{vic}:request",
        "redisson_lock_timeout:vic",
    ] {
        let guard = client.lock(key).try_acquire().await.unwrap();
        guard.expect("free").release().await.unwrap();
    }
    let guard = client.fair_lock("vic").acquire().await.unwrap();
    guard.release().await.unwrap();
}
