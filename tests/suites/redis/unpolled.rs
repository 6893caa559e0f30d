//! Futures that are polled once and then left: their answers arrive and stay unread.

use distlock::{Acquiring, Client};
use distlock_tests::{RedisServer, eventually_eq};
use futures_util::future::poll_immediate;
use tokio::task::unconstrained;

use super::SOON;

/// More than twice as many as the attempts that a client leaves unanswered at once.
const LEFT: usize = 1_200;

/// Polls these futures once, without the budget of a task, which so many in one would use up.
async fn poll_once<F: Future + Unpin>(left: &mut [F]) {
    let poll = async {
        for future in left {
            assert!(poll_immediate(future).await.is_none());
        }
    };
    unconstrained(poll).await;
}

/// Begins this many acquisitions, each of another key, and leaves them after one poll. Other acquisitions are served.
async fn leave_acquisitions(client: &Client) -> Vec<Acquiring> {
    let acquire = |n| client.lock(format!("left:{n}")).acquire().into_future();
    let mut left: Vec<_> = (0..LEFT).map(acquire).collect();
    poll_once(&mut left).await;
    others_are_served(client).await;
    left
}

async fn keys(server: &RedisServer) -> u64 {
    server.try_cli(&["DBSIZE"]).await.unwrap()
}

async fn others_are_served(client: &Client) {
    for n in 0..4 {
        let acquire = client.lock(format!("other:{n}")).acquire();
        let guard = acquire.wait(SOON).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn attempts_whose_answers_nobody_takes_do_not_stop_the_client() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let left = leave_acquisitions(&client).await;
    // Single tries need a slot too.
    let tried = client
        .lock("tried")
        .acquire()
        .wait(std::time::Duration::ZERO);
    tried.await.unwrap().release().await.unwrap();
    drop(left);
    eventually_eq(SOON, "keys", 0, || keys(&server)).await;
}

#[tokio::test]
async fn questions_for_a_latch_whose_answers_nobody_takes_do_not_stop_the_client() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let latch = client.count_down_latch("import");
    assert!(latch.try_set_count(1).await.unwrap());
    let mut left: Vec<_> = (0..LEFT).map(|_| latch.wait().into_future()).collect();
    poll_once(&mut left).await;
    others_are_served(&client).await;
    drop(left);
}

#[tokio::test]
async fn attempts_that_are_left_and_then_polled_are_granted() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let left = leave_acquisitions(&client).await;
    for acquired in futures_util::future::join_all(left).await {
        acquired.unwrap().release().await.unwrap();
    }
    assert_eq!(keys(&server).await, 0);
}
