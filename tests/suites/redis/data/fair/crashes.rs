//! Waiters that died: their places in the queue, and processes that are killed.

use std::time::Duration;

use distlock::test_util::{Kind, Verbs};
use distlock_tests::{Process, Pulse, RedisServer, eventually_eq};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{
    JAVA, OURS, QUEUE, REDISSONS, TIMEOUTS, granted, has_places, java_waits, java_waits_behind,
    now, places, queue, queued,
};
use crate::redis::{SOON, client, ms};

#[tokio::test]
async fn dead_heads_and_heads_without_a_time_are_dropped() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    java_waits(&server, JAVA[0], -1.0).await;
    server.cli(&["RPUSH", QUEUE, JAVA[1]]).await;
    let waiter = queued(&server, &client, 0).await;
    let line = queue(&server).await;
    server.cli(&["LPUSH", QUEUE, JAVA[1]]).await;
    held.release().await.unwrap();
    let guard = granted(waiter).await;
    assert_eq!(guard.owner().to_string(), line[0]);
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn waiter_that_others_took_for_dead_comes_back_before_them() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    let ours = queued(&server, &client, 0).await;
    let line = queue(&server).await;
    java_waits(&server, JAVA[0], 5_000.0 + REDISSONS).await;
    // By our own time it lives, also if the other client disagrees.
    server.cli(&["ZADD", TIMEOUTS, "1", &line[0]]).await;
    assert!(client.fair_lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(queue(&server).await[0], line[0]);
    // As Redisson drops a head that is dead.
    server.cli(&["LPOP", QUEUE]).await;
    server.cli(&["ZREM", TIMEOUTS, &line[0]]).await;
    let expected = [&line[0], JAVA[0]].map(str::to_owned).to_vec();
    eventually_eq(SOON, "the queue", expected, || queue(&server)).await;
    held.release().await.unwrap();
    granted(ours).await.release().await.unwrap();
}

/// Redisson, which removed it, has not moved the waiter behind it.
#[tokio::test]
async fn waiter_behind_one_that_others_take_for_dead_gets_no_more_time() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let lives = Verbs::new(&client, Uuid::from_u128(7))
        .of_kind(Kind::Fair)
        .waiting(ms(60_000));
    let held = client.fair_lock("k").acquire().await.unwrap();
    lives.attempt("k", 1, ms(30_000)).await.unwrap();
    java_waits_behind(&server, JAVA[0], REDISSONS).await;
    let line = queue(&server).await;
    for _ in 0..5 {
        server.cli(&["LPOP", QUEUE]).await;
        server.cli(&["ZREM", TIMEOUTS, &line[0]]).await;
        lives.attempt("k", 1, ms(30_000)).await.unwrap();
        assert_eq!(queue(&server).await, line);
    }
    let places = places(&server).await;
    assert!(places[1] <= 60_050.0 + REDISSONS, "{places:?}");
    drop(held);
}

#[tokio::test]
async fn client_that_finds_the_first_waiter_dead_wakes_the_next() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let dies = Verbs::new(&client, Uuid::from_u128(7))
        .of_kind(Kind::Fair)
        .waiting(ms(1));
    let held = client.fair_lock("k").acquire().await.unwrap();
    dies.attempt("k", 1, ms(30_000)).await.unwrap();
    java_waits(&server, JAVA[0], REDISSONS).await;
    server.cli(&["DEL", "k"]).await;
    let mut messages = server.client().get_async_pubsub().await.unwrap();
    let channel = format!("redisson_lock__channel:{{k}}:{}", JAVA[0]);
    messages.subscribe(&channel).await.unwrap();
    let mut messages = messages.into_on_message();
    eventually_eq(SOON, "the queue", vec![JAVA[0].to_owned()], || async {
        assert!(client.fair_lock("k").try_acquire().await.unwrap().is_none());
        queue(&server).await
    })
    .await;
    let message = timeout(SOON, messages.next()).await.unwrap().unwrap();
    assert_eq!(message.get_payload_bytes(), b"0");
    drop(held);
}

#[tokio::test]
async fn processes_go_in_order_and_killed_ones_delay_them_once() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let mut processes = Vec::new();
    for n in 0..8 {
        let args = [server.url(), String::from("30000")];
        let mut process = Process::start(env!("CARGO_BIN_EXE_holder"), args);
        process.send("fair k");
        match n {
            0 => drop(process.expect("granted", SOON).await),
            n => has_places(&server, n).await,
        }
        processes.push(process);
    }
    let killed = std::time::Instant::now();
    for n in [2, 3, 5] {
        processes[n].kill();
    }
    for n in [0, 1, 4, 6, 7] {
        if n > 0 {
            processes[n].expect("granted", SOON).await;
        }
        processes[n].ask("release", "released", SOON).await;
    }
    assert!(killed.elapsed() < pulse.stretch(Duration::from_secs(5) + SOON / 2));
    assert!(server.keys().await.is_empty(), "{:?}", server.keys().await);
}

// A waiter's last sign counts for 5 s, and the sign before it may be almost 2 s old.
in_real_time!(ms(3_000); killed_waiter_leaves_three_keys_for_a_day_and_the_next_attempt_removes_them);

