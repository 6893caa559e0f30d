//! Futures that are polled once and then left: their answers arrive and stay unread.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Acquiring, Client};
use distlock_tests::{RedisServer, eventually, eventually_eq};
use futures_util::future::poll_immediate;
use tokio::task::unconstrained;
use tokio::time::timeout;

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
    let tried = client.lock("tried").acquire().wait(Duration::ZERO);
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

/// The server does not know the scripts, and counts its commands from now on.
async fn forget_scripts(server: &RedisServer) {
    server.cli(&["SCRIPT", "FLUSH"]).await;
    server.cli(&["CONFIG", "RESETSTAT"]).await;
}

/// An acquisition was polled once, and left before it read that the server does not know its script. Its owner was ended.
async fn is_ended(server: &RedisServer) {
    let released = async || server.command_calls("EVAL").await > 0;
    eventually(SOON, "the release of its owner", released).await;
}

#[tokio::test]
async fn attempt_that_is_left_before_its_script_is_known_is_granted_when_it_is_polled_again() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    forget_scripts(&server).await;
    let mut left = client.lock("order:42").acquire().into_future();
    poll_once(std::slice::from_mut(&mut left)).await;
    is_ended(&server).await;
    let guard = timeout(SOON, left)
        .await
        .expect("its own hold is in the way");
    guard.unwrap().release().await.unwrap();
    assert_eq!(keys(&server).await, 0);
}

#[tokio::test]
async fn attempt_that_is_left_again_after_its_owner_was_ended_leaves_nothing() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    forget_scripts(&server).await;
    let multi = client.multi_lock(["order:42", "stock:7"]);
    let mut left = multi.acquire().into_future();
    poll_once(std::slice::from_mut(&mut left)).await;
    is_ended(&server).await;
    let sent = async || server.command_calls("EVAL").await + server.command_calls("EVALSHA").await;
    let before = sent().await;
    poll_once(std::slice::from_mut(&mut left)).await;
    eventually(SOON, "the next attempt", async || sent().await > before).await;
    eventually_eq(SOON, "keys", 0, || keys(&server)).await;
    drop(left);
}

#[tokio::test]
async fn permit_of_an_attempt_that_is_polled_after_its_owner_is_forgotten_is_not_lost() {
    let server = RedisServer::start().await;
    // So long the server remembers an owner that has ended.
    let builder = Client::builder()
        .watchdog_timeout(Duration::from_secs(1))
        .unavailable_after(Duration::from_secs(1));
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("seats");
    assert!(semaphore.try_set_permits(1).await.unwrap());
    forget_scripts(&server).await;
    let mut left = semaphore.acquire().into_future();
    assert!(poll_immediate(&mut left).await.is_none());
    is_ended(&server).await;
    // What is left is the semaphore.
    eventually_eq(SOON, "keys", 1, || keys(&server)).await;
    let permit = timeout(SOON, left).await.expect("the permit is lost");
    permit.unwrap().release().await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
}

/// Its task waits for a slot until the server runs again, and finds the caller still there.
#[tokio::test]
async fn attempt_that_a_task_sends_behind_the_release_of_its_owner_is_ended() {
    let mut server = RedisServer::start().await;
    let builder = Client::builder()
        .response_timeout(Duration::from_secs(6))
        .watchdog_timeout(Duration::from_secs(300));
    let client = builder.connect(&server.url()).await.unwrap();
    // The server knows the scripts. Fenced locks go alone.
    let acquire = |key: String| client.fenced_lock(key).acquire().into_future();
    acquire("known".to_owned())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    server.stop();
    let others: Vec<_> = (0..LEFT)
        .map(|n| tokio::spawn(acquire(format!("other:{n}"))))
        .collect();
    let in_line = async || sizes(&client).keys == LEFT;
    eventually(SOON, "the attempts before it", in_line).await;
    let mut left = acquire("left".to_owned());
    assert!(poll_immediate(&mut left).await.is_none());
    let released = async || sizes(&client).pending_releases > 0;
    eventually(SOON, "the release of its owner", released).await;
    server.cont();
    let is_held = async || server.try_cli::<u64>(&["EXISTS", "left"]).await.unwrap() == 1;
    eventually(SOON, "its grant", is_held).await;
    let is_free = async || !is_held().await;
    eventually(3 * SOON, "the end of its owner", is_free).await;
    drop(left);
    for other in others {
        other.await.unwrap().unwrap().release().await.unwrap();
    }
}
