//! Rows 6, 50 and 52 for semaphores and latches: what is sent twice counts once, also where memory is out, and what is no
//! number stays as it is.

use distlock::{Client, Error};
use distlock_tests::{Proxy, RedisServer, Select, Which};

use crate::row::{Row, rows};
use crate::support::{SOON, client, server_and_proxy};

async fn number(server: &RedisServer, key: &str) -> Option<i64> {
    server.try_cli(&["GET", key]).await.unwrap()
}

/// The next reply to a command about this key is never heard.
struct Eaten<'a> {
    proxy: &'a Proxy,
    row: &'a Row,
    key: &'a str,
}

impl Eaten<'_> {
    async fn while_doing<T>(&self, doing: impl Future<Output = Result<T, Error>>) -> T {
        let of_key = Which::NEXT.containing(self.key);
        let fault = self.proxy.eat_reply(Select::COMMANDS, of_key);
        let done = doing.await.unwrap();
        assert_eq!(fault.hits(), 1);
        self.row.injected("reply eaten", fault.hits());
        done
    }
}

async fn f06_permits_whose_replies_are_lost_are_conserved(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client(&proxy.url()).await;
    let (key, pool) = ("pool", client.semaphore("pool"));
    let eaten = Eaten {
        proxy: &proxy,
        row,
        key,
    };
    // The scripts are known from here on.
    warm_up(&client).await;
    assert!(eaten.while_doing(pool.try_set_permits(5)).await);
    assert_eq!(number(&server, key).await, Some(5));
    assert_eq!(eaten.while_doing(pool.add_permits(3)).await, 8);
    assert_eq!(eaten.while_doing(pool.add_permits(-2)).await, 6);
    assert_eq!(number(&server, key).await, Some(6));
    for _ in 0..3 {
        let acquire = pool.acquire_many(2).wait(SOON).into_future();
        let permits = eaten.while_doing(acquire).await;
        assert_eq!(number(&server, key).await, Some(4));
        eaten.while_doing(permits.release()).await;
        assert_eq!(number(&server, key).await, Some(6));
    }
    assert_eq!(eaten.while_doing(pool.drain_permits()).await, 6);
    assert_eq!(number(&server, key).await, Some(0));
}

async fn f06_counts_of_a_latch_whose_replies_are_lost_count_once(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = client(&proxy.url()).await;
    let (key, latch) = ("jobs", client.count_down_latch("jobs"));
    let eaten = Eaten {
        proxy: &proxy,
        row,
        key,
    };
    warm_up(&client).await;
    assert!(eaten.while_doing(latch.try_set_count(2)).await);
    assert_eq!(eaten.while_doing(latch.count_down()).await, 1);
    assert_eq!(number(&server, key).await, Some(1));
    assert_eq!(eaten.while_doing(latch.count_down()).await, 0);
    assert_eq!(number(&server, key).await, None);
}

/// Every script is sent once.
async fn warm_up(client: &Client) {
    let (pool, latch) = (client.semaphore("warm"), client.count_down_latch("up"));
    pool.add_permits(1).await.unwrap();
    pool.acquire().await.unwrap().release().await.unwrap();
    pool.delete().await.unwrap();
    latch.try_set_count(1).await.unwrap();
    latch.count_down().await.unwrap();
    latch.count().await.unwrap();
}

async fn f50_numbers_change_while_memory_is_out(row: &Row) {
    let server = RedisServer::start().await;
    let client = client(&server.url()).await;
    let pool = client.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    let held = pool.acquire().await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let set = server.try_cli::<redis::Value>(&["SET", "x", "y"]).await;
    let refused = set.unwrap_err().code() == Some("OOM");
    row.injected("write refused with OOM", u64::from(refused));
    held.release().await.unwrap();
    warm_up(&client).await;
    let permits = pool.acquire_many(2).await.unwrap();
    assert_eq!(pool.add_permits(1).await.unwrap(), 2);
    assert_eq!(pool.drain_permits().await.unwrap(), 2);
    permits.release().await.unwrap();
    assert_eq!(number(&server, "pool").await, Some(2));
}

/// What each operation of a semaphore and of a latch does to a key of another type.
async fn all_operations(client: &Client, key: &str) -> [Option<Error>; 12] {
    let (pool, latch) = (client.semaphore(key), client.count_down_latch(key));
    [
        pool.acquire().await.err(),
        pool.acquire().wait(SOON).await.err(),
        pool.try_acquire().await.err(),
        pool.try_set_permits(1).await.err(),
        pool.add_permits(1).await.err(),
        pool.drain_permits().await.err(),
        pool.available_permits().await.err(),
        pool.delete().await.err(),
        latch.try_set_count(1).await.err(),
        latch.count_down().await.err(),
        latch.wait().await.err(),
        latch.delete().await.err(),
    ]
}

async fn f52_value_that_is_not_a_number_is_an_error_and_stays(row: &Row) {
    let server = RedisServer::start().await;
    let client = client(&server.url()).await;
    let values: [&[&str]; 5] = [
        &["SET", "text", "precious"],
        &["SET", "decimal", "1.5"],
        &["SET", "empty", ""],
        &["RPUSH", "list", "precious"],
        &["HSET", "hash", "owner", "1"],
    ];
    for value in values {
        server.cli(value).await;
        let (key, before) = (value[1], server.cli(&["DUMP", value[1]]).await);
        for error in all_operations(&client, key).await {
            let error = error.expect("an error");
            assert!(matches!(error, Error::WrongType { .. }), "{error}");
            assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
            row.injected("WRONGTYPE", 1);
        }
        assert_eq!(server.cli(&["DUMP", key]).await, before);
        server.cli(&["DEL", key]).await;
    }
    // No mark of any request was left.
    assert_eq!(server.keys().await, Vec::<String>::new());
}

rows! {
    Real: f06_permits_whose_replies_are_lost_are_conserved,
        f06_counts_of_a_latch_whose_replies_are_lost_count_once,
        f50_numbers_change_while_memory_is_out,
        f52_value_that_is_not_a_number_is_an_error_and_stays;
}
