//! A server that is down, that fails or loses commands, and that forgets.

use std::time::Duration;

use distlock::{Client, Error, MemoryServer};
use futures_util::future::poll_immediate;
use tokio::time::{Instant, advance, sleep, timeout};

use super::{replicas, secs};

#[tokio::test(start_paused = true)]
async fn acquisition_fails_while_the_server_is_down_and_is_granted_when_it_is_up_again() {
    let (server, client, _) = replicas();
    let lock = client.lock("k");
    server.take_down();
    server.take_down();
    let start = Instant::now();
    let at_once = lock.try_acquire().await.unwrap_err();
    assert!(at_once.is_unavailable() && start.elapsed() < secs(1));
    assert!(at_once.to_string().contains("taken down"), "{at_once}");
    let later = lock.acquire().await.unwrap_err();
    assert!(later.is_unavailable() && start.elapsed() >= secs(5));
    server.bring_up();
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiter_hears_of_a_server_that_goes_down_and_outlives_a_short_outage() {
    let (server, client, other) = replicas();
    let held = other.lock("k").acquire().await.unwrap();
    let waiting = || {
        let lock = client.lock("k");
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    };
    let told = waiting();
    sleep(secs(1)).await;
    let start = Instant::now();
    server.take_down();
    assert!(told.await.unwrap().unwrap_err().is_unavailable());
    assert!(start.elapsed() < secs(6), "{:?}", start.elapsed());

    server.bring_up();
    let patient = waiting();
    sleep(secs(1)).await;
    server.take_down();
    sleep(secs(2)).await;
    server.bring_up();
    held.release().await.unwrap();
    timeout(secs(1), patient).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn hold_outlives_an_outage_and_is_renewed_when_the_server_is_up_again() {
    let (server, client, _) = replicas();
    let guard = client.lock("k").acquire().await.unwrap();
    server.take_down();
    sleep(secs(25)).await;
    server.bring_up();
    // A renewal that has just failed is tried again after a pause of a second.
    sleep(Duration::from_millis(1_010)).await;
    assert!(guard.is_held());
    let left = client.lock("k").remaining_lease().await.unwrap().unwrap();
    assert!(left > secs(28), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn hold_is_lost_when_the_server_is_down_for_a_lease_and_others_get_the_key() {
    let (server, client, other) = replicas();
    let guard = client.lock("k").acquire().await.unwrap();
    server.take_down();
    timeout(secs(31), guard.lost()).await.unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    server.bring_up();
    assert!(other.lock("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn release_that_failed_for_a_long_outage_is_sent_once_it_is_over() {
    let (server, client, other) = replicas();
    let lease = secs(24 * 3_600);
    for is_granted in [true, false] {
        let mut acquiring = Box::pin(client.lock("k").acquire().lease(lease).into_future());
        if is_granted {
            let guard = acquiring.await.unwrap();
            server.take_down();
            drop(guard);
        } else {
            // It is granted, and nobody hears of it.
            server.lose_next(1);
            assert!(poll_immediate(&mut acquiring).await.is_none());
            server.take_down();
            drop(acquiring);
        }
        sleep(secs(600)).await;
        server.bring_up();
        // The first try after the outage may meet a server that reads its data.
        server.fail_next(1);
        sleep(secs(3)).await;
        let guard = other.lock("k").try_acquire().await.unwrap();
        guard.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_restarts_without_its_data_is_found_out_at_once() {
    let (server, client, _) = replicas();
    let guard = client.lock("k").acquire().await.unwrap();
    server.take_down();
    server.forget_all();
    server.bring_up();
    timeout(secs(1), guard.lost()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn server_that_has_forgotten_all_still_knows_which_clients_are_connected() {
    let server = MemoryServer::new();
    let client = Client::builder().name("stock").in_memory(&server).unwrap();
    server.forget_all();
    let guard = client.lock("k").acquire().await.unwrap();
    let report = client.inspect("k").await.unwrap();
    let holder = report.holders[0].client.as_ref();
    assert_eq!(holder.map(|client| &*client.name), Some("stock"));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_command_is_not_carried_out_and_a_wait_tries_again() {
    let (server, client, _) = replicas();
    let lock = client.lock("k");
    server.fail_next(1);
    assert!(lock.try_acquire().await.unwrap_err().is_unavailable());
    assert!(!lock.is_locked().await.unwrap());
    server.fail_next(3);
    let guard = lock.acquire().wait(secs(5)).await.unwrap();
    assert!(lock.is_locked().await.unwrap());
    server.fail_next(1);
    guard.release().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn command_whose_answer_is_lost_is_carried_out_once() {
    let (server, client, other) = replicas();
    let lock = client.lock("k");
    server.lose_next(1);
    let start = Instant::now();
    let answered = lock.clone();
    let answered = tokio::spawn(async move { answered.try_acquire().await.map(drop) });
    sleep(secs(1)).await;
    assert!(other.lock("k").is_locked().await.unwrap());
    assert!(answered.await.unwrap().unwrap_err().is_unavailable());
    assert_eq!(start.elapsed(), secs(2));
    // What it was granted is released in the background.
    let guard = timeout(secs(1), lock.acquire()).await.unwrap().unwrap();
    server.lose_next(1);
    guard.release().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());

    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(3).await.unwrap();
    server.lose_next(1);
    semaphore.add_permits(2).await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn planned_commands_come_in_their_order_and_a_server_that_is_down_uses_none_up() {
    let (server, client, _) = replicas();
    let lock = client.lock("k");
    server.lose_next(1);
    server.fail_next(1);
    server.take_down();
    assert!(lock.is_locked().await.is_err());
    server.bring_up();
    let start = Instant::now();
    assert!(lock.is_locked().await.is_err());
    assert_eq!(start.elapsed(), secs(2));
    assert!(lock.is_locked().await.is_err());
    assert_eq!(start.elapsed(), secs(2));
    assert!(!lock.is_locked().await.unwrap());
}

/// What is under the key `k`, in each kind.
async fn fill(client: &Client) -> Result<(), Error> {
    client.semaphore("s").try_set_permits(3).await?;
    client.expirable_semaphore("e").try_set_permits(3).await?;
    client.count_down_latch("l").try_set_count(3).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_key_is_forgotten_whatever_it_is_and_no_other() {
    let (server, client, other) = replicas();
    fill(&client).await.unwrap();
    let kept = client.lock("kept").acquire().await.unwrap();
    let lock = client.lock("k").acquire().await.unwrap();
    let reader = client.rw_lock("rw").read().acquire().await.unwrap();
    let permit = client.expirable_semaphore("e").acquire().await.unwrap();
    let fair = client.fair_lock("f").acquire().await.unwrap();
    let next = other.fair_lock("f");
    let next = tokio::spawn(async move { next.acquire().await });
    let writer = other.rw_lock("rw").write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    sleep(secs(1)).await;
    for key in ["k", "rw", "f", "s", "e", "l", "never used"] {
        server.forget(key);
    }
    // The turn of the waiting writer is forgotten, too.
    let another = client.rw_lock("rw").read().try_acquire().await.unwrap();
    another.unwrap().release().await.unwrap();
    assert!(lock.release().await.unwrap_err().is_lost());
    assert!(reader.release().await.unwrap_err().is_lost());
    assert!(fair.release().await.unwrap_err().is_lost());
    assert!(permit.release().await.unwrap_err().is_lost());
    // Waiters look again within some seconds.
    drop(timeout(secs(6), next).await.unwrap().unwrap().unwrap());
    drop(timeout(secs(6), writer).await.unwrap().unwrap().unwrap());
    assert_eq!(client.semaphore("s").available_permits().await.unwrap(), 0);
    assert_eq!(client.count_down_latch("l").count().await.unwrap(), 0);
    assert!(kept.is_held());
    kept.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn forgotten_hold_is_found_lost_at_its_next_renewal() {
    let (server, client, other) = replicas();
    let work = client.lock("k").acquire().run(std::future::pending::<()>());
    let start = Instant::now();
    let operator = async {
        sleep(secs(1)).await;
        server.forget("k");
        assert!(other.lock("k").try_acquire().await.unwrap().is_some());
    };
    let (worked, ()) = tokio::join!(work, operator);
    assert!(worked.unwrap_err().is_lost());
    assert!(start.elapsed() <= secs(11), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn key_with_a_prefix_is_forgotten_by_its_name_in_the_server() {
    let server = MemoryServer::new();
    let builder = Client::builder().key_prefix("shop:");
    let client = builder.in_memory(&server).unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    server.forget("k");
    assert!(client.lock("k").is_locked().await.unwrap());
    server.forget("shop:k");
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn process_that_stops_past_its_lease_finds_the_loss_before_any_further_code_of_its_scope() {
    let (_server, client, other) = replicas();
    let mut has_gone_on = false;
    let work = client.lock("k").acquire().run(async {
        // Nothing of this process runs, and no lease is renewed.
        advance(secs(31)).await;
        has_gone_on = true;
    });
    assert!(work.await.unwrap_err().is_lost());
    assert!(!has_gone_on);
    assert!(other.lock("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn lock_whose_key_begins_with_a_forgotten_key_as_its_hash_tag_is_kept() {
    let (server, client, _) = replicas();
    let kept = client.lock("{cart:1}:items").acquire().await.unwrap();
    let forgotten = client.lock("cart:1").acquire().await.unwrap();
    server.forget("cart:1");
    assert!(forgotten.release().await.unwrap_err().is_lost());
    kept.release().await.unwrap();
}
