//! Subscriptions whose runtime ends before that of their waiters.

use std::future::IntoFuture;

use distlock::Client;
use distlock_tests::{RedisServer, eventually};
use futures_util::future::poll_immediate;
use tokio::runtime;
use tokio::time::timeout;

use super::{SOON, listened};

#[tokio::test]
async fn wait_until_a_key_is_free_listens_again_after_the_end_of_the_runtime_that_listened() {
    let server = RedisServer::start().await;
    let holder = Client::connect(&server.url()).await.unwrap();
    let held = holder.lock("k").acquire().await.unwrap();
    let taken = holder.lock("other").acquire().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let ending = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    // What listens runs there.
    ending.spawn(client.lock("other").acquire().into_future());
    listened(&server, "other", 1).await;
    let lock = client.lock("k");
    let mut waiting = Box::pin(lock.until_free().into_future());
    assert!(poll_immediate(&mut waiting).await.is_none());
    let waiting = tokio::spawn(waiting);
    listened(&server, "k", 1).await;
    let before = server.command_calls("subscribe").await;
    ending.shutdown_background();
    let listens_again = || async { server.command_calls("subscribe").await > before };
    eventually(SOON, "a subscription", listens_again).await;
    listened(&server, "k", 1).await;
    held.release().await.unwrap();
    timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    taken.release().await.unwrap();
}
