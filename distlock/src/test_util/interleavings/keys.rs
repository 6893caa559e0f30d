//! Several keys, and readers beside writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Inside, TURNS, all, clients, explore, nothing_is_left, spawn, visit};
use crate::backend::memory::MemoryServer;

#[test]
fn several_keys_are_held_together_or_not_at_all() {
    explore("multi-lock against single keys", TURNS, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let a = Inside::default();
        let b = Inside::default();
        let both = |keys: [&str; 2]| {
            let acquire = client.multi_lock(keys).acquire();
            let a = a.clone();
            let b = b.clone();
            spawn(async move {
                let guard = acquire.await.unwrap();
                a.write().await;
                b.write().await;
                guard.release().await.unwrap();
            })
        };
        let tasks = [both(["a", "b"]), both(["b", "a"])];
        let single = [
            spawn(visit(client.lock("a").acquire(), a.clone())),
            spawn(visit(client.lock("b").acquire(), b.clone())),
        ];
        all(tasks).await;
        all(single).await;
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    explore("read turns", TURNS, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let lock = client.rw_lock("key");
        let inside = Inside::default();
        let readers = [0; 2].map(|_| {
            let acquire = lock.read().acquire();
            let inside = inside.clone();
            spawn(async move {
                let guard = acquire.await.unwrap();
                inside.read().await;
                guard.release().await.unwrap();
            })
        });
        let writers = [0; 2].map(|_| spawn(visit(lock.write().acquire(), inside.clone())));
        all(readers).await;
        all(writers).await;
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn fencing_tokens_grow_in_the_order_of_the_grants() {
    explore("fenced grants", TURNS, || async {
        let server = MemoryServer::new();
        let [one, two] = clients(&server);
        let seen = Arc::new(AtomicU64::new(0));
        let tasks = [&one, &two, &one].map(|client| {
            let acquire = client.fenced_lock("key").acquire();
            let seen = seen.clone();
            spawn(async move {
                let guard = acquire.await.unwrap();
                let before = seen.swap(guard.token(), Ordering::SeqCst);
                assert!(before < guard.token());
            })
        });
        all(tasks).await;
        one.close(TURNS).await.unwrap();
        nothing_is_left(&two, &server).await;
    });
}
