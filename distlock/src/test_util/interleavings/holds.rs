//! What happens to a hold while its guards end.

use std::time::Duration;

use super::{Inside, NONE, all, clients, explore, nothing_is_left, spawn, visit, yield_now};
use crate::backend::memory::MemoryServer;
use crate::error::Error;
use crate::sync::time::sleep;

/// The default lease, three times.
const THREE_LEASES: Duration = Duration::from_secs(90);

pub(super) fn ended_or_lost(release: Result<(), Error>) {
    match release {
        Ok(()) | Err(Error::Lost { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn hold_with_several_guards_is_released_with_the_last_of_them() {
    explore("release against re-entry", NONE, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let lock = client.lock("key");
        let inside = Inside::default();
        let outer = lock.acquire().await.unwrap();
        let inner = outer.reenter().unwrap();
        let of_outer = spawn(async move { outer.release().await.unwrap() });
        let within = inside.clone();
        let of_inner = spawn(async move {
            let innermost = inner.reenter().unwrap();
            drop(inner);
            within.write().await;
            innermost.release().await.unwrap();
        });
        let waits = spawn(visit(lock.acquire(), inside));
        all([of_outer, of_inner, waits]).await;
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn hold_that_the_server_forgets_is_lost_or_released_and_the_next_waiter_gets_the_key() {
    explore("release against loss", THREE_LEASES, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let lock = client.lock("key");
        let guard = lock.acquire().await.unwrap();
        let lost = guard.lost();
        let sees_the_loss = spawn(lost);
        let waits = {
            let acquire = lock.acquire();
            spawn(async move { ended_or_lost(acquire.await.unwrap().release().await) })
        };
        let forgets = {
            let server = server.clone();
            spawn(async move { server.forget("key") })
        };
        yield_now().await;
        ended_or_lost(guard.release().await);
        all([forgets, waits, sees_the_loss]).await;
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn hold_that_is_kept_is_renewed_while_others_begin_and_end() {
    explore(
        "watchdog's agenda against arm and end",
        THREE_LEASES,
        || async {
            let server = MemoryServer::new();
            let [client] = clients(&server);
            let kept = client.lock("kept").acquire().await.unwrap();
            let others = ["one", "two"].map(|key| {
                let lock = client.lock(key);
                spawn(async move {
                    drop(lock.acquire().await.unwrap());
                    sleep(Duration::from_secs(5)).await;
                    let guard = lock.acquire().await.unwrap();
                    sleep(Duration::from_secs(25)).await;
                    guard.release().await.unwrap();
                })
            });
            sleep(Duration::from_secs(61)).await;
            assert!(kept.is_held());
            all(others).await;
            kept.release().await.unwrap();
            nothing_is_left(&client, &server).await;
        },
    );
}

#[test]
fn close_beside_holds_and_waiters_leaves_nothing_behind() {
    explore("release against close", NONE, || async {
        let server = MemoryServer::new();
        let [client, other] = clients(&server);
        let lock = client.lock("key");
        let tasks = [0; 2].map(|_| {
            let lock = lock.clone();
            spawn(async move {
                match lock.acquire().await {
                    Ok(guard) => {
                        yield_now().await;
                        drop(guard);
                    }
                    Err(Error::Closed { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            })
        });
        client.close(Duration::from_secs(1)).await.unwrap();
        all(tasks).await;
        nothing_is_left(&client, &server).await;
        other
            .lock("key")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    });
}