async fn killed_waiter_leaves_three_keys_for_a_day_and_the_next_attempt_removes_them() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    let mut process = Process::start(env!("CARGO_BIN_EXE_holder"), [server.url()]);
    process.send("fair k");
    has_places(&server, 1).await;
    process.kill();
    // At once, so that this release still finds the dead waiter alive and leaves it its place.
    held.release().await.unwrap();
    assert_eq!(server.keys().await, [QUEUE, TIMEOUTS, OURS]);
    // Not sooner: Redisson does not move this time when its own waiter joins the queue, and hangs if the queue is gone.
    let day = 86_400_000;
    for key in [QUEUE, TIMEOUTS, OURS] {
        let ttl = server.pttl(key).await;
        assert!(
            (day - 3_600_000..=day + 5_000).contains(&ttl),
            "{key}: {ttl}"
        );
    }
    let guard = timeout(SOON, client.fair_lock("k").acquire().into_future());
    let guard = guard.await.expect("its place ends soon").unwrap();
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

/// It stands behind one of Redisson's, so Redisson counts it as alive for some minutes. Ours do not.
#[tokio::test]
async fn killed_waiter_behind_redissons_loses_its_place_as_soon_as_any_other() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let dies = Verbs::new(&client, Uuid::from_u128(7))
        .of_kind(Kind::Fair)
        .waiting(ms(200));
    let held = client.fair_lock("k").acquire().await.unwrap();
    java_waits(&server, JAVA[0], 30_000.0).await;
    dies.attempt("k", 1, ms(30_000)).await.unwrap();
    assert!(places(&server).await[1] > 200_000.0);
    // As Redisson does when the thread gives up.
    let dead = queue(&server).await.remove(1);
    server.cli(&["ZINCRBY", TIMEOUTS, "-30000", &dead]).await;
    server.cli(&["ZREM", TIMEOUTS, JAVA[0]]).await;
    server.cli(&["LREM", QUEUE, "0", JAVA[0]]).await;
    // Nobody asks until its place has ended.
    sleep(ms(300)).await;
    held.release().await.unwrap();
    let guard = timeout(SOON, client.fair_lock("k").acquire().into_future());
    let guard = guard.await.expect("its place ends soon").unwrap();
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

/// Nobody looks until the times of both have ended. The dead one of ours must not give the one behind it its wait again.
#[tokio::test]
async fn redissons_waiter_that_died_with_ours_before_it_is_dropped_with_it() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let dies = Verbs::new(&client, Uuid::from_u128(7))
        .of_kind(Kind::Fair)
        .waiting(ms(5_000));
    for looks in ["a release", "an attempt", "the one that died withdraws"] {
        let held = client.fair_lock("k").acquire().await.unwrap();
        dies.attempt("k", 1, ms(30_000)).await.unwrap();
        java_waits_behind(&server, JAVA[0], 60_000.0).await;
        let dead = queue(&server).await.remove(0);
        let ago = |ms: f64| format!("{:.0}", now() - ms);
        for key in [OURS, TIMEOUTS] {
            server.cli(&["ZADD", key, &ago(70_000.0), &dead]).await;
        }
        let over = ago(10_000.0);
        server.cli(&["ZADD", TIMEOUTS, &over, JAVA[0]]).await;
        match looks {
            "a release" => held.release().await.unwrap(),
            "an attempt" => {
                server.cli(&["DEL", "k"]).await;
                drop(held);
            }
            _ => {
                dies.withdraw("k", 1).await.unwrap();
                held.release().await.unwrap();
            }
        }
        let guard = client.fair_lock("k").try_acquire().await.unwrap();
        let left = queue(&server).await;
        let guard = guard.unwrap_or_else(|| panic!("{looks}: {left:?} are in the way"));
        guard.release().await.unwrap();
        assert_eq!(server.keys().await, Vec::<String>::new(), "{looks}");
    }
}

/// Its time is not lengthened by what has passed since ours died.
#[tokio::test]
async fn redissons_waiter_behind_one_of_ours_that_died_keeps_its_own_end() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let dies = Verbs::new(&client, Uuid::from_u128(7))
        .of_kind(Kind::Fair)
        .waiting(ms(5_000));
    let held = client.fair_lock("k").acquire().await.unwrap();
    dies.attempt("k", 1, ms(30_000)).await.unwrap();
    java_waits_behind(&server, JAVA[0], 60_000.0).await;
    let dead = queue(&server).await.remove(0);
    let ago = format!("{:.0}", now() - 40_000.0);
    for key in [OURS, TIMEOUTS] {
        server.cli(&["ZADD", key, &ago, &dead]).await;
    }
    let soon = format!("{:.0}", now() + 20_000.0);
    server.cli(&["ZADD", TIMEOUTS, &soon, JAVA[0]]).await;
    held.release().await.unwrap();
    assert_eq!(queue(&server).await, [JAVA[0]]);
    let left = places(&server).await[0];
    assert!((0.0..=20_000.0).contains(&left), "{left}");
}

#[tokio::test]
async fn waiters_whose_list_alone_was_evicted_join_the_queue_again() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.fair_lock("k").acquire().await.unwrap();
    let first = queued(&server, &client, 0).await;
    let second = queued(&server, &client, 1).await;
    server.cli(&["DEL", QUEUE]).await;
    // One that comes then would be before them for as long as anybody waits.
    let third = tokio::spawn(client.fair_lock("k").acquire().into_future());
    has_places(&server, 3).await;
    held.release().await.unwrap();
    let guards = [first, second, third].map(async |waiter| {
        granted(waiter).await.release().await.unwrap();
    });
    futures_util::future::join_all(guards).await;
    assert!(server.keys().await.is_empty());
}
