//! Credentials that change while connections stand: these are sent the new ones.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Builder, Client, Credentials};
use distlock_tests::{
    RedisCluster, RedisServer, SentinelSet, eventually, eventually_eq, lock_once,
};

use super::credentials::{USERS, server};
use crate::redis::{SOON, ms};

/// A second user, who may do all that the first one may.
async fn other_user(server: &RedisServer) {
    server.cli(&USERS[1]).await;
}

#[tokio::test]
async fn changed_credentials_are_sent_over_the_connections_that_stand_also_that_for_messages() {
    let server = server().await;
    other_user(&server).await;
    let is_new = Arc::new(AtomicUsize::new(0));
    let new = Arc::clone(&is_new);
    let builder = Client::builder().credentials_interval(ms(50));
    let builder = builder.credentials_from(move || {
        let credentials = match new.load(Ordering::Relaxed) {
            0 => Credentials::new("shop", "p@ss/word"),
            _ => Credentials::new("other", "new"),
        };
        async { Ok::<_, io::Error>(credentials) }
    });
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let other = Client::connect(&server.url()).await.unwrap();
    let held = other.lock("held").acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("held").acquire().wait(2 * SOON).into_future());
    crate::redis::listened(&server, "held", 1).await;
    let ids = async || {
        let clients = server.client_list().await;
        let name = client.id().to_string();
        let ours = clients
            .iter()
            .filter(|one| one.field("name").ends_with(&name));
        let ours = ours.map(|one| (one.field("id").to_owned(), one.field("user").to_owned()));
        let mut ours: Vec<_> = ours.collect();
        ours.sort();
        ours
    };
    let before = ids().await;
    assert_eq!(before.len(), 2, "{before:?}");
    is_new.store(1, Ordering::Relaxed);
    let expected: Vec<_> = before
        .into_iter()
        .map(|(id, _)| (id, "other".to_owned()))
        .collect();
    eventually_eq(SOON, "the same connections", expected, ids).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// The ids and the users of a client's connections to these servers. The name of each connection ends with the client's id.
async fn users_of(servers: &[&RedisServer], client: &Client) -> Vec<(usize, u64, String)> {
    let name = client.id().to_string();
    let mut users = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let clients = server.client_list().await;
        let own = clients
            .iter()
            .filter(|one| one.field("name").ends_with(&name));
        users.extend(own.map(|one| (at, one.id(), one.field("user").to_owned())));
    }
    users.sort();
    users
}

/// The connections that stand have the new user, and none was replaced.
async fn all_become_other(servers: &[&RedisServer], client: &Client, change: impl FnOnce()) {
    let before = users_of(servers, client).await;
    assert!(before.iter().all(|one| one.2 == "shop"), "{before:?}");
    change();
    let expected: Vec<_> = before
        .into_iter()
        .map(|(at, id, _)| (at, id, "other".to_owned()))
        .collect();
    let now = async || users_of(servers, client).await;
    eventually_eq(SOON, "the same connections", expected, now).await;
}

/// A builder whose function gives the first user, and the second one from then on that the number is not zero.
fn changing(is_new: &Arc<AtomicUsize>) -> Builder {
    let is_new = Arc::clone(is_new);
    let builder = Client::builder().credentials_interval(ms(50));
    builder.credentials_from(move || {
        let credentials = match is_new.load(Ordering::Relaxed) {
            0 => Credentials::new("shop", "p@ss/word"),
            _ => Credentials::new("other", "new"),
        };
        async { Ok::<_, io::Error>(credentials) }
    })
}

#[tokio::test]
async fn changed_credentials_are_sent_over_each_connection_to_each_node_of_a_cluster() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    for user in USERS {
        cluster.each(&user).await;
    }
    let is_new = Arc::new(AtomicUsize::new(0));
    let client = changing(&is_new).connect(&cluster.url()).await.unwrap();
    let other = Client::connect(&cluster.url()).await.unwrap();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for node in 0..cluster.size() {
        let key = cluster.key_at(node, "k:").await;
        held.push(other.lock(&key).acquire().wait(SOON).await.unwrap());
        let waits = client.lock(&key).acquire().wait(4 * SOON);
        waiting.push(tokio::spawn(waits.into_future()));
    }
    let nodes: Vec<_> = (0..cluster.size()).map(|node| cluster.node(node)).collect();
    let count = || async { users_of(&nodes, &client).await.len() };
    // That for commands and that for messages.
    eventually_eq(SOON, "connections", 2 * nodes.len(), count).await;
    let change = || is_new.store(1, Ordering::Relaxed);
    all_become_other(&nodes, &client, change).await;
    for guard in held {
        guard.release().await.unwrap();
    }
    for waits in waiting {
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn changed_credentials_are_sent_to_the_master_and_those_of_a_file_to_the_sentinels() {
    let set = SentinelSet::builder().patient().start().await;
    for at in 0..3 {
        for user in USERS {
            set.server(at).cli(&user).await;
            set.sentinel(at).cli(&user).await;
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "p@ss/word\n").unwrap();
    let url = format!("{}?sentinel_user=shop", set.url());
    let is_new = Arc::new(AtomicUsize::new(0));
    let builder = changing(&is_new).sentinel_password_file(file.path());
    let client = builder.connect(&url).await.unwrap();
    lock_once(&client, "k").await;
    let master = [set.server(set.master().await)];
    let change = || is_new.store(1, Ordering::Relaxed);
    all_become_other(&master, &client, change).await;
    // What a Sentinel logs of a login shows that there was one. The connections keep the user that they have.
    let ids = async |at: usize| {
        let clients = set.sentinel(at).client_list().await;
        let own = clients.iter().filter(|one| one.field("user") == "shop");
        own.map(distlock_tests::server::ClientLine::id)
            .collect::<Vec<_>>()
    };
    let mut before = Vec::new();
    for at in 0..3 {
        // The client goes on connecting to the others once one of them has answered.
        let connected = || async {
            let ids = ids(at).await;
            (!ids.is_empty()).then_some(ids)
        };
        before.push(eventually(SOON, "a connection to the Sentinel", connected).await);
    }
    std::fs::write(file.path(), "wrong\n").unwrap();
    for (at, before) in before.into_iter().enumerate() {
        let log = async || {
            let log = set.sentinel(at).cli(&["ACL", "LOG"]).await;
            format!("{log:?}").contains("auth")
        };
        eventually_eq(SOON, "a login at the Sentinel", true, log).await;
        assert_eq!(ids(at).await, before);
    }
    lock_once(&client, "k").await;
}

#[tokio::test]
async fn function_that_hangs_once_is_asked_again_for_the_connection_that_stands() {
    let server = server().await;
    other_user(&server).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let builder = Client::builder()
        .credentials_interval(ms(50))
        .connect_timeout(ms(3_000));
    let builder = builder.credentials_from(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => Ok::<_, io::Error>(Credentials::new("shop", "p@ss/word")),
                1 => std::future::pending().await,
                _ => Ok(Credentials::new("other", "new")),
            }
        }
    });
    let client = builder.connect(&server.url()).await.unwrap();
    let server = [&server];
    let now = async || {
        let users = users_of(&server, &client).await;
        users.into_iter().map(|one| one.2).collect::<Vec<_>>()
    };
    eventually_eq(SOON, "the new user", vec!["other".to_owned()], now).await;
    lock_once(&client, "k").await;
}
