//! A cluster beside a single server, and grants that replicas confirm beside those that nobody does.

use std::time::{Duration, Instant};

use distlock::Client;
use distlock_tests::{RedisCluster, RedisServer};
use tokio::time::sleep;

use crate::{ROUNDS, report, together};

const REPLICAS: u32 = 2;

pub(crate) async fn cluster(server: &RedisServer) {
    let single = Client::connect(&server.url()).await.unwrap();
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    let ratios = one_task(&client, &single).await;
    report(
        "cluster, one task: time to a single server",
        ratios,
        "at most 1.10",
    );
    let ratios = many_keys(&client, &single).await;
    report(
        "cluster of three, 64 tasks on 64 keys: throughput",
        ratios,
        "above 1.00 on more than 4 cores",
    );
}

pub(crate) async fn confirmed() {
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
    let ratios = one_task(&client, &plain).await;
    report(
        "two replicas confirm, one task: time to a plain pair",
        ratios,
        "at most 2.50",
    );
    let ratios = many_keys(&client, &plain).await;
    report(
        "two replicas confirm, 64 tasks on 64 keys: throughput",
        ratios,
        "at least 0.50",
    );
}

/// How long pairs of one task take with a client, to those with another one.
async fn one_task(ours: &Client, theirs: &Client) -> Vec<f64> {
    const PAIRS: usize = 500;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let mut took = [0.0; 2];
        for (took, client) in took.iter_mut().zip([ours, theirs]) {
            let lock = client.lock("one");
            let start = Instant::now();
            for _ in 0..PAIRS {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
            *took = start.elapsed().as_secs_f64();
        }
        ratios.push(took[0] / took[1]);
    }
    ratios
}

/// How many pairs tasks on keys of their own make with a client, to those with another one.
async fn many_keys(ours: &Client, theirs: &Client) -> Vec<f64> {
    const PAIRS: usize = 50;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let mut took = [0.0; 2];
        for (took, client) in took.iter_mut().zip([ours, theirs]) {
            let work = together(|n| {
                let lock = client.lock(format!("many:{n}"));
                async move {
                    for _ in 0..PAIRS {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                }
            });
            *took = work.await.as_secs_f64();
        }
        ratios.push(took[1] / took[0]);
    }
    ratios
}
