//! Nodes of a cluster that announce addresses at which nobody reaches them.

use distlock::{Client, Error};
use distlock_tests::server::free_port;
use distlock_tests::{RedisCluster, eventually};

use super::{SOON, ms};

/// Has a node announce a port at which nobody listens, until all of these nodes name it.
async fn announces_nowhere(cluster: &RedisCluster, node: usize) -> u16 {
    let port = free_port();
    let set = ["CONFIG", "SET", "cluster-announce-port", &port.to_string()];
    cluster.node(node).cli(&set).await;
    for teller in 0..cluster.size() {
        let named = || async {
            let slots = cluster.node(teller).cli(&["CLUSTER", "SLOTS"]).await;
            let text = format!("{slots:?}");
            if text.contains(&port.to_string()) {
                Ok(())
            } else {
                Err(text)
            }
        };
        eventually(SOON, "the new port", named).await;
    }
    port
}

#[tokio::test]
async fn cluster_of_which_no_node_can_be_used_is_refused_with_the_address_that_it_announces() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let mut ports = Vec::new();
    for node in 0..cluster.size() {
        ports.push(announces_nowhere(&cluster, node).await);
    }
    let patient = Client::builder().connect_timeout(ms(1_500));
    let error = patient.connect(&cluster.url()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }), "{text}");
    assert!(text.contains("announce"), "{text}");
    let names_one = ports.iter().any(|port| text.contains(&port.to_string()));
    assert!(names_one, "{text}: {ports:?}");
}

#[tokio::test]
async fn error_of_a_node_that_cannot_be_reached_names_it_and_where_its_address_comes_from() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let (lost, there) = (cluster.key_at(0, "k:").await, cluster.key_at(1, "k:").await);
    let port = announces_nowhere(&cluster, 0).await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    drop(client.lock(&there).try_acquire().await.unwrap().unwrap());
    let error = client.lock(&lost).try_acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(error.is_unavailable(), "{text}");
    assert!(
        text.contains(&format!(
            "127.0.0.1:{port}, an address that the nodes of the cluster announce"
        )),
        "{text}"
    );
}
