//! Semaphores and latches that are used once, and clean up after themselves.
//!
//! A semaphore for each customer and a latch for each import would stay in the server for ever. `expire_after` has each of them
//! go so long after its last use. It also ends the waits that are under way for a latch whose counting processes have died.
//!
//! A latch wakes those who wait, and is no record: a wait that begins before the latch is set, or after it has gone, completes at
//! once. Which parts are done is therefore written to the database. Each run of an import has a number, which is in the key of
//! its latch. A worker that comes late does not count down the latch of the next run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, CountDownLatch, Error, ExpirableSemaphore};
use tokio::sync::Mutex;

/// Longer than any time between two parts of an import.
const IMPORT_STAYS: Duration = Duration::from_secs(15 * 60);

/// Longer than a customer's uploads are apart. Permits that are held are renewed, and keep the semaphore.
const UPLOADS_STAY: Duration = Duration::from_secs(15 * 60);

/// How long a request waits, also for uploads that hang.
const WAIT: Duration = Duration::from_secs(10);

/// Uploads something, at most two at a time for one customer.
///
/// # Errors
/// Those of the lock server, and [`Error::Timeout`] after [`WAIT`].
pub async fn upload(
    locks: &Client,
    customer: u64,
    upload: impl Future<Output = ()>,
) -> Result<(), Error> {
    let uploads = uploads(locks, customer);
    // Before each use: it does nothing if the customer has a semaphore, and makes one if it is gone.
    uploads.try_set_permits(2).await?;
    uploads.acquire().wait(WAIT).run(upload).await
}

fn uploads(locks: &Client, customer: u64) -> ExpirableSemaphore {
    let key = format!("uploads:customer:{customer}");
    locks.expirable_semaphore(key).expire_after(UPLOADS_STAY)
}

/// A run of an import.
#[derive(Clone, Debug)]
pub struct Run {
    import: String,
    number: usize,
}

/// The runs of all imports, as a table of the database has them. A real import writes a part and its row in one transaction.
#[derive(Clone, Debug, Default)]
pub struct Runs(Arc<Mutex<Vec<Row>>>);

#[derive(Debug)]
struct Row {
    import: String,
    parts: u32,
    done: HashSet<u32>,
}

impl Runs {
    async fn add(&self, import: &str, parts: u32) -> Run {
        let mut rows = self.0.lock().await;
        rows.push(Row {
            import: import.to_owned(),
            parts,
            done: HashSet::new(),
        });
        Run {
            import: import.to_owned(),
            number: rows.len() - 1,
        }
    }

    async fn latest(&self, import: &str) -> Option<Run> {
        let rows = self.0.lock().await;
        let number = rows.iter().rposition(|row| row.import == import)?;
        Some(Run {
            import: import.to_owned(),
            number,
        })
    }

    /// Returns whether the part was not done before.
    async fn add_part(&self, run: &Run, part: u32) -> bool {
        self.0.lock().await[run.number].done.insert(part)
    }

    async fn has_all_parts(&self, run: &Run) -> bool {
        let row = &self.0.lock().await[run.number];
        (0..row.parts).all(|part| row.done.contains(&part))
    }
}

fn parts_left(locks: &Client, run: &Run) -> CountDownLatch {
    let key = format!("import:{}:{}:parts", run.import, run.number);
    locks.count_down_latch(key).expire_after(IMPORT_STAYS)
}

/// Begins a run of an import of so many parts. `None`: an earlier run of it is under way, or has died a short time ago.
///
/// # Errors
/// Those of the lock server, and [`Error::Timeout`] after [`WAIT`].
pub async fn begin_import(
    locks: &Client,
    runs: &Runs,
    import: &str,
    parts: u32,
) -> Result<Option<Run>, Error> {
    // Two replicas that begin at once would both find no run.
    let lock = locks.lock(format!("import:{import}"));
    let beginning = lock.acquire().wait(WAIT);
    let begin = async {
        if let Some(earlier) = runs.latest(import).await {
            if parts_left(locks, &earlier).count().await? > 0 {
                return Ok(None);
            }
        }
        let run = runs.add(import, parts).await;
        parts_left(locks, &run).try_set_count(parts).await?;
        Ok(Some(run))
    };
    beginning.try_run(begin).await
}

/// A worker is done with a part of a run. The parts have the numbers from 0.
///
/// # Errors
/// Those of the lock server. The part is done all the same, and those who wait learn of it when the latch has gone.
pub async fn part_is_done(locks: &Client, runs: &Runs, run: &Run, part: u32) -> Result<(), Error> {
    // The record comes first: those whom the latch wakes look at it. A part that two workers have done counts once.
    if runs.add_part(run, part).await {
        // What is left is no proof: it is 0 as well if the latch has gone.
        parts_left(locks, run).count_down().await?;
    }
    Ok(())
}

