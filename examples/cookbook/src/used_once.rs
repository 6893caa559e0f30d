//! Semaphores and latches that are used once, and clean up after themselves.
//!
//! A semaphore for each customer and a latch for each import would stay in the server for ever. `expire_after` has each of them
//! go so long after its last use. It also ends the wait for a latch whose counting processes have died.

use std::time::Duration;

use distlock::{Client, CountDownLatch, Error, ExpirableSemaphore};

/// Longer than any time between two parts of an import.
const IMPORT_STAYS: Duration = Duration::from_secs(15 * 60);

/// Longer than a customer's uploads are apart. Permits that are held are renewed, and keep the semaphore.
const UPLOADS_STAY: Duration = Duration::from_secs(15 * 60);

/// Uploads something, at most two at a time for one customer.
///
/// # Errors
/// Those of the lock server.
pub async fn upload(
    locks: &Client,
    customer: u64,
    upload: impl Future<Output = ()>,
) -> Result<(), Error> {
    let uploads = uploads(locks, customer);
    // Before each use: it does nothing if the customer has a semaphore, and makes one if it is gone.
    uploads.try_set_permits(2).await?;
    uploads.acquire().run(upload).await
}

fn uploads(locks: &Client, customer: u64) -> ExpirableSemaphore {
    let key = format!("uploads:customer:{customer}");
    locks.expirable_semaphore(key).expire_after(UPLOADS_STAY)
}

fn parts_left(locks: &Client, import: &str) -> CountDownLatch {
    let key = format!("import:{import}:parts");
    locks.count_down_latch(key).expire_after(IMPORT_STAYS)
}

/// Begins an import of so many parts. `false`: an earlier run of it is under way, or has died a short time ago.
///
/// # Errors
/// Those of the lock server.
pub async fn begin_import(locks: &Client, import: &str, parts: u32) -> Result<bool, Error> {
    parts_left(locks, import).try_set_count(parts).await
}

/// A worker is done with a part.
///
/// # Errors
/// Those of the lock server.
pub async fn part_is_done(locks: &Client, import: &str) -> Result<(), Error> {
    parts_left(locks, import).count_down().await?;
    Ok(())
}

/// Waits until all parts are done. `false`: no part was done for [`IMPORT_STAYS`], and the import can begin again.
///
/// # Errors
/// Those of the lock server.
pub async fn import_is_done(locks: &Client, import: &str) -> Result<bool, Error> {
    match parts_left(locks, import).wait().await {
        Ok(()) => Ok(true),
        Err(error) if error.is_lost() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use std::sync::Arc;

    use distlock::Primitive;
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    async fn is_there(locks: &Client, key: &str) -> bool {
        locks.inspect(key).await.unwrap().primitive != Primitive::Nothing
    }

    #[tokio::test(start_paused = true)]
    async fn third_upload_of_a_customer_waits_and_the_semaphore_goes_after_the_last_one() {
        let locks = Client::in_memory();
        let (go_on, mut running) = (Arc::new(Semaphore::new(0)), JoinSet::new());
        for _ in 0..3 {
            let (locks, go_on) = (locks.clone(), go_on.clone());
            running.spawn(async move {
                let ends = async { go_on.acquire().await.unwrap().forget() };
                upload(&locks, 7, ends).await.unwrap();
            });
        }
        // Longer than the semaphore stays: its permits are renewed.
        tokio::time::sleep(2 * UPLOADS_STAY).await;
        assert_eq!(uploads(&locks, 7).acquired_permits().await.unwrap(), 2);
        go_on.add_permits(3);
        assert_eq!(running.join_all().await.len(), 3);
        tokio::time::sleep(UPLOADS_STAY / 2).await;
        assert!(is_there(&locks, "uploads:customer:7").await);
        tokio::time::sleep(UPLOADS_STAY / 2).await;
        assert!(!is_there(&locks, "uploads:customer:7").await);
    }

    #[tokio::test(start_paused = true)]
    async fn import_whose_workers_died_is_told_and_begins_again() {
        let locks = Client::in_memory();
        assert!(begin_import(&locks, "may", 3).await.unwrap());
        part_is_done(&locks, "may").await.unwrap();
        // Its workers die here. The next run comes soon.
        assert!(!begin_import(&locks, "may", 3).await.unwrap());
        let told = timeout(2 * IMPORT_STAYS, import_is_done(&locks, "may")).await;
        assert!(!told.expect("told").unwrap());
        assert!(begin_import(&locks, "may", 3).await.unwrap());
        let waiting = async { import_is_done(&locks, "may").await.unwrap() };
        let parts = async {
            for _ in 0..3 {
                tokio::time::sleep(IMPORT_STAYS / 2).await;
                part_is_done(&locks, "may").await.unwrap();
            }
        };
        assert!(tokio::join!(waiting, parts).0);
        assert!(!is_there(&locks, "import:may:parts").await);
    }
}
