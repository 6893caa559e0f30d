//! What the probes of a service see while its server is away.

use distlock::{Client, Error, MemoryServer};
use distlock_tests::{RedisCluster, RedisServer, eventually_eq};

use crate::redis::{SOON, client};

#[tokio::test]
async fn client_is_disconnected_while_its_server_is_away_and_connects_again_by_itself() {
    let mut server = RedisServer::start().await;
    let client = client(&server).await;
    client.ping().await.unwrap();
    assert!(client.is_connected());
    server.kill();
    eventually_eq(SOON, "connected", false, || async { client.is_connected() }).await;
    let error = client.ping().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.is_unavailable() && error.to_string().contains(&server.addr().to_string()));
    server.restart().await;
    eventually_eq(SOON, "connected", true, || async { client.is_connected() }).await;
    client.ping().await.unwrap();
}

#[tokio::test]
async fn ping_of_a_cluster_fails_whichever_of_its_masters_is_away() {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    client.ping().await.unwrap();
    for node in 0..cluster.size() {
        let addr = cluster.node(node).addr().to_string();
        cluster.node_mut(node).kill();
        let error = client.ping().await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(error.to_string().contains(&addr), "{addr}: {error}");
        cluster.node_mut(node).restart().await;
        let answers = || async { client.ping().await.is_ok() };
        eventually_eq(SOON, "all answer", true, answers).await;
    }
}

#[tokio::test]
async fn server_in_memory_that_is_down_is_not_connected() {
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    server.take_down();
    assert!(!client.is_connected());
    assert!(client.ping().await.unwrap_err().is_unavailable());
    server.bring_up();
    assert!(client.is_connected());
    client.ping().await.unwrap();
}
