//! A cluster: slots that move, nodes that fail, and keys of several slots.

mod first;
mod load;
mod lost;
mod messages;
mod multi;
mod nodes;
mod replaced;
mod replicas;
mod rights;
mod slots;

use distlock::test_util::Sizes;
use distlock::{Client, test_util};
use distlock_tests::{RedisCluster, eventually_eq};

use crate::row::Listed;
use crate::support::{SOON, client_with};

pub(crate) fn rows() -> Vec<Listed> {
    [
        first::rows(),
        slots::rows(),
        nodes::rows(),
        replaced::rows(),
        messages::rows(),
        multi::rows(),
        lost::rows(),
        replicas::rows(),
        rights::rows(),
    ]
    .concat()
}

/// Clients with the settings that users have.
async fn clients(cluster: &RedisCluster, many: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..many {
        clients.push(client_with(&cluster.url(), |builder| builder).await);
    }
    clients
}

/// Clients that wait for a failover, also where a busy machine takes its time for it.
async fn patient_clients(cluster: &RedisCluster, many: usize) -> Vec<Client> {
    let patient = |builder: distlock::Builder| builder.unavailable_after(SOON * 6);
    let mut clients = Vec::new();
    for _ in 0..many {
        clients.push(client_with(&cluster.url(), patient).await);
    }
    clients
}

/// How often the nodes sent a command elsewhere.
async fn redirects(cluster: &RedisCluster) -> u64 {
    let mut redirects = 0;
    for at in (0..cluster.size()).filter(|at| cluster.node(*at).runs()) {
        let errors = cluster.node(at).info("errorstats").await;
        for kind in ["MOVED", "ASK", "TRYAGAIN"] {
            let count = errors.get(&format!("errorstat_{kind}"));
            let count = count.and_then(|count| count.strip_prefix("count=")?.parse::<u64>().ok());
            redirects += count.unwrap_or_default();
        }
    }
    redirects
}

/// Completes when all is free: the clients keep nothing but channels that linger, and no master has a key.
async fn free(cluster: &RedisCluster, clients: &[Client]) {
    for client in clients {
        eventually_eq(SOON, "what the client keeps", Sizes::default(), || async {
            test_util::sizes(client)
        })
        .await;
    }
    let left = || async {
        let mut left = Vec::new();
        for at in (0..cluster.size()).filter(|at| cluster.node(*at).runs()) {
            let keys = cluster.node(at).keys().await;
            // The last fencing token of a lock stays on purpose.
            left.extend(
                keys.into_iter()
                    .filter(|key| !key.starts_with("redisson_lock_token:")),
            );
        }
        left
    };
    eventually_eq(SOON, "keys", Vec::<String>::new(), left).await;
}
