//! A job of tokio-cron-scheduler that one replica runs per fire. Each replica has a scheduler of its own, and fires.
//!
//! The scheduler does not tell the job the time of its fire. So the key is the same each night, and stays locked for an hour
//! from the start of the job: longer than the clocks of the replicas differ, and than a replica takes to restart. It also stays
//! locked if the job returns an error, or if a shutdown drops it in the middle: nobody runs it that night. Repeat a step that may fail
//! inside of [`write_report`], and let the job end before the shutdown does. After a crash in the job the key is free when its lease
//! ends, and a replica that fires later runs it again.
//!
//! `max_hold` is longer than the job ever takes, and shorter than a day. Without it a job that hangs would keep the key, and all
//! replicas would skip each later night. Keep the time of the last report, and alert on its age: `Skipped` does not say that
//! there is one.

use distlock::{Client, Error, distributed_lock};
use tokio::sync::mpsc::UnboundedSender;
use tokio_cron_scheduler::{Job, JobScheduler};

use crate::Failure;

/// What a replica did at a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It wrote the report.
    Ran,
    /// Another replica does, or did.
    Skipped,
}

#[distributed_lock(
    key = "job:nightly-report",
    client = locks,
    wait = 0,
    hold_at_least = "1h",
    max_hold = "6h",
    on_busy = |_| Ok(Outcome::Skipped),
)]
async fn write_report(locks: &Client, write: impl Future<Output = ()>) -> Result<Outcome, Error> {
    write.await;
    Ok(Outcome::Ran)
}

/// Starts one replica's scheduler: with `"0 30 2 * * *"`, for example, at half past two. Each fire is told to `told`.
///
/// # Errors
/// Those of the scheduler.
pub async fn replica(
    schedule: &str,
    locks: Client,
    told: UnboundedSender<Result<Outcome, Error>>,
) -> Result<JobScheduler, Failure> {
    let scheduler = JobScheduler::new().await?;
    let job = Job::new_async(schedule, move |_, _| {
        let (locks, told) = (locks.clone(), told.clone());
        Box::pin(async move {
            let write = async {}; // writes the report
            // If the server is away, nobody writes the report: tell the people who wait for it.
            drop(told.send(write_report(&locks, write).await));
        })
    })?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    Ok(scheduler)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use std::future::pending;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use distlock::MemoryServer;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::{sleep, timeout};

    use super::*;

    fn now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap().as_secs()
    }

    /// What replicas do whose schedulers fire once, a few seconds from now.
    async fn fire(server: &MemoryServer, replicas: usize) -> Vec<Outcome> {
        let (mut schedulers, mut fires) = loop {
            let at = now() + 3;
            let schedule = format!("{} {} {} * * *", at % 60, at / 60 % 60, at / 3600 % 24);
            let (told, fires) = unbounded_channel();
            let mut schedulers = Vec::new();
            for _ in 0..replicas {
                let locks = Client::builder().in_memory(server).unwrap();
                schedulers.push(replica(&schedule, locks, told.clone()).await.unwrap());
            }
            // A machine that took so long may have missed the fire, which then comes tomorrow.
            if now() < at {
                break (schedulers, fires);
            }
            for scheduler in &mut schedulers {
                scheduler.shutdown().await.unwrap();
            }
        };
        let mut outcomes = Vec::new();
        for _ in 0..replicas {
            let outcome = timeout(Duration::from_secs(60), fires.recv()).await;
            outcomes.push(outcome.expect("a fire").unwrap().unwrap());
        }
        for scheduler in &mut schedulers {
            scheduler.shutdown().await.unwrap();
        }
        outcomes
    }

    #[tokio::test(start_paused = true)]
    async fn report_that_hangs_is_ended_before_the_next_night() {
        let server = MemoryServer::new();
        let [first, second] = [0, 1].map(|_| Client::builder().in_memory(&server).unwrap());
        let hangs = tokio::spawn(async move { write_report(&first, pending()).await });
        server.until_locked("job:nightly-report").await;
        let skipped = write_report(&second, async {}).await.unwrap();
        assert_eq!(skipped, Outcome::Skipped);
        sleep(Duration::from_secs(24 * 60 * 60)).await;
        let ran = write_report(&second, async {}).await.unwrap();
        assert_eq!(ran, Outcome::Ran);
        assert!(hangs.await.unwrap().unwrap_err().is_lost());
    }

    #[tokio::test]
    async fn fire_runs_on_one_of_three_replicas_and_not_again_after_a_restart() {
        let server = MemoryServer::new();
        let outcomes = fire(&server, 3).await;
        let ran = outcomes.iter().filter(|one| **one == Outcome::Ran).count();
        assert_eq!((ran, outcomes.len()), (1, 3));
        // A replica that starts anew, and whose clock is late.
        assert_eq!(fire(&server, 1).await, [Outcome::Skipped]);
    }
}
