//! Traps: one request whose reply is eaten, one request that is held.

use distlock_tests::proxy::Role;
use distlock_tests::{Flow, Select, Way, Which, eventually_eq};
use redis::{AsyncTypedCommands, Client};
use tokio::time::timeout;

use super::super::{BRIEF, SOON};
use super::{connect, is_gone, pair, soon, try_connect};

#[tokio::test]
async fn eaten_reply_hides_one_executed_request() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let eat = proxy.eat_reply(Select::COMMANDS, Which::nth(3).containing("incrby"));
    for n in 1..=2 {
        client.ping().await.unwrap();
        assert_eq!(client.incr("n", 1).await.unwrap(), n);
    }
    assert!(is_gone(&soon(client.incr("n", 1)).await.unwrap_err()));
    assert_eq!((server.command_calls("incrby").await, eat.hits()), (3, 1));
    // A trap springs once.
    let mut client = connect(&proxy).await;
    assert_eq!(client.incr("n", 1).await.unwrap(), 4);
}

#[tokio::test]
async fn earlier_replies_are_delivered_before_one_is_eaten() {
    let (_server, proxy) = pair().await;
    let client = connect(&proxy).await;
    let delay = proxy.flow(Select::ALL, Way::Down, Flow::Delay(BRIEF));
    let eat = proxy.eat_reply(Select::ALL, Which::NEXT.containing("second"));
    let [first, second, third] = ["first", "second", "third"].map(|key| {
        let mut client = client.clone();
        async move { client.set(key, 1).await }
    });
    let (first, second, third) = soon(async { tokio::join!(first, second, third) }).await;
    first.unwrap();
    assert!(is_gone(&second.unwrap_err()) && is_gone(&third.unwrap_err()));
    assert_eq!((eat.hits(), delay.hits()), (1, 2));
}

#[tokio::test]
async fn pushes_on_the_same_connection_are_not_counted_as_replies() {
    let (server, proxy) = pair().await;
    let mut client = try_connect(&proxy, "?protocol=resp3").await.unwrap();
    client.subscribe(&["a", "b"]).await.unwrap();
    client.unsubscribe("a").await.unwrap();
    for _ in 0..10 {
        server.cli(&["PUBLISH", "b", "0"]).await;
    }
    let eat = proxy.eat_reply(Select::ALL, Which::NEXT.containing("eaten"));
    assert_eq!(client.get("kept").await.unwrap(), None);
    assert!(is_gone(&soon(client.get("eaten")).await.unwrap_err()));
    assert_eq!(eat.hits(), 1);
}

#[tokio::test]
async fn messages_of_a_resp2_subscriber_are_not_counted_as_replies() {
    let (server, proxy) = pair().await;
    let client = Client::open(proxy.url()).unwrap();
    let mut pubsub = client.get_async_pubsub().await.unwrap();
    pubsub.subscribe(&["a", "b"]).await.unwrap();
    pubsub.psubscribe("c*").await.unwrap();
    pubsub.unsubscribe("a").await.unwrap();
    let before = proxy.connections()[0];
    let passed = proxy.flow(Select::SUBSCRIBERS, Way::Down, Flow::Pass);
    server.cli(&["PUBLISH", "b", "0"]).await;
    server.cli(&["PUBLISH", "cc", "0"]).await;
    passed.reach(2, SOON).await;
    let after = proxy.connections()[0];
    assert_eq!(after.role, Role::Subscriber);
    assert_eq!(after.replies, after.requests);
    assert_eq!(after.replies, before.replies);
    pubsub.ping::<redis::Value>().await.unwrap();
    assert_eq!(proxy.connections()[0].replies, before.replies + 1);
}

#[tokio::test]
async fn held_request_is_delivered_after_its_client_has_gone() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let held = proxy.hold(Select::COMMANDS, Which::NEXT.containing("late"));
    client.set("early", 1).await.unwrap();
    assert!(timeout(BRIEF, client.set("late", 1)).await.is_err());
    drop(client);
    let caught = held.caught(SOON).await;
    connect(&proxy).await.set("meanwhile", 1).await.unwrap();
    assert_eq!(server.keys().await, ["early", "meanwhile"]);
    assert_eq!(soon(caught.deliver()).await.unwrap(), "+OK\r\n");
    assert_eq!(server.keys().await, ["early", "late", "meanwhile"]);
    eventually_eq(SOON, "open connections", 0, || async {
        proxy.connections().len()
    })
    .await;
}

#[tokio::test]
async fn held_request_outlives_a_cut_of_the_client() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let held = proxy.hold(Select::ALL, 1);
    let write = tokio::spawn(async move { client.set("late", 1).await });
    let caught = held.caught(SOON).await;
    caught.cut_client();
    assert!(is_gone(&soon(write).await.unwrap().unwrap_err()));
    assert_eq!(proxy.connections().len(), 1);
    assert_eq!(soon(caught.deliver()).await.unwrap(), "+OK\r\n");
    assert_eq!(server.keys().await, ["late"]);
}

#[tokio::test]
async fn held_request_goes_on_before_those_behind_it() {
    let (_server, proxy) = pair().await;
    let client = connect(&proxy).await;
    let held = proxy.hold(Select::ALL, Which::NEXT.containing("incr"));
    let [first, second] = [5, 7].map(|by| {
        let mut client = client.clone();
        tokio::spawn(async move { client.incr("n", by).await.unwrap() })
    });
    let caught = held.caught(SOON).await;
    assert!(timeout(BRIEF, client.clone().ping()).await.is_err());
    soon(caught.deliver()).await.unwrap();
    assert_eq!(
        (soon(first).await.unwrap(), soon(second).await.unwrap()),
        (5, 12)
    );
}

#[tokio::test]
async fn given_up_request_is_lost_with_its_connection() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let mut held = proxy.hold(Select::ALL, 1);
    let write = tokio::spawn(async move { client.set("lost", 1).await });
    let caught = loop {
        match held.try_caught() {
            Ok(caught) => break caught,
            Err(waiting) => held = waiting,
        }
        tokio::task::yield_now().await;
    };
    drop(caught);
    assert!(is_gone(&soon(write).await.unwrap().unwrap_err()));
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn held_request_to_a_killed_server_has_no_reply() {
    let (mut server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let held = proxy.hold(Select::ALL, 1);
    let write = tokio::spawn(async move { client.set("lost", 1).await });
    let caught = held.caught(SOON).await;
    server.kill();
    assert!(is_gone(&soon(write).await.unwrap().unwrap_err()));
    assert_eq!(soon(caught.deliver()).await, None);
}

#[tokio::test]
async fn dropped_trap_catches_nothing() {
    let (_server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    drop(proxy.hold(Select::ALL, 1));
    soon(client.ping()).await.unwrap();
}
