//! A job of apalis that one replica runs per fire. Each replica has a worker of its own, and fires.
//!
//! The time of the fire is in the key, which stays locked for an hour from the start of the job. So the clocks of the replicas may
//! differ by up to an hour, and the next fire has another key. A replica that restarts within this hour, and is given a fire again by
//! a store of apalis, finds it locked.
//!
//! After a crash in the job the key is free when its lease ends. A replica that fires later than that, or that is given the fire again by
//! a store, runs it. The `CronScheduler` of this recipe keeps no fires: if the other replicas have fired by then, the report of that night
//! is missing.
//!
//! The key also stays locked if the job returns an error, or if a shutdown drops it in the middle. A retry by apalis within the hour then
//! finds it locked, and is [`Skipped`](Outcome::Skipped), which apalis takes for a success. Repeat a step that may fail inside of
//! [`write_report`], and let the job end before the shutdown does. Or keep a record of what was done and look at it.

use apalis::prelude::{Data, WorkerBuilder};
use apalis_cron::timezone::Utc;
use apalis_cron::{CronScheduler, Schedule, Tick};
use distlock::{Client, distributed_lock};
use tokio::sync::mpsc::UnboundedSender;

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
    key = "report:<fire>",
    client = locks,
    wait = 0,
    hold_at_least = "1h",
    on_busy = |_| Ok(Outcome::Skipped),
)]
async fn write_report(locks: &Client, fire: u64) -> Result<Outcome, Failure> {
    // Writes the report.
    Ok(Outcome::Ran)
}

/// What the job needs.
#[derive(Clone)]
pub struct Context {
    /// The locks.
    pub locks: Client,
    /// Where each fire is told.
    pub told: UnboundedSender<Outcome>,
}

async fn nightly(tick: Tick, context: Data<Context>) -> Result<(), Failure> {
    let outcome = write_report(&context.locks, tick.get_timestamp()).await?;
    context.told.send(outcome)?;
    Ok(())
}

/// Runs one replica's worker: with `cron::Schedule::from_str("0 30 2 * * *")`, for example, at half past two.
///
/// # Errors
/// Those of the worker.
pub async fn replica<S>(schedule: S, context: Context) -> Result<(), Failure>
where
    S: Schedule<Utc> + Send + Sync + Unpin + 'static,
{
    let worker = WorkerBuilder::new("nightly")
        .backend(CronScheduler::new(schedule))
        .data(context)
        .build(nightly);
    worker.run().await?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use std::collections::VecDeque;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use distlock::MemoryServer;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    /// Fires at these times, and then in a day.
    struct Fires(VecDeque<u64>);

    impl Schedule<Utc> for Fires {
        fn next_tick(&mut self, _: &Utc) -> Option<Tick<Utc>> {
            Some(Tick::new(self.0.pop_front().unwrap_or(now() + 86_400)))
        }
    }

    fn now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap().as_secs()
    }

    fn start(server: &MemoryServer, fires: &[u64]) -> (JoinHandle<()>, UnboundedReceiver<Outcome>) {
        let (told, outcomes) = unbounded_channel();
        let locks = Client::builder().in_memory(server).unwrap();
        let context = Context { locks, told };
        let fires = Fires(fires.to_vec().into());
        let worker = tokio::spawn(async { drop(replica(fires, context).await) });
        (worker, outcomes)
    }

    /// What a replica did at so many fires. `None`: the machine was too slow for a fire, and the worker has ended.
    async fn outcomes(told: &mut UnboundedReceiver<Outcome>, many: usize) -> Option<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for _ in 0..many {
            let outcome = timeout(Duration::from_secs(60), told.recv()).await;
            outcomes.push(outcome.expect("a fire")?);
        }
        Some(outcomes)
    }

    /// What three replicas did at all fires.
    async fn three_replicas(server: &MemoryServer, fires: &[u64]) -> Option<Vec<Outcome>> {
        let mut all = Vec::new();
        for (worker, mut told) in [0, 1, 2].map(|_| start(server, fires)) {
            all.extend(outcomes(&mut told, fires.len()).await?);
            worker.abort();
        }
        Some(all)
    }

    #[tokio::test]
    async fn each_fire_runs_on_one_of_three_replicas_and_not_again_after_a_restart() {
        for _ in 0..10 {
            let server = MemoryServer::new();
            let fires = [now() + 2, now() + 4];
            let Some(all) = three_replicas(&server, &fires).await else {
                continue;
            };
            let ran = all.iter().filter(|one| **one == Outcome::Ran).count();
            assert_eq!((ran, all.len()), (2, 6));
            // A replica that starts anew, and is given a fire again by its store.
            let (told, mut again) = unbounded_channel();
            let locks = Client::builder().in_memory(&server).unwrap();
            let context = Data::new(Context { locks, told });
            nightly(Tick::new(fires[0]), context).await.unwrap();
            assert_eq!(outcomes(&mut again, 1).await, Some(vec![Outcome::Skipped]));
            return;
        }
        panic!("the machine missed a fire each time");
    }
}
