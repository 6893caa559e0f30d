//! One leader among three replicas, and a planned hand-over, as in a rolling deploy.
//!
//! Each replica campaigns. The leader's work is dropped when its lead is lost, and each term is above all terms before it, so the
//! store that the leader writes to can refuse a late write of a former leader.

use std::time::Duration;

use distlock::{Client, Error, Leader};
use distlock_examples::{Failure, LockServer, check};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The leader's work, which has no end.
async fn send_invoices(replica: usize, term: u64) {
    println!("replica {replica} leads in term {term}");
    loop {
        // A real leader would send its term along with each write.
        sleep(Duration::from_millis(50)).await;
    }
}

type Campaign = JoinHandle<Result<Option<()>, Error>>;

fn replica(locks: &Client, replica: usize) -> (Leader, Campaign) {
    let leader = locks.leader("leader:invoices");
    let campaign = leader.run(move |term| send_invoices(replica, term));
    (leader, tokio::spawn(campaign))
}

/// Waits until one of the replicas leads.
async fn leader_of(replicas: &[(Leader, Campaign)]) -> Result<usize, Failure> {
    loop {
        if let Some(at) = replicas.iter().position(|(leader, _)| leader.is_leader()) {
            return Ok(at);
        }
        // An error that lasts ends a campaign, such as a login that stays refused.
        let has_ended = replicas.iter().any(|(_, campaign)| campaign.is_finished());
        check(!has_ended, "all replicas campaign")?;
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let mut replicas = Vec::new();
    for number in 1..=3 {
        replicas.push(replica(&server.client().await?, number));
    }
    let mut last = 0;
    while !replicas.is_empty() {
        let at = leader_of(&replicas).await?;
        let (leader, campaign) = replicas.remove(at);
        let term = leader.term().unwrap_or_default();
        check(term > last, "each term is above the last one")?;
        last = term;
        // A deploy stops this replica: it would do this at SIGTERM.
        let stopped = Instant::now();
        leader.resign().await;
        check(campaign.await??.is_none(), "its body was dropped")?;
        if !replicas.is_empty() {
            leader_of(&replicas).await?;
            println!("the next one leads after {:?}", stopped.elapsed());
        }
    }
    println!("each replica has led, one after the other");
    Ok(())
}
