//! A server that loses answers, forgets data, or is away for a while.

use std::time::Duration;

use super::holds::ended_or_lost;
use super::{Inside, TURNS, all, clients, explore, nothing_is_left, spawn, visit, yield_now};
use crate::backend::memory::MemoryServer;
use crate::sync::time::sleep;

/// Less than the time between two renewals, and than the pauses after which somebody looks unasked.
const SOON: Duration = Duration::from_secs(3);

/// Two commands in a row may go without an answer.
const TWO_TIMEOUTS: Duration = Duration::from_secs(10);

/// Longer than the time after which a waiter looks at its key, and shorter than a lease.
const A_LOOK: Duration = Duration::from_secs(8);

#[test]
fn late_release_leaves_the_next_owners_alone() {
    explore("late release against the next owners", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two, three] = clients(&server);
        let inside = Inside::default();
        let guard = one.lock("key").acquire().await.unwrap();
        // Its client does not know.
        server.forget("key");
        let releases = spawn(async move { ended_or_lost(guard.release().await) });
        let next = [&two, &three, &two]
            .map(|client| spawn(visit(client.lock("key").acquire(), inside.clone())));
        all([releases]).await;
        all(next).await;
        two.close(TURNS).await.unwrap();
        three.close(TURNS).await.unwrap();
        nothing_is_left(&one, &server).await;
    });
}

#[test]
fn command_whose_answer_is_lost_is_sent_again_and_counts_once() {
    explore("lost answers", TWO_TIMEOUTS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let inside = Inside::default();
        let tasks = [&one, &two, &one]
            .map(|client| spawn(visit(client.lock("key").acquire(), inside.clone())));
        let tries = {
            let (lock, inside) = (two.lock("key"), inside.clone());
            spawn(async move {
                // If its answer is lost, it fails and is ended in the background.
                if let Ok(Some(guard)) = lock.try_acquire().await {
                    inside.write().await;
                    guard.release().await.unwrap();
                }
            })
        };
        server.lose_next(1);
        yield_now().await;
        server.lose_next(1);
        all(tasks).await;
        all([tries]).await;
        one.close(TWO_TIMEOUTS).await.unwrap();
        two.close(TWO_TIMEOUTS).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn change_of_a_number_whose_answer_is_lost_is_made_once() {
    explore("lost answers of numbers", TWO_TIMEOUTS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let semaphore = one.semaphore("permits");
        assert!(semaphore.try_set_permits(2).await.unwrap());
        let latch = one.count_down_latch("latch");
        assert!(latch.try_set_count(5).await.unwrap());
        let permits = [&one, &two].map(|client| {
            let acquire = client.semaphore("permits").acquire();
            spawn(async move {
                let permit = acquire.await.unwrap();
                yield_now().await;
                permit.release().await.unwrap();
            })
        });
        let counts = [&one, &two].map(|client| {
            let latch = client.count_down_latch("latch");
            spawn(async move {
                let _left = latch.count_down().await.unwrap();
            })
        });
        server.lose_next(1);
        yield_now().await;
        server.lose_next(1);
        all(permits).await;
        all(counts).await;
        // Nobody sent the commands whose answers would have been lost, perhaps.
        while semaphore.available_permits().await.is_err() {}
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
        assert_eq!(latch.count().await.unwrap(), 3);
    });
}

#[test]
fn hold_outlasts_an_outage_that_is_shorter_than_its_lease() {
    const A_LEASE: Duration = Duration::from_secs(31);
    const SHORTER: Duration = Duration::from_secs(25);
    explore("outage against a lease", A_LEASE, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let guard = one.lock("key").acquire().await.unwrap();
        let section = guard.section();
        server.take_down();
        sleep(SHORTER).await;
        let waits = {
            let acquire = two.lock("key").acquire();
            spawn(async move {
                let guard = acquire.await.unwrap();
                assert!(!section.is_held(), "two owners hold the key");
                guard.release().await.unwrap();
            })
        };
        server.bring_up();
        sleep(SOON).await;
        guard.release().await.unwrap();
        all([waits]).await;
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn key_that_nobody_releases_is_free_when_its_lease_ends() {
    const LEASE: Duration = Duration::from_secs(5);
    explore("end of a lease", A_LOOK, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let guard = one.lock("key").acquire().lease(LEASE).await.unwrap();
        drop(guard.detach().unwrap());
        let inside = Inside::default();
        let waits =
            [&one, &two].map(|client| spawn(visit(client.lock("key").acquire(), inside.clone())));
        all(waits).await;
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn holder_and_waiter_are_told_soon_when_their_server_comes_back_without_the_hold() {
    explore("restart against hold and wait", SOON, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let guard = one.lock("key").acquire().await.unwrap();
        let lost = spawn(guard.lost());
        let waits = spawn(visit(two.lock("key").acquire(), Inside::default()));
        let restarts = {
            let server = server.clone();
            spawn(async move {
                yield_now().await;
                server.take_down();
                server.forget("key");
                yield_now().await;
                server.bring_up();
            })
        };
        all([restarts, lost, waits]).await;
        ended_or_lost(guard.release().await);
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn waiter_tries_again_when_its_server_comes_back() {
    explore("restart against wait", SOON, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        // Nobody holds it who could be told of the loss.
        let guard = one.lock("key").acquire().await.unwrap();
        drop(guard.detach().unwrap());
        let waits = spawn(visit(two.lock("key").acquire(), Inside::default()));
        server.until_waiting("key", 1).await;
        server.take_down();
        server.forget("key");
        yield_now().await;
        server.bring_up();
        all([waits]).await;
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn hold_that_is_handed_over_after_the_server_lost_it_is_told_soon() {
    explore("hand-over against loss", SOON, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let lock = one.lock("key");
        let first = lock.acquire().await.unwrap();
        let next = {
            let (lock, server) = (lock.clone(), server.clone());
            spawn(async move {
                let guard = lock.acquire().await.unwrap();
                sleep(Duration::from_secs(1)).await;
                let is_there = server.locked_keys() == ["key"];
                assert!(is_there || !guard.is_held(), "it is held and not there");
                ended_or_lost(guard.release().await);
            })
        };
        let ends = {
            let server = server.clone();
            spawn(async move {
                server.forget("key");
                drop(first);
            })
        };
        all([ends, next]).await;
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn waiter_gets_a_key_that_was_deleted_without_a_message() {
    explore("look against a silent end", A_LOOK, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let guard = one.lock("key").acquire().await.unwrap();
        let waits = [0; 2].map(|_| spawn(visit(two.lock("key").acquire(), Inside::default())));
        server.until_waiting("key", 1).await;
        server.forget("key");
        all(waits).await;
        ended_or_lost(guard.release().await);
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn renewal_that_fails_is_tried_again_and_the_hold_is_kept() {
    const TWO_LEASES: Duration = Duration::from_secs(61);
    explore("renewal against a fault", TWO_LEASES, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let kept = one.lock("kept").acquire().await.unwrap();
        let others = [0; 2].map(|_| {
            let lock = two.lock("key");
            spawn(async move {
                // Behind the renewal.
                sleep(Duration::from_secs(14)).await;
                visit(lock.acquire(), Inside::default()).await;
            })
        });
        sleep(Duration::from_secs(8)).await;
        server.fail_next(2);
        server.lose_next(1);
        sleep(Duration::from_secs(52)).await;
        assert!(kept.is_held());
        all(others).await;
        kept.release().await.unwrap();
        one.close(SOON).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}
