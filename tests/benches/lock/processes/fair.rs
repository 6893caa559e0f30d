//! The fair lock's hand-over from one client to another, beside the plain lock's. Both clients are in this process, so
//! that the row compares two locks and not two processes.

use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;
use tokio::time::sleep;

use super::clock::now;
use crate::plan::Plan;

/// Within this time the waiter has subscribed, has asked once more and sleeps.
const IDLE: Duration = Duration::from_millis(20);

type Lock = fn(&Client) -> Acquire;

pub(crate) async fn hand_over(server: &RedisServer, plan: Plan, table: &mut Table) {
    let holder = Client::connect(&server.url()).await.unwrap();
    let waiter = Client::connect(&server.url()).await.unwrap();
    let fair: Lock = |client| client.fair_lock("handed:fair").acquire();
    let plain: Lock = |client| client.lock("handed:plain").acquire();
    let plan = Plan {
        rounds: plan.hand_overs,
        ..plan
    };
    let sides = [fair, plain];
    let figures = plan.alternate(&sides, async |lock: &Lock| {
        let guard = lock(&holder).await.unwrap();
        let next = lock(&waiter);
        let next = tokio::spawn(async move {
            let guard = next.await.unwrap();
            let granted = now();
            guard.release().await.unwrap();
            granted
        });
        sleep(IDLE).await;
        let start = now();
        guard.release().await.unwrap();
        (next.await.unwrap() - start) / 1e3
    });
    let [ours, theirs] = figures.await.try_into().unwrap();
    let row = Row::new(
        "fair lock, release to grant by another client",
        "us",
        "the plain lock",
    );
    table.push(row.ours(ours).theirs(theirs));
}
