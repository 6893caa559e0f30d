//! Ids, and the lock server in memory, which is copied with the process.

use std::time::Duration;

use distlock::{Client, MemoryServer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::copy::{Side, fork};
use crate::{Listed, is_left_alone, runtime};

pub(crate) const TESTS: &[Listed] = &[
    (
        "clients_made_before_and_after_the_fork_have_six_ids",
        clients_made_before_and_after_the_fork_have_six_ids,
    ),
    (
        "lock_in_memory_is_kept_by_the_original_and_ends_with_its_lease_in_the_copy",
        lock_in_memory_is_kept_by_the_original_and_ends_with_its_lease_in_the_copy,
    ),
];

/// The lease of the watchdog, which must not be over before the copy has asked for the lock.
const LEASE: Duration = Duration::from_secs(10);

fn clients_made_before_and_after_the_fork_have_six_ids() {
    let before = Client::in_memory();
    // Made now, or each of the two processes would make a generator of its own.
    let _generator = Uuid::new_v4();
    let side = fork();
    let ids = || {
        let generated = Uuid::new_v4().to_string();
        let [one, two] = [(); 2].map(|()| Client::in_memory().id());
        let ids = [before.id(), one, two].map(|id| id.to_string());
        json!({ "ids": ids, "generated": generated })
    };
    match side {
        Side::Copy(original) => original.play(|original| original.tell(&ids())),
        Side::Original(copy) => runtime().block_on(async {
            let mut copy = copy.listen();
            let (here, there) = (ids(), copy.told().await);
            copy.ended().await;
            assert_eq!(
                here["generated"], there["generated"],
                "no generator was copied"
            );
            let of = |ids: &Value| ids["ids"].as_array().unwrap().clone();
            let mut all: Vec<String> = [of(&here), of(&there)]
                .concat()
                .iter()
                .map(Value::to_string)
                .collect();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 6, "{here} {there}");
        }),
    }
}

fn lock_in_memory_is_kept_by_the_original_and_ends_with_its_lease_in_the_copy() {
    let server = MemoryServer::new();
    let client = Client::builder().watchdog_timeout(LEASE);
    let client = client.in_memory(&server).unwrap();
    let (lock, id) = (client.lock("order:42"), client.id());
    let original_runtime = runtime();
    let guard = original_runtime
        .block_on(lock.acquire().into_future())
        .unwrap();
    match fork() {
        Side::Copy(original) => original.play(|original| {
            runtime().block_on(async {
                assert!(!guard.is_held());
                guard.lost().await;
                assert!(is_left_alone(&guard.release().await));
                assert!(lock.try_acquire().await.unwrap().is_none());
                // Nobody renews it here.
                let again = lock.acquire().wait(LEASE * 10).await.unwrap();
                assert!(again.owner().client_id() == client.id() && client.id() != id);
            });
            original.tell(&json!("acquired"));
        }),
        Side::Original(copy) => original_runtime.block_on(async {
            let mut copy = copy.listen();
            copy.told().await;
            copy.ended().await;
            assert!(guard.is_held() && client.id() == id);
            guard.release().await.unwrap();
        }),
    }
}
