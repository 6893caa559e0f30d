//! Fencing tokens: each grant has a higher one than the last grant, with any events in between.

use std::time::Duration;

use distlock::Client;
use distlock_tests::faults::{Fault, Op};

use crate::conformance::stage::Stage;

const KEY: &str = "order:42";

on_every_backend![
    tokens_grow_across_release_expiry_and_force_release,
    tokens_grow_across_clients_and_restarts_of_clients,
    token_is_the_same_when_the_lock_is_entered_again,
    attempt_sent_twice_has_one_token,
    new_clients_get_higher_tokens_after_the_server_lost_the_last_or_all_data,
    one_client_sees_no_lower_token_after_the_server_lost_its_data,
    waiters_get_tokens_in_the_order_of_their_grants,
    each_key_has_tokens_of_its_own,
];

async fn next_token(client: &Client) -> u64 {
    let guard = client.fenced_lock(KEY).acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

async fn tokens_grow_across_release_expiry_and_force_release(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.fenced_lock(KEY);
    let mut last = next_token(&client).await;
    assert!(last > 0);
    for round in 0..9 {
        let lease = Duration::from_millis(if round % 3 == 0 { 20 } else { 100_000 });
        let guard = lock.acquire().lease(lease).await.unwrap();
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        match round % 3 {
            0 => guard.lost().await,
            1 => assert!(lock.force_release().await.unwrap()),
            _ => guard.release().await.unwrap(),
        }
    }
}

async fn tokens_grow_across_clients_and_restarts_of_clients(stage: &Stage) {
    let mut last = 0;
    for _ in 0..5 {
        let client = stage.unlisted_client().await;
        let token = next_token(&client).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        client.close(stage.lease()).await.unwrap();
    }
}

async fn token_is_the_same_when_the_lock_is_entered_again(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.fenced_lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let nested = guard.scope(lock.acquire().into_future()).await.unwrap();
    assert_eq!(nested.unwrap().token(), guard.token());
    assert_eq!(guard.reenter().unwrap().token(), guard.token());
    guard.release().await.unwrap();
}

async fn attempt_sent_twice_has_one_token(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let before = next_token(&other).await;
    for fault in [Fault::Double, Fault::FailAfter] {
        stage.faults().next(Op::Attempt, fault);
        let token = next_token(&client).await;
        assert!(token > before);
        assert!(next_token(&other).await > token);
    }
    assert_eq!(stage.faults().hits(Op::Attempt), 2);
}

async fn new_clients_get_higher_tokens_after_the_server_lost_the_last_or_all_data(stage: &Stage) {
    let mut last = 0;
    for round in 0..6 {
        let client = stage.unlisted_client().await;
        let token = next_token(&client).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        match round % 2 {
            0 => stage.wipe().await,
            _ => stage.lose_token(KEY).await,
        }
    }
}

async fn one_client_sees_no_lower_token_after_the_server_lost_its_data(stage: &Stage) {
    let client = stage.client().await;
    let mut last = next_token(&client).await;
    for _ in 0..3 {
        stage.wipe().await;
        let token = next_token(&client).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

async fn waiters_get_tokens_in_the_order_of_their_grants(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let granted = std::sync::Mutex::new(Vec::new());
    let one = |client: &Client| {
        let lock = client.fenced_lock(KEY);
        let granted = &granted;
        async move {
            let guard = lock.acquire().await.unwrap();
            granted.lock().unwrap().push(guard.token());
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }
    };
    let crowd = (0..20).map(|n| one(&clients[n % 2]));
    futures_util::future::join_all(crowd).await;
    let granted = granted.into_inner().unwrap();
    assert_eq!(granted.len(), 20);
    assert!(granted.is_sorted_by(|one, next| one < next), "{granted:?}");
}

async fn each_key_has_tokens_of_its_own(stage: &Stage) {
    let client = stage.client().await;
    let one = client.fenced_lock("a").acquire().await.unwrap();
    let two = client.fenced_lock("b").acquire().await.unwrap();
    assert!(one.token() > 0 && two.token() > 0);
    let (a, b) = (one.token(), two.token());
    one.release().await.unwrap();
    two.release().await.unwrap();
    assert!(client.fenced_lock("a").acquire().await.unwrap().token() > a);
    assert!(client.fenced_lock("b").acquire().await.unwrap().token() > b);
}
