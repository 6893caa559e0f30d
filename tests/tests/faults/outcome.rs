//! Rows 1 to 10: the outcome of a command is unknown.

use std::time::Duration;

use distlock_tests::{Proxy, RedisServer, Select, Which};

use crate::row::{Row, rows};
use crate::support::{SOON, client, free, warm_up};

async fn f01_lost_reply_of_acquire_frees_the_lock(row: &Row) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let (unlucky, other) = (client(&proxy.url()).await, client(&server.url()).await);
    warm_up(&unlucky).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    let failed = unlucky.lock("k").acquire().wait(Duration::ZERO).await;
    assert!(failed.unwrap_err().is_unavailable());
    row.injected("reply eaten", fault.hits());
    // The lease is 30 s: only a release of the unknown hold frees it in time.
    let guard = other.lock("k").acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    free(&server, &[&unlucky, &other]).await;
}

rows! {
    Real: f01_lost_reply_of_acquire_frees_the_lock;
}
