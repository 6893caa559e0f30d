//! What the log says of acquisitions that wait for a long time, for each other, or for themselves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_tests::log::{self, lines_with};
use tokio::join;
use tokio::time::{Instant, sleep, timeout};
use tracing::level_filters::LevelFilter;

use crate::conformance::stage::{Stage, refused};

/// A key that no other test has, and no other play of the same test. All tests of the process share one log, and a test finds its
/// own lines by its key.
fn logged_key(stage: &Stage, name: &str) -> String {
    log::collect(LevelFilter::WARN);
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let number = KEYS.fetch_add(1, Ordering::Relaxed);
    format!("{name} {number} on {}", stage.backend())
}

async fn is_told(stage: &Stage, words: &[&str], times: usize) {
    let told = async || lines_with(words) >= times;
    stage
        .eventually(&format!("{words:?}"), stage.lease(), told)
        .await;
}

async fn wait_that_lasts_long_is_told_with_its_holder_and_its_place_and_again_later(stage: &Stage) {
    let key = logged_key(stage, "long wait");
    let after = stage.part(10);
    let client = stage.client_with(|builder| builder.warn_after(after)).await;
    let other = stage.client().await;
    let held = other.lock(&key).acquire().await.unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|_| tokio::spawn(client.lock(&key).acquire().into_future()))
        .collect();
    let holder = held.owner().to_string();
    let place = "conformance/waiting/long_waits.rs:";
    let words = [
        key.as_str(),
        "still waiting",
        "waiters=20",
        &holder,
        place,
        "lease_left=",
    ];
    let start = Instant::now();
    is_told(stage, &words, 1).await;
    assert!(start.elapsed() + stage.part(100) >= after);
    // After as long again, and after twice as long from there.
    is_told(stage, &words, 3).await;
    assert!(start.elapsed() + stage.part(100) >= 4 * after);
    if stage.is_paused() {
        sleep(3 * after).await;
        assert_eq!(lines_with(&[&key]), 3);
    }
    held.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn wait_is_told_for_a_fair_lock_and_a_multi_lock_and_not_if_it_is_off(stage: &Stage) {
    let key = logged_key(stage, "kinds");
    let after = stage.part(20);
    let telling = stage.client_with(|builder| builder.warn_after(after)).await;
    let silent = stage
        .client_with(|builder| builder.warn_after(Duration::MAX))
        .await;
    let other = stage.client().await;
    let held = other.lock(&key).acquire().await.unwrap();
    let wait = |acquire: Acquire| timeout(stage.part(2), acquire.into_future());
    assert!(wait(silent.lock(&key).acquire()).await.is_err());
    assert_eq!(lines_with(&[&key]), 0);
    // The multi-lock waits for this one first, and only for a short time.
    let first = logged_key(stage, "first");
    let before = other.lock(&first).acquire().await.unwrap();
    let freed = async {
        sleep(after / 2).await;
        before.release().await.unwrap();
    };
    let (fair, multi) = (telling.fair_lock(&key), telling.multi_lock([&first, &key]));
    let words = [key.as_str(), "still waiting"];
    tokio::select! {
        () = is_told(stage, &words, 1) => {}
        _ = fair.acquire() => panic!("it is held"),
    }
    let told = async { join!(freed, is_told(stage, &words, 2)) };
    tokio::select! {
        _ = told => {}
        _ = multi.acquire() => panic!("it is held"),
    }
    if stage.is_paused() {
        assert_eq!(lines_with(&[&first]), 0);
    }
    held.release().await.unwrap();
}

async fn cycle_of_waits_is_told_when_it_closes_with_all_that_wait_in_it(stage: &Stage) {
    let (a, b) = (logged_key(stage, "cycle a"), logged_key(stage, "cycle b"));
    let client = stage.client().await;
    let nested = |client: &Client, outer: &str, inner: &str| {
        let inner = client.lock(inner).acquire().wait(stage.part(2));
        let outer = client.lock(outer).acquire();
        outer.run(async move {
            tokio::task::yield_now().await;
            inner.await.map(drop)
        })
    };
    // One after the other, they do not wait for each other.
    for (outer, inner) in [(&a, &b), (&b, &a)] {
        nested(&client, outer, inner).await.unwrap().unwrap();
    }
    // Nor if both take the keys in one order.
    let (one, other) = join!(nested(&client, &a, &b), nested(&client, &a, &b));
    one.unwrap().unwrap();
    other.unwrap().unwrap();
    assert_eq!(lines_with(&["possible deadlock", &a]), 0);
    let first = tokio::spawn(nested(&client, &a, &b));
    let second = tokio::spawn(nested(&client, &b, &a));
    let chains = [
        format!("waits for \\\"{b}\\\" inside \\\"{a}\\\""),
        format!("waits for \\\"{a}\\\" inside \\\"{b}\\\""),
    ];
    is_told(
        stage,
        &[
            "possible deadlock",
            &chains[0],
            &chains[1],
            "long_waits.rs:",
        ],
        1,
    )
    .await;
    assert!(!first.is_finished() && !second.is_finished());
    let ended = [
        first.await.unwrap().unwrap(),
        second.await.unwrap().unwrap(),
    ];
    assert!(ended.iter().any(|inner| inner.is_err()));
    assert_eq!(lines_with(&["possible deadlock", &a]), 1);
}

