//! A value that is computed once: the first replica computes it, and all others wait and read it.
//!
//! The others do not take turns, as they would if each acquired the lock: they wait until it is free, all at the same time. If the
//! first one crashes, the next one computes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use distlock_examples::{Failure, LockServer, check};
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Where the value is kept. A real service would use Redis, a database or a file.
#[derive(Clone, Default)]
struct Store {
    report: Arc<RwLock<Option<String>>>,
    computed: Arc<AtomicU32>,
}

impl Store {
    async fn read(&self) -> Option<String> {
        self.report.read().await.clone()
    }

    /// Takes long.
    async fn compute(&self) -> String {
        let times = self.computed.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(Duration::from_millis(200)).await;
        let report = format!("report, computed {times} time");
        *self.report.write().await = Some(report.clone());
        report
    }
}

/// The report, which is computed if there is none.
async fn report(locks: &Client, store: &Store) -> Result<String, Error> {
    let lock = locks.lock("report:may");
    loop {
        if let Some(report) = store.read().await {
            return Ok(report);
        }
        let Some(guard) = lock.try_acquire().await? else {
            // Somebody computes it. A thousand tasks that wait here are one waiter for the server.
            lock.until_free().wait(Duration::from_secs(30)).await?;
            continue;
        };
        // Read once more: it may have been computed since the look above.
        let report = match store.read().await {
            Some(report) => report,
            None => guard.scope(store.compute()).await?,
        };
        guard.release().await?;
        return Ok(report);
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let store = Store::default();
    let mut requests = JoinSet::new();
    for _ in 0..3 {
        let locks = server.client().await?;
        for _ in 0..100 {
            let (locks, store) = (locks.clone(), store.clone());
            requests.spawn(async move { report(&locks, &store).await });
        }
    }
    let mut answers = 0;
    while let Some(answer) = requests.join_next().await {
        check(answer??.contains("computed 1 time"), "one report for all")?;
        answers += 1;
    }
    let computed = store.computed.load(Ordering::Relaxed);
    check(computed == 1, "it was computed once")?;
    println!("{answers} requests of 3 replicas got the report, which was computed once");
    Ok(())
}
