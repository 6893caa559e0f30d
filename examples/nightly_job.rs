//! A scheduled job that every replica starts, and that only one of them runs.
//!
//! A lock alone is not enough, because the job may be finished before the slowest replica starts it. `hold_at_least` keeps
//! the key locked for longer than the replicas' clocks differ. It does so also if the job fails or is dropped in the
//! middle: a retry belongs inside the lock, and the job should end before a shutdown does. After a crash the key is free when its lease
//! ends. `max_hold` ends a job that hangs. Without it the job would keep the key, and all replicas would skip each later night.

use std::time::Duration;

use distlock::{Client, Error, distributed_lock};
use distlock_examples::{Failure, LockServer, check};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What a replica did when its clock started the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ran,
    Skipped,
}

/// The clocks are assumed to differ by less than 30 s.
#[distributed_lock(
    key = "job:nightly-report",
    client = locks,
    wait = 0,
    hold_at_least = "30s",
    max_hold = "6h",
    on_busy = |_| Ok(Outcome::Skipped),
)]
async fn nightly_report(locks: &Client, replica: usize) -> Result<Outcome, Error> {
    println!("replica {replica} writes the report");
    sleep(Duration::from_millis(5)).await;
    Ok(Outcome::Ran)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let first = server.client().await?;
    // Lets you run the example twice within 30 s. A real job would not do this.
    first.lock("job:nightly-report").force_release().await?;

    let mut replicas = JoinSet::new();
    for (replica, clock_differs) in [20, 0, 60]
        .map(Duration::from_millis)
        .into_iter()
        .enumerate()
    {
        let locks = server.client().await?;
        replicas.spawn(async move {
            sleep(clock_differs).await;
            let outcome = nightly_report(&locks, replica).await?;
            println!("replica {replica}: {outcome:?}");
            Ok::<_, Error>((locks, outcome))
        });
    }
    let mut ran = 0;
    while let Some(replica) = replicas.join_next().await {
        let (locks, outcome) = replica??;
        ran += usize::from(outcome == Outcome::Ran);
        locks.close(Duration::from_secs(5)).await?;
    }
    check(ran == 1, "one replica ran the job")?;

    let left = first.lock("job:nightly-report").remaining_lease().await?;
    check(left.is_some(), "the key stays locked after the job")?;
    println!("the next run can start in {:?}", left.unwrap_or_default());
    first.close(Duration::from_secs(5)).await?;
    Ok(())
}