async fn wait_for_itself_is_told_in_a_task_and_in_a_body_and_across_kinds(stage: &Stage) {
    let key = logged_key(stage, "itself");
    let client = stage.client().await;
    let told = || lines_with(&[&key, "this task waits for a lock that it holds itself"]);
    let wait = |acquire: Acquire| timeout(stage.part(20), acquire.into_future());
    let held = client.lock(&key).acquire().await.unwrap();
    assert!(wait(client.lock(&key).acquire()).await.is_err());
    assert_eq!(told(), 1);
    assert!(wait(client.fair_lock(&key).acquire()).await.is_err());
    assert!(wait(client.spin_lock(&key).acquire()).await.is_err());
    assert!(
        wait(client.multi_lock([&key, "other"]).acquire())
            .await
            .is_err()
    );
    assert_eq!(told(), 4);
    // Another task waits for this one. A wait with a limit is logged too, once for its line.
    let another = tokio::spawn(client.lock(&key).acquire().into_future());
    for _ in 0..3 {
        let limited = client.lock(&key).acquire().wait(stage.part(20));
        assert!(refused(limited.await).is_busy());
    }
    assert_eq!(told(), 5);
    held.release().await.unwrap();
    another.await.unwrap().unwrap().release().await.unwrap();
    // Branches of one task that run in scopes wait for each other, and not for themselves.
    let (lock, nap) = (client.lock(&key), || sleep(stage.part(50)));
    let (one, other) = join!(lock.acquire().run(nap()), lock.acquire().run(nap()));
    one.and(other).unwrap();
    assert_eq!(told(), 5);
    let task = {
        let (client, key, time) = (client.clone(), key.clone(), stage.part(20));
        tokio::spawn(async move {
            let _held = client.rw_lock(&key).write().acquire().await.unwrap();
            let again = client.rw_lock(&key).read().acquire().into_future();
            assert!(timeout(time, again).await.is_err());
        })
    };
    task.await.unwrap();
    assert_eq!(told(), 6);
}

async fn wait_for_itself_is_told_beside_a_read_of_its_own_and_for_its_own_last_permit(
    stage: &Stage,
) {
    let key = logged_key(stage, "shared by itself");
    let client = stage.client().await;
    let ends = |guard: &str| {
        lines_with(&[
            &key,
            "this task waits for a lock that it holds itself",
            guard,
        ])
    };
    let limit = stage.part(50);
    // A write waits for a read of the same task, and a scope would refuse it.
    let lock = client.rw_lock(&key);
    let read = lock.read().acquire().await.unwrap();
    for _ in 0..2 {
        let write = lock.write().acquire().wait(limit);
        assert!(refused(write.await).is_busy());
    }
    assert_eq!(ends("end the guard first, because"), 1);
    // Another task may wait for the read.
    let other = tokio::spawn(lock.write().acquire().into_future());
    // A second read waits for that writer, which waits for the first read.
    stage
        .eventually("it waits", stage.lease(), async || {
            !client.snapshot().waits.is_empty()
        })
        .await;
    let again = lock.read().acquire().wait(limit);
    assert!(refused(again.await).is_busy());
    assert_eq!(ends("guard.scope(..)"), 1);
    assert_eq!(ends(""), 2);
    read.release().await.unwrap();
    other.await.unwrap().unwrap().release().await.unwrap();
    // Branches in scopes wait for each other.
    let branch = |time| lock.read().acquire().run(sleep(time));
    let (one, other) = join!(
        branch(stage.part(20)),
        lock.write().acquire().run(async {}).into_future()
    );
    one.and(other).unwrap();
    assert_eq!(ends(""), 2);

    let told = |key: &str| lines_with(&[key, "this task waits for permits of a semaphore"]);
    let pool = client.semaphore(&key);
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    for _ in 0..2 {
        let last = pool.acquire().wait(limit);
        assert!(refused(last.await).is_busy());
    }
    assert_eq!(told(&key), 1);
    // A guard that has ended is not waited for, and another task has its own.
    permit.release().await.unwrap();
    let elsewhere = tokio::spawn(pool.acquire().into_future()).await.unwrap();
    assert!(refused(pool.acquire().wait(limit).await).is_busy());
    elsewhere.unwrap().release().await.unwrap();
    // One that was dropped is on its way back.
    drop(pool.acquire().await.unwrap());
    pool.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(told(&key), 1);
    pool.delete().await.unwrap();
    // A permit with a lease, in whose scope the same is asked for.
    let leased = logged_key(stage, "leased by itself");
    let seats = client.expirable_semaphore(&leased);
    seats.try_set_permits(1).await.unwrap();
    let inner = || seats.acquire().wait(limit).into_future();
    let inside = seats.acquire().run(inner()).await.unwrap();
    assert!(refused(inside).is_busy());
    assert_eq!(told(&leased), 1);
    // Branches of one task that each run in their own wait for each other.
    let nap = || seats.acquire().run(sleep(limit));
    let (one, other) = join!(nap(), nap());
    one.and(other).unwrap();
    assert_eq!(told(&leased), 1);
    seats.delete().await.unwrap();
}

