//! Keys, values and messages of count-down latches as Redisson has them.

use std::time::Duration;

use distlock::Client;
use distlock_tests::{Pulse, RedisServer};

use crate::redis::data::semaphore::{Heard, listened};
use crate::redis::{client, ms};

/// Far less than a waiter sleeps that no message wakes.
const AT_ONCE: Duration = ms(3_000);

async fn text(server: &RedisServer, key: &str) -> Option<String> {
    server.try_cli(&["GET", key]).await.unwrap()
}

#[tokio::test]
async fn latch_of_two_says_1_nothing_and_0_and_goes() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    for (key, channel) in [
        ("jobs", "redisson_countdownlatch__channel__{jobs}"),
        (
            "{cart}:jobs",
            "redisson_countdownlatch__channel__{{cart}:jobs}",
        ),
    ] {
        let mut heard = Heard::on(&server, channel).await;
        let latch = client.count_down_latch(key);
        for _ in 0..2 {
            // Without a latch, nothing happens and no message is sent.
            assert_eq!(latch.count_down().await.unwrap(), 0);
            assert_eq!(text(&server, key).await, None);
            assert!(latch.try_set_count(2).await.unwrap());
            assert_eq!(text(&server, key).await.unwrap(), "2");
            assert_eq!(server.pttl(key).await, -1);
            assert_eq!(heard.next().await, "1");
            assert_eq!(latch.count_down().await.unwrap(), 1);
            assert_eq!(text(&server, key).await.unwrap(), "1");
            assert_eq!(latch.count_down().await.unwrap(), 0);
            assert_eq!(text(&server, key).await, None);
            assert_eq!(heard.next().await, "0");
        }
        latch.try_set_count(2).await.unwrap();
        assert_eq!(heard.next().await, "1");
        assert!(latch.delete().await.unwrap() && !latch.delete().await.unwrap());
        // Redisson says 1 here, and its waiters stay.
        assert_eq!(heard.next().await, "0");
    }
    let mut openings = 0;
    for mark in server.keys().await {
        let is_opening = mark.ends_with(":distlock_opened");
        let longest = if is_opening { 12_000 } else { 35_000 };
        let left = server.pttl(&mark).await;
        assert!(
            (is_opening || mark.ends_with(":request")) && (0..=longest).contains(&left),
            "{mark} {left}"
        );
        openings += u32::from(is_opening);
    }
    // One for each of the latches, of its deletion.
    assert_eq!(openings, 2);
}

#[tokio::test]
async fn waiter_is_told_when_the_server_restarts_without_the_latch() {
    let mut server = RedisServer::start().await;
    let client = client(&server).await;
    let latch = client.count_down_latch("jobs");
    latch.try_set_count(2).await.unwrap();
    let waiting = tokio::spawn(latch.wait().into_future());
    listened(&server, "redisson_countdownlatch__channel__{jobs}", 1).await;
    server.restart().await;
    let told = tokio::time::timeout(6 * AT_ONCE, waiting).await;
    let error = told.expect("told").unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
}

#[tokio::test]
async fn redissons_latch_is_waited_for_and_its_message_wakes_us() {
    let pulse = Pulse::start();
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let channel = "redisson_countdownlatch__channel__{jobs}";
    server.cli(&["SET", "jobs", "1"]).await;
    let latch = client.count_down_latch("jobs");
    assert_eq!(latch.count().await.unwrap(), 1);
    let waiting: Vec<_> = (0..50)
        .map(|_| tokio::spawn(latch.wait().into_future()))
        .collect();
    // One subscription for all.
    listened(&server, channel, 1).await;
    tokio::time::sleep(ms(100)).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    server.cli(&["DEL", "jobs"]).await;
    server.cli(&["PUBLISH", channel, "0"]).await;
    for waiting in waiting {
        let waited = pulse
            .timeout(AT_ONCE, waiting)
            .await
            .expect("woken by the message");
        waited.unwrap().unwrap();
    }
    // A latch that Redisson set to 0 keeps nobody, and the next count removes it silently.
    server.cli(&["SET", "jobs", "0"]).await;
    latch.wait().await.unwrap();
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(text(&server, "jobs").await, None);
}
