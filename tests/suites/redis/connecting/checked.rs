//! Servers that a client comes to later: a name, or what stands at an address, leads it to another one. Each is checked as the first
//! one was.

use distlock::{Builder, Client, Error, Health};
use distlock_tests::{
    ByNames, Names, Proxy, RedisCluster, RedisServer, Select, eventually, lock_once,
};
use tokio::time::timeout;

use crate::redis::{SOON, ms};

const NAME: &str = "checked.test";

fn builder(names: &Names) -> Builder {
    Client::builder().by_names(names).look_up_interval(ms(50))
}

/// Completes when the name was looked up so often since it was set.
async fn asked(names: &Names, times: u64) {
    let asked = || async {
        let asked = names.asked(NAME);
        if asked >= times { Ok(()) } else { Err(asked) }
    };
    eventually(SOON, "look-ups", asked).await;
}

/// A server that knows a command that locks need by another name. The second renaming makes the number of words even.
async fn lacking(command: &str) -> RedisServer {
    let builder = RedisServer::builder()
        .arg("--rename-command", command)
        .arg("HIDDEN", "--rename-command");
    builder.arg("LOLWUT", "LOLWHAT").start().await
}

#[tokio::test]
async fn name_that_is_pointed_at_a_server_without_a_command_keeps_clients_and_their_holds() {
    let (old, new) = (RedisServer::start().await, lacking("EVALSHA").await);
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let url = format!("redis://{NAME}");
    let client = builder(&names).connect(&url).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    names.lead(NAME, [new.addr()]);
    asked(&names, 12).await;
    assert!(timeout(ms(1), guard.lost()).await.is_err());
    lock_once(&client, "other").await;
    assert_eq!(client.health(), Health::Connected);
    guard.release().await.unwrap();
    // A client that starts now is told why it cannot use that server.
    let error = builder(&names).connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("does not know EVALSHA,"), "{error}");
    assert!(error.contains(&new.addr().to_string()), "{error}");
}

#[tokio::test]
async fn seed_that_is_pointed_at_a_cluster_without_a_command_keeps_clients_and_their_holds() {
    let old = RedisCluster::builder().replicas(false).start().await;
    let new = RedisCluster::builder().replicas(false);
    let new = new
        .arg("--rename-command", "HKEYS")
        .arg("HIDDEN", "--rename-command")
        .arg("LOLWUT", "LOLWHAT");
    let new = new.start().await;
    let names = Names::new();
    names.lead(NAME, [old.node(0).addr()]);
    let url = format!("redis+cluster://{NAME}");
    let client = builder(&names).connect(&url).await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    names.lead(NAME, [new.node(0).addr()]);
    asked(&names, 12).await;
    assert!(timeout(ms(1), guard.lost()).await.is_err());
    lock_once(&client, "other").await;
    guard.release().await.unwrap();
}

/// As behind the address of a Service, or of a balancer.
#[tokio::test]
async fn server_that_takes_the_place_of_another_one_at_its_address_is_checked_as_the_first_was() {
    let (old, new) = (RedisServer::start().await, lacking("EVALSHA").await);
    let proxy = Proxy::start(old.addr()).await;
    let client = Client::connect(&proxy.url()).await.unwrap();
    lock_once(&client, "k").await;
    proxy.set_target(new.addr());
    assert!(proxy.cut(Select::ALL) > 0);
    let error = client.lock("k").acquire().wait(SOON).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    for part in ["does not know EVALSHA,", &proxy.addr().to_string()] {
        assert!(text.contains(part), "{text}");
    }
    proxy.set_target(old.addr());
    let works = || async {
        let acquired = client.lock("k").acquire().wait(SOON).await;
        acquired.map(drop).map_err(|error| error.to_string())
    };
    eventually(SOON, "the old server", works).await;
}
