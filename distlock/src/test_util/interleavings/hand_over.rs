//! Hand-overs inside of one client.

use std::time::Duration;

use futures_util::future::poll_immediate;

use super::{
    Inside, NONE, all, clients, explore, left_alone, nothing_is_left, spawn, visit, visit_and_drop,
    yield_now,
};
use crate::backend::memory::MemoryServer;

#[test]
fn waiters_that_join_and_leave_beside_a_hand_over_pass_it_on() {
    explore("join and leave against hand-over", NONE, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let lock = client.lock("key");
        let inside = Inside::default();
        let first = lock.acquire().await.unwrap();
        let leaves = spawn(visit(lock.acquire(), inside.clone()));
        let others = [
            spawn(visit(lock.acquire(), inside.clone())),
            spawn(visit_and_drop(lock.acquire(), inside.clone())),
        ];
        let ends = spawn(async move { first.release().await.unwrap() });
        yield_now().await;
        leaves.abort();
        let _left = leaves.await;
        all(others).await;
        all([ends]).await;
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn hold_that_is_handed_to_a_waiter_that_is_dropped_goes_to_the_next_one() {
    explore(
        "hand-over against the drop of its receiver",
        NONE,
        || async {
            let server = MemoryServer::new();
            let [client] = clients(&server);
            let lock = client.lock("key");
            let first = lock.acquire().await.unwrap();
            let receiver = spawn(lock.acquire().into_future());
            let next = spawn(visit(lock.acquire(), Inside::default()));
            let drops = spawn(async move { drop(first) });
            receiver.abort();
            // It has the hold, or it was dropped.
            if let Ok(guard) = receiver.await {
                drop(guard.unwrap());
            }
            all([drops, next]).await;
            nothing_is_left(&client, &server).await;
        },
    );
}

#[test]
fn hold_that_is_dropped_while_nobody_waits_is_released_or_taken_back() {
    explore("drop against a newcomer", NONE, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let lock = client.lock("key");
        let inside = Inside::default();
        let tasks = [0; 3].map(|_| spawn(visit_and_drop(lock.acquire(), inside.clone())));
        all(tasks).await;
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn waiter_that_is_left_alone_lets_the_next_one_pass_and_comes_back() {
    const TWO_LOOKS: Duration = Duration::from_secs(3);
    explore(
        "hand-over against a waiter left alone",
        TWO_LOOKS,
        || async {
            let server = MemoryServer::new();
            let [client] = clients(&server);
            let lock = client.lock("key");
            let inside = Inside::default();
            let first = lock.acquire().await.unwrap();
            let mut left = left_alone(lock.acquire());
            assert!(poll_immediate(&mut left).await.is_none());
            let next = [0; 2].map(|_| spawn(visit(lock.acquire(), inside.clone())));
            let ends = spawn(async move { first.release().await.unwrap() });
            all(next).await;
            all([ends]).await;
            left.await.unwrap().release().await.unwrap();
            nothing_is_left(&client, &server).await;
        },
    );
}

#[test]
fn tries_beside_a_release_answer_busy_or_hold() {
    explore("try against release", NONE, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let lock = client.lock("key");
        let inside = Inside::default();
        let tries = [0; 2].map(|_| {
            let lock = lock.clone();
            let inside = inside.clone();
            spawn(async move {
                if let Some(guard) = lock.try_acquire().await.unwrap() {
                    inside.write().await;
                    guard.release().await.unwrap();
                }
            })
        });
        let waits = spawn(visit(lock.acquire(), inside));
        all(tries).await;
        all([waits]).await;
        nothing_is_left(&client, &server).await;
    });
}
