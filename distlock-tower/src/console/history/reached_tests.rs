//! Holds between looks that took long, that did not go to all keys, or that could not read a key.

use std::time::Duration;

use distlock::{Client, MemoryServer};

use super::tests::{Watched, unreadable};
use super::*;

const LEASE: Duration = Duration::from_secs(3);

/// A server, a history of it that begins with a look at 1,000, and another client.
async fn watched() -> (Watched, Client) {
    let server = MemoryServer::new();
    let mut watched = Watched::new(&server);
    watched.look(1_000).await;
    (watched, Client::builder().in_memory(&server).unwrap())
}

fn holder<'a>(watched: &'a Watched, key: &str) -> &'a Holder {
    &watched.locks[key].holders[0]
}

#[tokio::test(start_paused = true)]
async fn hold_to_whose_key_a_look_did_not_go_goes_on_and_is_shown_again() {
    let (mut watched, other) = watched().await;
    let lock = other.lock("a");
    let guard = lock.acquire().lease(20 * LEASE).await.unwrap();
    watched.look(3_000).await;
    for now in [5_000, 7_000, 50_000] {
        watched.look_at_nothing(now);
        assert!(watched.locks.is_empty());
    }
    // As long as the looks say, so that the lock is the same as before.
    tokio::time::advance(Duration::from_secs(49)).await;
    watched.look(52_000).await;
    let seen = holder(&watched, "a");
    assert_eq!((seen.since, seen.is_since_exact), (3_000, true));
    // A page has not had it, so it has to get it.
    assert_eq!(watched.locks["a"].changed, watched.look);
    assert!(watched.history.past("a").is_empty());
    guard.release().await.unwrap();
    watched.look(54_000).await;
    let past = &watched.history.past("a")[0];
    assert_eq!((past.end, past.is_exact), (End::Released, true));
    assert_eq!((past.since, past.last_seen), (3_000, 52_000));
}

#[tokio::test(start_paused = true)]
async fn hold_that_ended_while_no_look_went_to_its_key_ended_in_an_unknown_way() {
    for (last, end, is_exact) in [
        (7_000, End::LeaseRanOut, true),
        (11_000, End::Unknown, false),
    ] {
        let (mut watched, other) = watched().await;
        let guard = other.lock("a").acquire().lease(LEASE).await.unwrap();
        watched.look(3_000).await;
        tokio::time::advance(2 * LEASE).await;
        drop(guard);
        watched.look_at_nothing(5_000);
        watched.look(last).await;
        let past = &watched.history.past("a")[0];
        assert_eq!((past.end, past.is_exact), (end, is_exact), "{last}");
        assert_eq!((past.last_seen, past.until), (3_000, last));
        let lost = usize::from(is_exact);
        assert_eq!(watched.history.ran_out(last).count(), lost);
    }
}

#[tokio::test(start_paused = true)]
async fn key_that_is_new_after_a_look_that_did_not_go_to_all_keys_is_held_since_an_unknown_time() {
    let (mut watched, other) = watched().await;
    let _guard = other.lock("a").acquire().await.unwrap();
    watched.look_at_nothing(3_000);
    watched.look(5_000).await;
    assert!(!holder(&watched, "a").is_since_exact);
    let _guard = other.lock("b").acquire().await.unwrap();
    watched.look(7_000).await;
    assert!(holder(&watched, "b").is_since_exact);
}

#[tokio::test(start_paused = true)]
async fn looks_that_take_long_tell_no_exact_times_and_no_loss() {
    let (mut watched, other) = watched().await;
    let guard = other.lock("a").acquire().lease(LEASE).await.unwrap();
    watched.slow_look(3_000, 10_000).await;
    let seen = holder(&watched, "a");
    assert_eq!((seen.since, seen.is_since_exact), (3_000, false));
    // It may have been renewed until then.
    tokio::time::advance(2 * LEASE).await;
    drop(guard);
    watched.slow_look(11_000, 18_000).await;
    let past = &watched.history.past("a")[0];
    assert_eq!((past.end, past.is_exact), (End::Unknown, false));
    // The earlier look has gone to the key at its beginning.
    assert_eq!((past.last_seen, past.until), (3_000, 18_000));
    assert_eq!(watched.history.ran_out(18_000).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn hold_that_is_gone_before_the_end_of_its_lease_was_released_also_if_nobody_watched() {
    let (mut watched, other) = watched().await;
    let lock = other.lock("a");
    let guard = lock.acquire().lease(20 * LEASE).await.unwrap();
    watched.look(3_000).await;
    guard.release().await.unwrap();
    watched.look(33_000).await;
    let past = &watched.history.past("a")[0];
    assert_eq!((past.end, past.is_exact), (End::Released, false));
}

#[tokio::test(start_paused = true)]
async fn hold_of_a_key_that_could_not_be_read_for_long_has_no_exact_times_and_is_not_lost() {
    let (mut watched, other) = watched().await;
    let guard = other.lock("a").acquire().lease(LEASE).await.unwrap();
    watched.look(3_000).await;
    let _new = other.lock("new").acquire().await.unwrap();
    tokio::time::advance(2 * LEASE).await;
    drop(guard);
    let _next = other.lock("a").acquire().await.unwrap();
    for now in [5_000, 7_000, 9_000, 11_000] {
        watched.look_through(now, unreadable).await;
    }
    watched.look(13_000).await;
    for key in ["a", "new"] {
        assert!(!holder(&watched, key).is_since_exact, "{key}");
    }
    let past = &watched.history.past("a")[0];
    assert_eq!((past.end, past.last_seen), (End::Unknown, 3_000));
}

#[tokio::test(start_paused = true)]
async fn who_freed_a_lock_by_force_is_known_also_if_the_next_look_cannot_read_the_key() {
    let (mut watched, other) = watched().await;
    let guard = other.lock("a").acquire().await.unwrap();
    watched.look(3_000).await;
    let seen = std::sync::Arc::clone(&watched.locks["a"]);
    watched.history.forced(3_500, &seen, Some(&seen), "ann");
    guard.release().await.unwrap();
    let _next = other.lock("a").acquire().await.unwrap();
    watched.look_through(5_000, unreadable).await;
    watched.look(7_000).await;
    let past = &watched.history.past("a")[0];
    assert_eq!(
        (past.end, past.by.as_deref()),
        (End::ForceReleased, Some("ann"))
    );
}
