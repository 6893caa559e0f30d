use super::*;

#[distributed_lock(key = "k", client = client, lease = "1s")]
async fn fixed(client: &Client, work: Duration) -> Result<(), Error> {
    sleep(work).await;
    Ok(())
}

#[distributed_lock(key = "k", client = client)]
async fn renewed(client: &Client, work: Duration) -> Result<(), Error> {
    sleep(work).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn body_longer_than_its_lease_is_dropped_and_returns_the_loss() {
    let client = Client::in_memory();
    fixed(&client, Duration::from_millis(500)).await.unwrap();
    let start = Instant::now();
    let error = fixed(&client, LONG).await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert!(!error.body_completed());
    assert!(start.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_the_watchdog_renews_the_lock() {
    renewed(&Client::in_memory(), LONG).await.unwrap();
}
