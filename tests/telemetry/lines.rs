//! How many lines the log has of an outage, and of acquisitions that nobody polls.

use std::time::Duration;

use distlock::{Client, MemoryServer};
use futures_util::future::poll_immediate;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::Level;

use crate::spans::{collect, said, seen};

const MANY: usize = 20;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The number of warnings and errors about this key.
fn warnings(key: &str) -> usize {
    let seen = seen(key);
    seen.iter().filter(|one| one.level <= Level::WARN).count()
}

#[tokio::test(start_paused = true)]
async fn outage_of_ten_minutes_is_one_line_for_each_hold_and_none_for_a_waiter() {
    collect();
    let server = MemoryServer::new();
    let connect = || Client::builder().in_memory(&server).unwrap();
    let (client, other) = (connect(), connect());
    let keys = |word| (0..MANY).map(move |at| format!("outage {word} {at}."));
    let mut tasks = JoinSet::new();
    let mut theirs = Vec::new();
    for key in keys("held") {
        tasks.spawn(client.lock(key).acquire().run(std::future::pending::<()>()));
    }
    for key in keys("waited for") {
        theirs.push(other.lock(&key).acquire().await.unwrap());
        let lock = client.lock(key);
        tasks.spawn(async move {
            // As a service does, which is asked again and again.
            while lock.acquire().await.is_err() {}
            Ok(())
        });
    }
    for key in keys("held") {
        server.until_locked(&key).await;
    }
    server.take_down();
    sleep(secs(600)).await;
    let mut all = 0;
    // Those that are waited for are held by the other client.
    for key in keys("held").chain(keys("waited for")) {
        assert_eq!(said("hold lost", &key).len(), 1, "{:?}", seen(&key));
        all += warnings(&key);
    }
    // And those of each client whose renewals fail, every 5 s from a third of the lease to its end.
    let of_renewals = all - 2 * MANY;
    assert!((2..=10).contains(&of_renewals), "{of_renewals}");
    tasks.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn renewal_that_fails_several_times_is_one_warning_with_its_key() {
    collect();
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    let key = "renewed at last";
    let guard = client.lock(key).acquire().await.unwrap();
    server.fail_next(3);
    sleep(secs(60)).await;
    assert!(guard.is_held());
    assert_eq!(said("renewal failed", key).len(), 3);
    assert_eq!(warnings(key), 1, "{:?}", seen(key));
    // The next time it begins anew.
    server.fail_next(1);
    sleep(secs(20)).await;
    assert_eq!(warnings(key), 2, "{:?}", seen(key));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn release_that_is_not_answered_before_the_lease_has_ended_is_no_warning() {
    collect();
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    let key = "answered too late";
    let acquire = client.lock(key).acquire().lease(secs(1));
    let guard = acquire.await.unwrap();
    server.lose_next(1);
    drop(guard);
    sleep(secs(10)).await;
    assert_eq!(said("release given up", key).len(), 1);
    assert_eq!(warnings(key), 0, "{:?}", seen(key));
}

#[tokio::test(start_paused = true)]
async fn acquisitions_that_are_left_together_are_one_line_with_the_first_key_and_its_place_in_the_code()
 {
    collect();
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    server.lose_next(5);
    let mut left = Vec::new();
    for at in 0..5 {
        let lock = client.lock(format!("left acquisition {at}"));
        let mut acquisition = Box::pin(lock.acquire().into_future());
        assert!(poll_immediate(&mut acquisition).await.is_none());
        left.push(acquisition);
    }
    sleep(secs(5)).await;
    let message = "an acquisition is not polled any more";
    let lines = said(message, "left acquisition");
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.fields.0["more"], "4");
    assert!(line.fields.0["call_site"].contains("lines.rs"), "{line:?}");
}

#[tokio::test(start_paused = true)]
async fn first_waiters_that_are_left_together_are_one_line() {
    collect();
    let client = Client::in_memory();
    let mut left = Vec::new();
    let mut guards = Vec::new();
    let mut next = JoinSet::new();
    for at in 0..5 {
        let lock = client.lock(format!("left waiter {at}"));
        guards.push(lock.acquire().await.unwrap());
        let mut waiter = Box::pin(lock.acquire().into_future());
        assert!(poll_immediate(&mut waiter).await.is_none());
        left.push(waiter);
        next.spawn(lock.acquire().into_future());
    }
    // The others stand in line.
    sleep(Duration::from_millis(1)).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    while let Some(granted) = next.join_next().await {
        granted.unwrap().unwrap().release().await.unwrap();
    }
    let lines = said("the first waiter is not polled any more", "left waiter");
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.fields.0["more"], "4");
}
