//! The start and the end of the tasks that a client runs in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{
    Inside, NONE, all, clients, explore, nothing_is_left, spawn, visit_and_drop, yield_now,
};
use crate::backend::memory::MemoryServer;
use crate::backend::{Attempt, Attempted, Target};
use crate::client::Client;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::session::PendingRelease;
use crate::sync::on_demand::OnDemandTask;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn release_that_is_dropped_while_the_releaser_starts_or_ends_is_carried_out() {
    explore("start and end of the releaser", NONE, || async {
        let server = MemoryServer::new();
        let [client, other] = clients(&server);
        let tasks = ["one", "two", "three"].map(|key| {
            let lock = client.lock(key);
            spawn(visit_and_drop(lock.acquire(), Inside::default()))
        });
        all(tasks).await;
        // Not closed before: these wake-ups have to come by themselves.
        for key in ["one", "two", "three"] {
            while other.lock(key).is_locked().await.unwrap() {
                yield_now().await;
            }
        }
        nothing_is_left(&client, &server).await;
    });
}

#[test]
fn client_whose_last_handle_is_dropped_releases_in_the_background() {
    explore("end of a client", NONE, || async {
        let server = MemoryServer::new();
        let client = Client::builder().in_memory(&server).unwrap();
        let tasks = ["one", "two"].map(|key| {
            let lock = client.lock(key);
            spawn(async move {
                let guard = lock.acquire().await.unwrap();
                drop(lock);
                yield_now().await;
                drop(guard);
            })
        });
        drop(client);
        all(tasks).await;
        while !server.locked_keys().is_empty() {
            yield_now().await;
        }
    });
}

#[test]
fn one_task_of_a_sort_runs_at_a_time_and_none_is_missing() {
    explore("tasks on demand", NONE, || async {
        let task = Arc::new(OnDemandTask::default());
        let running = Arc::new(AtomicU32::new(0));
        let tasks = [0; 3].map(|_| {
            let task = Arc::clone(&task);
            let running = Arc::clone(&running);
            spawn(async move {
                if let Some(run) = task.begin() {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                    yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(run);
                }
            })
        });
        all(tasks).await;
        assert!(!task.is_running() && task.begin().is_some());
    });
}

#[test]
fn release_that_comes_while_the_releaser_of_a_dropped_client_ends_is_sent() {
    explore("end of the releaser against a release", NONE, || async {
        let server = MemoryServer::new();
        let [client] = clients(&server);
        let session = Arc::clone(&client.registry().session);
        let resource = Resource {
            kind: Kind::Reentrant,
            key: Key::new("", "last").unwrap(),
        };
        let held = Target::of(&resource, session.owners.next());
        let attempt = Attempt::new(held.clone(), HOUR);
        let granted = session.backend.attempt(&attempt).await.unwrap();
        assert!(matches!(granted, Attempted::Granted { .. }));
        // From now on the releaser runs, and has nothing to do.
        drop(client.lock("first").acquire().await.unwrap());
        server.until_free("first").await;
        let until = session.now().after(HOUR);
        let comes = spawn(async move {
            session.release_later(PendingRelease::of_waiter(held, until));
        });
        drop(client);
        all([comes]).await;
        server.until_free("last").await;
    });
}
