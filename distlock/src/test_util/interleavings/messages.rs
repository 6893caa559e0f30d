//! Messages between the clients of one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    Inside, TURNS, all, clients, explore, nothing_is_left, spawn, visit, visit_and_drop, yield_now,
};
use crate::backend::memory::MemoryServer;
use crate::client::Client;

#[test]
fn release_that_another_client_waits_for_wakes_it() {
    explore("subscribe against message", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let inside = Inside::default();
        let tasks = [
            spawn(visit(one.lock("key").acquire(), inside.clone())),
            spawn(visit(two.lock("key").acquire(), inside.clone())),
            spawn(visit_and_drop(two.lock("key").acquire(), inside.clone())),
        ];
        all(tasks).await;
        one.close(TURNS).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn waiter_that_leaves_takes_no_message_from_another_client() {
    explore("unsubscribe against message", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two, three] = clients(&server);
        let first = one.lock("key").acquire().await.unwrap();
        let leaves = spawn(two.lock("key").acquire().into_future());
        let waits = spawn(visit(three.lock("key").acquire(), Inside::default()));
        let ends = spawn(async move { first.release().await.unwrap() });
        leaves.abort();
        if let Ok(guard) = leaves.await {
            drop(guard.unwrap());
        }
        all([ends, waits]).await;
        two.close(TURNS).await.unwrap();
        nothing_is_left(&three, &server).await;
    });
}

#[test]
fn waiter_that_comes_just_after_another_gave_up_hears_of_the_release() {
    explore("subscribe against unsubscribe", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let first = one.lock("key").acquire().await.unwrap();
        let leaves = spawn(two.lock("key").acquire().into_future());
        server.until_waiting("key", 1).await;
        yield_now().await;
        leaves.abort();
        let _left = leaves.await;
        let waits = spawn(visit(two.lock("key").acquire(), Inside::default()));
        server.until_waiting("key", 1).await;
        first.release().await.unwrap();
        all([waits]).await;
        one.close(TURNS).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn fair_waiters_of_two_clients_all_get_the_key() {
    explore("fair queue", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let inside = Inside::default();
        let tasks = [&one, &two, &one]
            .map(|client| spawn(visit(client.fair_lock("key").acquire(), inside.clone())));
        all(tasks).await;
        one.close(TURNS).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}

#[test]
fn fair_waiter_that_came_first_is_first() {
    explore("places in the fair queue", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two, three] = clients(&server);
        let first = one.fair_lock("key").acquire().await.unwrap();
        let turns = Arc::new(AtomicU32::new(0));
        let comes = |turn, client: &Client| {
            let acquire = client.fair_lock("key").acquire();
            let turns = Arc::clone(&turns);
            spawn(async move {
                let guard = acquire.await.unwrap();
                assert_eq!(turns.fetch_add(1, Ordering::SeqCst), turn);
                guard.release().await.unwrap();
            })
        };
        let earlier = comes(0, &two);
        server.until_waiting("key", 1).await;
        let later = comes(1, &three);
        first.release().await.unwrap();
        all([earlier, later]).await;
        two.close(TURNS).await.unwrap();
        nothing_is_left(&three, &server).await;
    });
}
