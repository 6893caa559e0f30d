//! The checks at the end of a run in memory: sums and leftovers.

use distlock::test_util::{Sizes, sizes, stored};
use tokio::time::{Instant, sleep};

use super::{BOUNDS, LEASE, MemoryRun};
use crate::history::{Operations, wrong_sum};
use distlock_tests::any_lock::{COUNT, LockKind, PERMITS};

impl MemoryRun {
    /// A semaphore that does not have all of its permits again, if there is one.
    pub(super) async fn wrong_sum(&self) -> Option<String> {
        match self.context.workload.lock_kind {
            LockKind::Latch => return self.wrong_counts().await,
            LockKind::Semaphore => {}
            _ => return None,
        }
        let late = Instant::now() + LEASE * 2;
        for key in &self.context.workload.keys {
            let semaphore = self.admin[0].semaphore(key.as_str());
            loop {
                let free = semaphore.available_permits().await.expect("no fault");
                if free == i64::from(PERMITS) {
                    break;
                }
                if Instant::now() > late {
                    return Some(format!("{key}: {free} permits of {PERMITS}"));
                }
                sleep(LEASE / 100).await;
            }
        }
        None
    }

    /// A latch whose count differs from what was answered, if there is one. All latches are deleted.
    async fn wrong_counts(&self) -> Option<String> {
        // An abandoned change may still arrive.
        sleep(LEASE).await;
        let operations = Operations::from_events(&self.history.events(), BOUNDS.lease);
        let mut wrong = None;
        for (key, ops) in operations.by_key() {
            let latch = self.admin[0].count_down_latch(key);
            let left = latch.count().await.expect("no fault");
            latch.delete().await.expect("no fault");
            let found = wrong_sum(&ops, COUNT.into(), left);
            wrong = wrong.or(found.map(|found| format!("{key}: {found}")));
        }
        wrong
    }

    /// Deletes semaphores, which no release deletes.
    async fn take_permits_away(&self) {
        let lock_kind = self.context.workload.lock_kind;
        if matches!(lock_kind, LockKind::Permit | LockKind::Semaphore) {
            for key in &self.context.workload.keys {
                let semaphore = lock_kind.lock_on(&self.admin, key);
                semaphore.force_release().await.expect("no fault");
            }
        }
    }

    /// What is left some time after the last operation, if there is anything.
    pub(super) async fn leftovers(&self) -> Option<String> {
        self.take_permits_away().await;
        // A request for a change is remembered as long as a copy of it may arrive.
        let quiet = Instant::now() + LEASE * 4;
        loop {
            let clients = self.client_sets.iter().flat_map(|program| program.iter());
            let sizes: Vec<Sizes> = clients.map(sizes).collect();
            let stored: Vec<_> = self.servers.iter().map(stored).collect();
            let empty = stored.iter().all(|stored| *stored == (0, 0));
            if empty && sizes.iter().all(|size| *size == Sizes::default()) {
                return None;
            }
            if Instant::now() > quiet {
                return Some(format!(
                    "left in the clients {sizes:?}, in the server {stored:?}"
                ));
            }
            sleep(LEASE / 100).await;
        }
    }
}
