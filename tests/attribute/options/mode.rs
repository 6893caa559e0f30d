use super::*;

/// Whether `body` is busy while another owner holds the read lock on `k`, and while one holds the write lock.
async fn busy_beside(client: &Client, body: impl AsyncFn() -> Result<(), Error>) -> [bool; 2] {
    let lock = client.rw_lock("k");
    let reader = lock.read().acquire().await.expect(MEMORY);
    let beside_reader = soon(body()).await;
    reader.release().await.expect(MEMORY);
    let _writer = lock.write().acquire().await.expect(MEMORY);
    [beside_reader, soon(body()).await].map(|done| done.is_err_and(|error| error.is_busy()))
}

#[distributed_lock(key = "k", client = client, wait = 0, mode = "read")]
async fn read(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = client, wait = 0, mode = write)]
async fn write(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_writers_do_not() {
    let client = Client::in_memory();
    assert_eq!(
        busy_beside(&client, async || read(&client).await).await,
        [false, true]
    );
    assert_eq!(
        busy_beside(&client, async || write(&client).await).await,
        [true, true]
    );
}

#[distributed_lock(keys = ["k", "l"], client = client, wait = 0, mode = "read")]
async fn read_several(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn mode_applies_to_several_keys() {
    let client = Client::in_memory();
    let busy = busy_beside(&client, async || read_several(&client).await).await;
    assert_eq!(busy, [false, true]);
}

#[distributed_lock(key = "k", client = client, mode = non_reentrant)]
async fn once(client: &Client, depth: u8) -> Result<u8, Error> {
    match depth {
        0 => Ok(0),
        _ => Box::pin(once(client, depth - 1)).await,
    }
}

#[distributed_lock(key = "k", client = client)]
async fn again(client: &Client, depth: u8) -> Result<u8, Error> {
    match depth {
        0 => Ok(0),
        _ => Box::pin(again(client, depth - 1)).await,
    }
}

#[tokio::test(start_paused = true)]
async fn nested_non_reentrant_call_is_an_error_and_nested_default_call_reenters() {
    let client = Client::in_memory();
    soon(once(&client, 0)).await.unwrap();
    let error = soon(once(&client, 1)).await.unwrap_err();
    assert!(matches!(error, Error::Deadlock { .. }), "{error:?}");
    soon(again(&client, 1)).await.unwrap();
}

/// A function in this mode. Inside of it, the lock that the client makes of the same kind is entered again.
macro_rules! of_kind {
    ($mode:ident, $lock:ident) => {
        #[distributed_lock(key = "k", client = client, mode = $mode)]
        async fn $mode(client: &Client) -> Result<(), Error> {
            let again = client.$lock("k").acquire();
            again.wait(Duration::ZERO).run(async {}).await
        }
    };
}

of_kind!(reentrant, lock);
of_kind!(spin, spin_lock);
of_kind!(fenced, fenced_lock);
of_kind!(fair, fair_lock);
of_kind!(non_reentrant, non_reentrant_lock);
of_kind!(non_reentrant_fair, non_reentrant_fair_lock);

#[tokio::test]
async fn every_mode_takes_the_lock_of_its_kind() {
    let client = Client::in_memory();
    reentrant(&client).await.unwrap();
    spin(&client).await.unwrap();
    fenced(&client).await.unwrap();
    fair(&client).await.unwrap();
    for refused in [
        non_reentrant(&client).await,
        non_reentrant_fair(&client).await,
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Deadlock { .. }), "{error:?}");
    }
}
