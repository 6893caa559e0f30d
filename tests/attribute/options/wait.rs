use super::*;

#[distributed_lock(key = "k", client = client, wait = "2s")]
async fn text(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = client, wait = wait)]
async fn expression(client: &Client, wait: Duration) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = client, wait = 0)]
async fn none(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = client)]
async fn without_limit(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lock_held_longer_than_the_wait_is_busy_when_the_wait_ends() {
    let client = Client::in_memory();
    let _guard = client.lock("k").acquire().await.unwrap();
    let start = Instant::now();
    assert!(soon(text(&client)).await.unwrap_err().is_busy());
    assert_eq!(start.elapsed().as_secs(), 2);
    let wait = Duration::from_secs(3);
    assert!(soon(expression(&client, wait)).await.unwrap_err().is_busy());
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(soon(none(&client)).await.unwrap_err().is_busy());
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(timeout(LONG, without_limit(&client)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn lock_released_within_the_wait_is_granted() {
    let client = Client::in_memory();
    let guard = client.lock("k").acquire().await.unwrap();
    let freed = async {
        sleep(Duration::from_secs(1)).await;
        guard.release().await.unwrap();
    };
    let (waited, ()) = tokio::join!(text(&client), freed);
    waited.unwrap();
    none(&client).await.unwrap();
    without_limit(&client).await.unwrap();
}

#[distributed_lock(keys = ["k", "l"], client = client, wait = "0s")]
async fn several(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn zero_wait_makes_one_attempt_for_several_keys() {
    let client = Client::in_memory();
    several(&client).await.unwrap();
    let _guard = client.lock("l").acquire().await.unwrap();
    let start = Instant::now();
    assert!(soon(several(&client)).await.unwrap_err().is_busy());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(!held(&client, "k").await);
}
