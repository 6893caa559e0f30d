//! Rows 41, 51 and 71: what the log says of a server that is away, that evicts locks, and of a client that ends.

use distlock::Client;
use distlock_tests::log::lines_with;
use distlock_tests::server::{free_port, loopback};
use distlock_tests::{RedisServer, eventually_eq};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, default_client, listened, ms, warm_up};

async fn f41_outage_is_logged_when_it_begins_and_when_it_is_over(row: &Row) {
    let mut server = RedisServer::start().await;
    let address = server.addr().to_string();
    // The default user has no password, so every password is right.
    let url = format!("redis://default:SECRET@{address}");
    let client = client_with(&url, |builder| builder).await;
    warm_up(&client).await;
    // So that the connection for messages is lost as well.
    let other = default_client(&server.url()).await;
    let held = other.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(client.lock("k").acquire().into_future());
    listened(&server, "k", 1).await;
    drop((held, other));
    drop(waiter.await.unwrap().unwrap());
    let before = lines_with(&[&address]);
    server.kill();
    row.injected("server killed", 1);
    for _ in 0..3 {
        let failed = client.lock("free").acquire().wait(ms(300)).await;
        assert!(failed.unwrap_err().is_unavailable());
    }
    let began = ["WARN", &address, "connection to the lock server lost"];
    assert_eq!(lines_with(&began), 1);
    server.restart().await;
    let over = ["INFO", &address, "connected to the lock server again"];
    eventually_eq(SOON, "told that it is over", 1, || async {
        lines_with(&over)
    })
    .await;
    assert_eq!(lines_with(&[&address]) - before, 2);
    assert_eq!(lines_with(&["SECRET"]), 0);
    // A connection is no command: nothing is said of what became of one.
    let nowhere = loopback(free_port());
    let lazy = Client::connect_lazy(&format!("redis://{nowhere}")).unwrap();
    let nowhere = nowhere.to_string();
    let told = ["WARN", &nowhere, "reason=Connection refused"];
    eventually_eq(SOON, "told why", 1, || async { lines_with(&told) }).await;
    drop(lazy);
}

async fn f51_server_that_evicts_is_warned_of_at_connect(row: &Row) {
    let warning = |server: &RedisServer| {
        let address = server.addr().to_string();
        lines_with(&["WARN", &address, "maxmemory-policy"])
    };
    for (policy, warned) in [("allkeys-lru", 1), ("volatile-ttl", 1), ("noeviction", 0)] {
        let builder = RedisServer::builder().arg("--maxmemory", "50mb");
        let server = builder.arg("--maxmemory-policy", policy).start().await;
        let client = default_client(&server.url()).await;
        warm_up(&client).await;
        assert_eq!(warning(&server), warned, "{policy}");
        row.injected("policy that evicts", warned as u64);
    }
}

async fn f71_client_that_ends_says_nothing(row: &Row) {
    let server = RedisServer::start().await;
    let (url, address) = (server.url(), server.addr().to_string());
    for (closes, outlives, threads) in [
        (false, false, 1),
        (true, false, 2),
        (false, true, 2),
        (true, true, 1),
    ] {
        let url = url.clone();
        let program = move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(threads).enable_all().build();
            let runtime = runtime.unwrap();
            let client = runtime.block_on(async {
                let (client, other) = (default_client(&url).await, default_client(&url).await);
                let held = other.lock("k").acquire().await.unwrap();
                let waiter = tokio::spawn(client.lock("k").acquire().into_future());
                tokio::time::sleep(ms(100)).await;
                held.release().await.unwrap();
                waiter.await.unwrap().unwrap().release().await.unwrap();
                if closes {
                    client.close(SOON).await.unwrap();
                }
                outlives.then_some(client)
            });
            drop(runtime);
            drop(client);
        };
        tokio::task::spawn_blocking(program).await.unwrap();
        row.injected("runtime ended", 1);
    }
    assert_eq!(lines_with(&["WARN", &address]), 0);
    assert_eq!(lines_with(&["INFO", &address]), 0);
}

rows! {
    Real:
        f41_outage_is_logged_when_it_begins_and_when_it_is_over,
        f51_server_that_evicts_is_warned_of_at_connect,
        f71_client_that_ends_says_nothing;
}
