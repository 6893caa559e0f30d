use super::*;

#[distributed_lock(key = "k", client = client, wait = 0, hold_at_least = "10s")]
async fn rests(client: &Client, work: Duration) -> Result<(), Error> {
    sleep(work).await;
    Ok(())
}

#[distributed_lock(key = "k", client = client, wait = 0, hold_at_least = 0)]
async fn ends(client: &Client, work: Duration) -> Result<(), Error> {
    sleep(work).await;
    Ok(())
}

#[distributed_lock(keys = ["k", "l"], client = client, wait = 0, lease = "10s", hold_at_least = least)]
async fn as_long_as(client: &Client, least: Duration) -> Result<(), Error> {
    Ok(())
}

/// How long after `start` the key is free.
async fn free_after(client: &Client, key: &str, start: Instant) -> Duration {
    let guard = soon(client.lock(key).acquire().into_future()).await;
    let after = start.elapsed();
    guard.expect(MEMORY).release().await.expect(MEMORY);
    after
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn key_stays_locked_until_hold_at_least_ends_and_is_free_at_once_with_zero() {
    let client = Client::in_memory();
    let start = Instant::now();
    rests(&client, SECOND).await.unwrap();
    assert_eq!(start.elapsed(), SECOND);
    assert!(rests(&client, SECOND).await.unwrap_err().is_busy());
    assert!(free_after(&client, "k", start).await >= 10 * SECOND);

    let start = Instant::now();
    ends(&client, SECOND).await.unwrap();
    assert_eq!(free_after(&client, "k", start).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn body_longer_than_hold_at_least_frees_the_key_when_it_ends() {
    let client = Client::in_memory();
    let start = Instant::now();
    rests(&client, 20 * SECOND).await.unwrap();
    assert_eq!(free_after(&client, "k", start).await, 20 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn expression_applies_to_several_keys_and_must_not_exceed_the_lease() {
    let client = Client::in_memory();
    let start = Instant::now();
    as_long_as(&client, 5 * SECOND).await.unwrap();
    assert!(free_after(&client, "l", start).await >= 5 * SECOND);
    let error = as_long_as(&client, 11 * SECOND).await.unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
}

#[distributed_lock(key = "k", client = servers, wait = 0, hold_at_least = "10s")]
async fn rests_on_a_majority(servers: &Quorum) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hold_at_least_works_with_a_redlock() {
    let servers: Vec<_> = (0..3).map(|_| Client::in_memory()).collect();
    let red_lock = Quorum::new(servers.clone());
    let start = Instant::now();
    rests_on_a_majority(&red_lock).await.unwrap();
    assert!(rests_on_a_majority(&red_lock).await.unwrap_err().is_busy());
    for server in &servers {
        assert!(free_after(server, "k", start).await >= 10 * SECOND);
    }
}