/// Waits until all parts of a run are done. `false`: the latch has gone and parts are missing, as when no part was done for
/// [`IMPORT_STAYS`]. The import can begin again.
///
/// # Errors
/// Those of the lock server, with [`Error::Timeout`] if the client has a default wait: the caller asks again.
pub async fn import_is_done(locks: &Client, runs: &Runs, run: &Run) -> Result<bool, Error> {
    match parts_left(locks, run).wait().await {
        Err(error) if !error.is_lost() => Err(error),
        // The end of the wait does not say how the latch has gone, and a worker may have died between its record and its count.
        _ => Ok(runs.has_all_parts(run).await),
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
    async fn third_upload_of_a_customer_waits_for_a_time_and_the_semaphore_goes_after_the_last_one()
    {
        let locks = Client::in_memory();
        let (go_on, mut running) = (Arc::new(Semaphore::new(0)), JoinSet::new());
        for _ in 0..2 {
            let (locks, go_on) = (locks.clone(), go_on.clone());
            running.spawn(async move {
                let ends = async { go_on.acquire().await.unwrap().forget() };
                upload(&locks, 7, ends).await.unwrap();
            });
        }
        // Longer than the semaphore stays: its permits are renewed.
        tokio::time::sleep(2 * UPLOADS_STAY).await;
        assert_eq!(uploads(&locks, 7).acquired_permits().await.unwrap(), 2);
        let third = timeout(2 * WAIT, upload(&locks, 7, async {})).await;
        assert!(third.expect("its wait ends").unwrap_err().is_busy());
        let (third, ()) = tokio::join!(upload(&locks, 7, async {}), async {
            tokio::time::sleep(WAIT / 2).await;
            go_on.add_permits(2);
        });
        third.unwrap();
        assert_eq!(running.join_all().await.len(), 2);
        tokio::time::sleep(UPLOADS_STAY / 2).await;
        assert!(is_there(&locks, "uploads:customer:7").await);
        tokio::time::sleep(UPLOADS_STAY / 2).await;
        assert!(!is_there(&locks, "uploads:customer:7").await);
    }

    /// Begins an import of three parts, which nothing keeps from beginning.
    async fn begin(locks: &Client, runs: &Runs) -> Run {
        let run = begin_import(locks, runs, "may", 3).await.unwrap();
        run.expect("no other run is under way")
    }

    #[tokio::test(start_paused = true)]
    async fn import_whose_workers_died_is_told_and_begins_again() {
        let (locks, runs) = (Client::in_memory(), Runs::default());
        let run = begin(&locks, &runs).await;
        part_is_done(&locks, &runs, &run, 0).await.unwrap();
        // Its workers die here. The next run comes soon.
        let soon = begin_import(&locks, &runs, "may", 3).await.unwrap();
        assert!(soon.is_none());
        let told = timeout(2 * IMPORT_STAYS, import_is_done(&locks, &runs, &run)).await;
        assert!(!told.expect("told").unwrap());
        let run = begin(&locks, &runs).await;
        let waiting = async { import_is_done(&locks, &runs, &run).await.unwrap() };
        let parts = async {
            for part in 0..3 {
                tokio::time::sleep(IMPORT_STAYS / 2).await;
                part_is_done(&locks, &runs, &run, part).await.unwrap();
            }
        };
        assert!(tokio::join!(waiting, parts).0);
        assert!(!is_there(&locks, "import:may:1:parts").await);
        // Also to those who ask later.
        assert!(import_is_done(&locks, &runs, &run).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn import_whose_workers_died_is_not_done_for_those_who_ask_after_its_latch_has_expired() {
        let (locks, runs) = (Client::in_memory(), Runs::default());
        let run = begin(&locks, &runs).await;
        part_is_done(&locks, &runs, &run, 0).await.unwrap();
        tokio::time::sleep(2 * IMPORT_STAYS).await;
        assert!(!import_is_done(&locks, &runs, &run).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn late_part_of_a_run_that_died_does_not_end_the_next_run() {
        let (locks, runs) = (Client::in_memory(), Runs::default());
        let first = begin(&locks, &runs).await;
        tokio::time::sleep(2 * IMPORT_STAYS).await;
        let second = begin(&locks, &runs).await;
        part_is_done(&locks, &runs, &first, 2).await.unwrap();
        for part in [0, 1, 1] {
            part_is_done(&locks, &runs, &second, part).await.unwrap();
        }
        let waiting = timeout(IMPORT_STAYS / 2, import_is_done(&locks, &runs, &second));
        assert!(waiting.await.is_err(), "a part is missing");
        part_is_done(&locks, &runs, &second, 2).await.unwrap();
        assert!(import_is_done(&locks, &runs, &second).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn import_whose_last_worker_died_before_its_count_is_done() {
        let (locks, runs) = (Client::in_memory(), Runs::default());
        let run = begin(&locks, &runs).await;
        for part in [0, 1] {
            part_is_done(&locks, &runs, &run, part).await.unwrap();
        }
        assert!(runs.add_part(&run, 2).await);
        assert!(import_is_done(&locks, &runs, &run).await.unwrap());
    }
}
