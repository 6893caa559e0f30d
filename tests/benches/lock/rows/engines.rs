//! A cluster compared with a single server, and grants that replicas confirm compared with other grants.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_bench::{Row, Table};
use distlock_tests::{RedisCluster, RedisServer};
use tokio::time::sleep;

use crate::plan::Plan;
use crate::tasks::{TASKS, alone, per_call, together};

const REPLICAS: u32 = 2;

pub(crate) async fn cluster(server: &RedisServer, plan: Plan, table: &mut Table) {
    let single = Client::connect(&server.url()).await.unwrap();
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    compare(
        "cluster of three",
        "one server",
        [client, single],
        plan,
        table,
    )
    .await;
}

pub(crate) async fn confirmed(plan: Plan, table: &mut Table) {
    let primary = RedisServer::start().await;
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        let port = primary.port();
        let of = format!("127.0.0.1 {port}");
        replicas.push(RedisServer::builder().arg("--replicaof", of).start().await);
    }
    let builder = Client::builder().replicas(REPLICAS, Duration::from_secs(5));
    let client = builder.connect(&primary.url()).await.unwrap();
    let plain = Client::connect(&primary.url()).await.unwrap();
    // Until the replicas have been filled, they confirm nothing.
    while client.lock("first").try_acquire().await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    compare(
        "two replicas confirm",
        "nobody confirms",
        [client, plain],
        plan,
        table,
    )
    .await;
}

/// The same work with two clients.
async fn compare(
    what: &str,
    reference: &'static str,
    clients: [Client; 2],
    plan: Plan,
    table: &mut Table,
) {
    let figures = plan.alternate(&clients, async |client: &Client| {
        let lock = client.lock("one");
        let pair = async || lock.acquire().await.unwrap().release().await.unwrap();
        alone(plan.slice, pair).await
    });
    let [ours, theirs] = figures.await.try_into().unwrap();
    let row = Row::new(format!("{what}, one task"), "us", reference);
    table.push(row.ours(ours).theirs(theirs));

    let figures = plan.alternate(&clients, async |client: &Client| {
        let work = together(TASKS, plan.slice, |until, n, count| {
            let lock = client.lock(format!("many:{n}"));
            async move {
                while Instant::now() < until {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        per_call(work.await)
    });
    let [ours, theirs] = figures.await.try_into().unwrap();
    let row = Row::new(format!("{what}, 64 tasks on 64 keys"), "us", reference);
    table.push(row.ours(ours).theirs(theirs));
}