async fn guard_that_was_dropped_is_nothing_that_its_task_waits_for(stage: &Stage) {
    let key = logged_key(stage, "dropped by itself");
    let client = stage.client().await;
    let (plain, write) = (client.lock(&key), client.rw_lock(format!("{key} write")));
    for _ in 0..10 {
        // A hold with a fixed lease is not taken back: the next acquisition waits for the release.
        for acquire in [plain.acquire(), write.write().acquire()] {
            let leased = || acquire.clone().lease(stage.lease());
            drop(leased().await.unwrap());
            leased().await.unwrap().release().await.unwrap();
            let held = acquire.clone().await.unwrap();
            sleep(stage.part(1000)).await;
            drop(held);
            acquire.await.unwrap().release().await.unwrap();
        }
    }
    assert_eq!(lines_with(&[&key, "holds itself"]), 0);
}

async fn wait_for_permits_that_nobody_has_set_is_told_as_such(stage: &Stage) {
    let key = logged_key(stage, "unset");
    // It is logged once. Both wait by then, also on a busy machine.
    let after = stage.part(2);
    let client = stage.client_with(|builder| builder.warn_after(after)).await;
    let pool = client.semaphore(&key);
    let unset = ["WARN", &key, "has no permits yet", "waiters=2"];
    let waiting: Vec<_> = (0..2)
        .map(|_| tokio::spawn(pool.acquire().into_future()))
        .collect();
    is_told(stage, &unset, 1).await;
    assert_eq!(lines_with(&[&key, "still waiting for the key"]), 0);
    pool.try_set_permits(1).await.unwrap();
    // One of them has the permit now, and the other waits for that.
    is_told(stage, &[&key, "still waiting for the key"], 1).await;
    for waiting in waiting {
        waiting.abort();
    }
    pool.delete().await.unwrap();
}

/// In paused time alone: there all of them are due at the same time.
async fn of_waits_for_many_keys_the_longest_are_told_and_the_others_counted(stage: &Stage) {
    const KEYS: usize = 19;
    let name = logged_key(stage, "many");
    let key = |n: usize| format!("{name}:{n:02}");
    let after = stage.part(5);
    let client = stage.client_with(|builder| builder.warn_after(after)).await;
    let other = stage.client().await;
    let mut held = Vec::new();
    for n in 0..KEYS {
        held.push(other.lock(key(n)).acquire().await.unwrap());
    }
    let waiting: Vec<_> = (0..KEYS)
        .map(|n| tokio::spawn(client.lock(key(n)).acquire().into_future()))
        .collect();
    is_told(stage, &["still waiting for further keys", "keys=3"], 1).await;
    assert_eq!(lines_with(&[&name, "still waiting for the key"]), 16);
    for guard in held {
        guard.release().await.unwrap();
    }
    for waiter in waiting {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

on_every_backend![
    wait_for_permits_that_nobody_has_set_is_told_as_such,
    wait_that_lasts_long_is_told_with_its_holder_and_its_place_and_again_later,
    wait_is_told_for_a_fair_lock_and_a_multi_lock_and_not_if_it_is_off,
    cycle_of_waits_is_told_when_it_closes_with_all_that_wait_in_it,
    wait_for_itself_is_told_in_a_task_and_in_a_body_and_across_kinds,
    wait_for_itself_is_told_beside_a_read_of_its_own_and_for_its_own_last_permit,
    guard_that_was_dropped_is_nothing_that_its_task_waits_for,
];

mod many {
    use super::of_waits_for_many_keys_the_longest_are_told_and_the_others_counted;

    on_memory![of_waits_for_many_keys_the_longest_are_told_and_the_others_counted];
}
