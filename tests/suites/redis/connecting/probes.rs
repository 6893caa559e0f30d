//! What the probes of a service see while its server is away.

use distlock::{Client, Error, MemoryServer};
use distlock_tests::{
    Flow, Proxy, RedisCluster, RedisServer, Select, Way, eventually, eventually_eq,
};

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

#[tokio::test]
async fn facts_of_a_server_are_asked_together_and_not_each_after_the_answer_to_another() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = Client::connect(&proxy.url()).await.unwrap();
    let asked = ["hello", "info", "config|get", "eval", "client|tracking"];
    let calls = async || {
        let calls = asked.map(|command| server.command_calls(command));
        futures_util::future::join_all(calls).await
    };
    let before = calls().await;
    let unanswered = proxy.flow(Select::ALL, Way::Down, Flow::Stall);
    let facts = tokio::spawn(async move { client.server_facts().await });
    eventually(SOON, "all questions are at the server", || async {
        let after = calls().await;
        let are_asked = before
            .iter()
            .zip(&after)
            .all(|(before, after)| before < after);
        are_asked.then_some(()).ok_or(after)
    })
    .await;
    assert!(unanswered.hits() > 0 && !facts.is_finished());
    facts.abort();
}
