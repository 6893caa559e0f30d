//! Semaphores and latches.

use super::{TURNS, all, clients, explore, spawn, yield_now};
use crate::backend::memory::MemoryServer;

#[test]
fn permit_that_is_given_back_goes_to_a_waiter() {
    explore("permits", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        assert!(one.semaphore("key").try_set_permits(1).await.unwrap());
        let tasks = [&one, &two, &two].map(|client| {
            let acquire = client.semaphore("key").acquire();
            spawn(async move {
                let permit = acquire.await.unwrap();
                yield_now().await;
                permit.release().await.unwrap();
            })
        });
        all(tasks).await;
        assert_eq!(one.semaphore("key").available_permits().await.unwrap(), 1);
    });
}

#[test]
fn last_count_down_opens_the_latch_for_all() {
    explore("count-down against wait", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        assert!(one.count_down_latch("key").try_set_count(2).await.unwrap());
        let waits = [&one, &two].map(|client| {
            let wait = client.count_down_latch("key").wait();
            spawn(async move { wait.await.unwrap() })
        });
        let counts = [&one, &two].map(|client| {
            let latch = client.count_down_latch("key");
            spawn(async move {
                let _left = latch.count_down().await.unwrap();
            })
        });
        all(counts).await;
        all(waits).await;
    });
}
