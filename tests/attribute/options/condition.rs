use super::*;

#[distributed_lock(key = "order:<id>", client = client, wait = 0, condition = *amount > 100)]
async fn large_only(client: &Client, id: &str, amount: &u64) -> Result<bool, Error> {
    Ok(held(client, "order:7").await)
}

#[tokio::test(start_paused = true)]
async fn true_locks_and_false_runs_the_body_without_the_lock() {
    let client = Client::in_memory();
    assert!(large_only(&client, "7", &101).await.unwrap());
    assert!(!large_only(&client, "7", &100).await.unwrap());
    let _guard = client.lock("order:7").acquire().await.unwrap();
    let busy = soon(large_only(&client, "7", &101)).await.unwrap_err();
    assert!(busy.is_busy(), "{busy:?}");
    assert!(soon(large_only(&client, "7", &100)).await.unwrap());
}

#[tokio::test]
async fn false_does_not_evaluate_the_key() {
    let client = Client::in_memory();
    let error = large_only(&client, "", &101).await.unwrap_err();
    assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
    assert!(!large_only(&client, "", &100).await.unwrap());
}

#[distributed_lock(keys = ["a", ..rest.iter().copied()], client = client, condition = !rest.is_empty())]
async fn keys(client: &Client, rest: &[&str]) -> Result<[bool; 2], Error> {
    Ok([held(client, "a").await, held(client, "b").await])
}

#[tokio::test]
async fn condition_applies_to_several_keys() {
    let client = Client::in_memory();
    assert_eq!(keys(&client, &["b"]).await.unwrap(), [true, true]);
    assert_eq!(keys(&client, &[]).await.unwrap(), [false, false]);
}

#[distributed_lock(key = "k", client = client, condition = locked)]
async fn nested(client: &Client, locked: bool, depth: u8) -> Result<bool, Error> {
    match depth {
        0 => Ok(held(client, "k").await),
        _ => Box::pin(nested(client, !locked, depth - 1)).await,
    }
}

#[tokio::test]
async fn body_without_the_lock_keeps_the_enclosing_scope() {
    let client = Client::in_memory();
    assert!(nested(&client, true, 1).await.unwrap());
    assert!(nested(&client, true, 2).await.unwrap(), "it re-enters");
    assert!(!nested(&client, false, 0).await.unwrap());
}

#[distributed_lock(key = "k", client = client, condition = false)]
async fn never(client: &Client, result: Result<u8, Error>) -> Result<u8, Error> {
    sleep(Duration::from_secs(1)).await;
    result
}

#[tokio::test(start_paused = true)]
async fn body_without_the_lock_returns_its_own_result() {
    let client = Client::in_memory();
    assert_eq!(never(&client, Ok(3)).await.unwrap(), 3);
    let error = never(&client, Err(Error::NoKeys)).await.unwrap_err();
    assert!(matches!(error, Error::NoKeys), "{error:?}");
}
