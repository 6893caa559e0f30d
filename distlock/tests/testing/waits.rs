//! What is locked, who waits, and waiting for that without a sleep.

use std::time::Duration;

use distlock::{Client, Error, MemoryServer};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, timeout};

use super::{replicas, secs};

/// Acquires the key, and releases it at once.
fn waits(client: &Client, key: &str) -> JoinHandle<Result<(), Error>> {
    let lock = client.lock(key);
    tokio::spawn(async move { lock.acquire().await.map(drop) })
}

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(secs(600), future).await.expect("it ends")
}

#[tokio::test(start_paused = true)]
async fn waiters_of_all_clients_are_counted_in_the_order_in_which_they_came() {
    let (server, one, two) = replicas();
    let start = Instant::now();
    let guard = one.lock("k").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (at, client) in [&one, &two, &two, &one].into_iter().enumerate() {
        waiting.push(waits(client, "k"));
        soon(server.until_waiting("k", at + 1)).await;
    }
    let here = server.waiters("k");
    let clients: Vec<_> = here.iter().map(|waiter| waiter.client_id).collect();
    assert_eq!(clients, [one.id(), two.id(), two.id(), one.id()]);
    for waiter in &here {
        assert!(waiter.call_site.unwrap().file().ends_with("waits.rs"));
    }
    assert!(server.waiters("other").is_empty());
    // Nothing has slept.
    assert_eq!(start.elapsed(), Duration::ZERO);

    guard.release().await.unwrap();
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap();
    }
    soon(server.until_free("k")).await;
    assert!(server.waiters("k").is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiter_that_gives_up_or_is_dropped_does_not_wait_any_more() {
    let (server, one, two) = replicas();
    let _guard = one.lock("k").acquire().await.unwrap();
    let dropped = waits(&two, "k");
    soon(server.until_waiting("k", 1)).await;
    let lock = two.lock("k");
    let gives_up = tokio::spawn(async move { lock.acquire().wait(secs(3)).await });
    soon(server.until_waiting("k", 2)).await;
    dropped.abort();
    assert!(soon(dropped).await.unwrap_err().is_cancelled());
    assert_eq!(server.waiters("k").len(), 1);
    assert!(soon(gives_up).await.unwrap().unwrap_err().is_busy());
    assert!(server.waiters("k").is_empty());
}

#[tokio::test(start_paused = true)]
async fn key_that_is_released_right_after_somebody_waits_is_granted_at_once() {
    let (server, one, two) = replicas();
    for _ in 0..50 {
        let guard = one.lock("k").acquire().await.unwrap();
        let start = Instant::now();
        let next = waits(&two, "k");
        soon(server.until_waiting("k", 1)).await;
        guard.release().await.unwrap();
        soon(next).await.unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn key_is_locked_from_the_grant_to_the_release_or_to_the_end_of_its_lease() {
    let (server, one, _) = replicas();
    let locked = server.clone();
    let locked = tokio::spawn(async move { locked.until_locked("k").await });
    yield_now().await;
    assert!(!locked.is_finished());
    let guard = one.lock("k").acquire().await.unwrap();
    soon(locked).await.unwrap();
    assert_eq!(server.holders("k")[0].owner, guard.owner().to_string());

    let free = server.clone();
    let free = tokio::spawn(async move { free.until_free("k").await });
    yield_now().await;
    assert!(!free.is_finished());
    drop(guard);
    soon(free).await.unwrap();
    assert!(server.holders("k").is_empty());

    let start = Instant::now();
    let leased = one.lock("k").acquire().lease(secs(20)).await.unwrap();
    soon(server.until_free("k")).await;
    assert_eq!(start.elapsed(), secs(20));
    drop(leased);
}

#[tokio::test(start_paused = true)]
async fn forgotten_key_is_free_and_each_kind_has_its_holders() {
    let (server, one, _) = replicas();
    one.semaphore("semaphore").try_set_permits(3).await.unwrap();
    let expirable = one.expirable_semaphore("expirable");
    expirable.try_set_permits(3).await.unwrap();
    one.count_down_latch("latch")
        .try_set_count(3)
        .await
        .unwrap();
    assert!(server.locked_keys().is_empty(), "{server:?}");

    let fair = one.fair_lock("fair").acquire().await.unwrap();
    let rw = one.rw_lock("rw");
    let readers = [
        rw.read().acquire().await.unwrap(),
        rw.read().acquire().await.unwrap(),
    ];
    let permits = one.semaphore("semaphore").acquire_many(2).await.unwrap();
    let expiring = expirable.acquire_many(2).await.unwrap();
    let held = ["expirable", "fair", "rw", "semaphore"];
    assert_eq!(server.locked_keys(), held);
    let holders = held.map(|key| server.holders(key).len());
    assert_eq!(holders, [2, 1, 2, 1]);

    for key in held {
        let free = server.clone();
        let free = tokio::spawn(async move { free.until_free(key).await });
        yield_now().await;
        server.forget(key);
        soon(free).await.unwrap();
    }
    assert!(server.locked_keys().is_empty());
    drop((fair, readers, permits, expiring));
}

#[tokio::test(start_paused = true)]
async fn waiters_for_fair_locks_semaphores_and_latches_are_seen() {
    let (server, one, two) = replicas();
    let _fair = one.fair_lock("fair").acquire().await.unwrap();
    let latch = two.count_down_latch("latch");
    latch.try_set_count(1).await.unwrap();
    let (fair, semaphore) = (two.fair_lock("fair"), two.semaphore("semaphore"));
    semaphore.try_set_permits(0).await.ok();
    let waiting = latch.clone();
    let waiting = tokio::spawn(async move { waiting.wait().await });
    let _fair = tokio::spawn(async move { fair.acquire().await.map(drop) });
    let _semaphore = tokio::spawn(async move { semaphore.acquire().await.map(drop) });
    for key in ["fair", "semaphore", "latch"] {
        soon(server.until_waiting(key, 1)).await;
        assert_eq!(server.waiters(key).len(), 1);
    }
    assert_eq!(server.waiters("latch")[0].call_site, None);
    latch.count_down().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    assert!(server.waiters("latch").is_empty());
}

#[tokio::test(start_paused = true)]
async fn multi_lock_waits_for_the_key_that_is_held() {
    let (server, one, two) = replicas();
    let first = one.lock("a").acquire().await.unwrap();
    let _second = one.lock("b").acquire().await.unwrap();
    let both = two.multi_lock(["a", "b"]);
    let _both = tokio::spawn(async move { both.acquire().await.map(drop) });
    soon(server.until_waiting("a", 1)).await;
    first.release().await.unwrap();
    soon(server.until_waiting("b", 1)).await;
    assert!(server.waiters("a").is_empty());
}

#[tokio::test]
async fn server_is_watched_from_a_runtime_on_another_thread() {
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    let (seen, is_seen) = tokio::sync::oneshot::channel();
    let elsewhere = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            soon(server.until_locked("k")).await;
            seen.send(()).unwrap();
            soon(server.until_free("k")).await;
        });
    });
    let guard = client.lock("k").acquire().await.unwrap();
    is_seen.await.unwrap();
    guard.release().await.unwrap();
    tokio::task::spawn_blocking(|| elsewhere.join())
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn candidate_for_a_lead_that_another_one_has_is_seen() {
    let (server, one, two) = replicas();
    let campaign = |client: &Client| {
        let leader = client.leader("job");
        tokio::spawn(async move { leader.run(|_| std::future::pending::<()>()).await })
    };
    let leads = campaign(&one);
    soon(server.until_locked("job")).await;
    let _stands_by = campaign(&two);
    soon(server.until_waiting("job", 1)).await;
    let waiters = server.waiters("job");
    assert_eq!(waiters[0].client_id, two.id());
    leads.abort();
    tokio::time::sleep(secs(60)).await;
    let owner = &server.holders("job")[0].owner;
    assert!(owner.starts_with(&two.id().to_string()), "{owner}");
    assert!(server.waiters("job").is_empty());
}
