use super::*;

#[distributed_lock(key = "k", client = client, max_hold = "2s")]
async fn bounded(client: &Client, work: Duration) -> Result<(), Error> {
    sleep(work).await;
    Ok(())
}

#[distributed_lock(key = "k", client = client, max_hold = most)]
async fn bounded_by(client: &Client, most: Duration, work: Duration) -> Result<(), Error> {
    sleep(work).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn body_longer_than_max_hold_is_dropped_and_returns_the_loss() {
    let client = Client::in_memory();
    let second = Duration::from_secs(1);
    bounded(&client, second).await.unwrap();
    for ended in [
        bounded(&client, LONG).await,
        bounded_by(&client, second, LONG).await,
    ] {
        let error = ended.unwrap_err();
        assert!(error.is_lost() && !error.body_completed(), "{error:?}");
        assert!(error.to_string().contains("max_hold"), "{error}");
    }
    bounded_by(&client, Duration::MAX, LONG).await.unwrap();
}

#[distributed_lock(key = "k", client = client, max_waiters = 1)]
async fn one_waits(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = client, max_waiters = most)]
async fn some_wait(client: &Client, most: u32) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn call_beyond_max_waiters_is_overloaded() {
    let client = Client::in_memory();
    let guard = client.lock("k").acquire().await.unwrap();
    let freed = async {
        sleep(Duration::from_secs(1)).await;
        assert!(some_wait(&client, 1).await.unwrap_err().is_overloaded());
        let second = some_wait(&client, 2);
        let free = async { guard.release().await.unwrap() };
        let (second, ()) = tokio::join!(second, free);
        second.unwrap();
    };
    let (one, two, ()) = tokio::join!(one_waits(&client), one_waits(&client), freed);
    one.unwrap();
    assert!(two.unwrap_err().is_overloaded());
}
