use distlock::MemoryServer;

use super::*;

#[derive(Debug, PartialEq)]
enum Made {
    Body,
    OnBusy,
    OnError { completed: bool },
}

fn on_error(error: Error) -> Made {
    let completed = error.body_completed();
    Made::OnError { completed }
}

#[distributed_lock(key = "k", client = client, wait = 0, on_busy = |_| Made::OnBusy, on_error = on_error)]
async fn both(client: &Client) -> Made {
    Made::Body
}

#[distributed_lock(key = "k", client = client, wait = 0, on_error = on_error)]
async fn on_error_only(client: &Client) -> Made {
    Made::Body
}

#[distributed_lock(key = "k", client = client, wait = 0, on_busy = |_| Ok(Made::OnBusy))]
async fn on_busy_only(client: &Client) -> Result<Made, Error> {
    Ok(Made::Body)
}

#[distributed_lock(key = "<key>", client = client, wait = 0, on_busy = |_| Made::OnBusy, on_error = on_error)]
async fn invalid(client: &Client, key: &str) -> Made {
    Made::Body
}

#[tokio::test(start_paused = true)]
async fn busy_goes_to_on_busy_or_without_it_to_on_error() {
    let client = Client::in_memory();
    assert_eq!(both(&client).await, Made::Body);
    assert_eq!(on_error_only(&client).await, Made::Body);
    assert_eq!(on_busy_only(&client).await.unwrap(), Made::Body);
    let _guard = client.lock("k").acquire().await.unwrap();
    assert_eq!(soon(both(&client)).await, Made::OnBusy);
    assert_eq!(
        soon(on_error_only(&client)).await,
        Made::OnError { completed: false }
    );
    assert_eq!(soon(on_busy_only(&client)).await.unwrap(), Made::OnBusy);
}

#[distributed_lock(key = "k", client = client, on_busy = |_| Made::OnBusy, on_error = on_error)]
async fn waits(client: &Client) -> Made {
    Made::Body
}

#[tokio::test(start_paused = true)]
async fn invalid_key_and_waiter_limit_go_to_on_error() {
    let made = invalid(&Client::in_memory(), "").await;
    assert_eq!(made, Made::OnError { completed: false });
    let crowded = Client::builder().max_waiters(0);
    let crowded = crowded.in_memory(&MemoryServer::new()).unwrap();
    let _guard = crowded.lock("k").acquire().await.unwrap();
    let made = soon(waits(&crowded)).await;
    assert_eq!(made, Made::OnError { completed: false });
}

#[distributed_lock(key = "k", client = client, on_busy = |_| Made::OnBusy, on_error = on_error)]
async fn loses(client: &Client) -> Made {
    client.lock("k").force_release().await.expect(MEMORY);
    Made::Body
}

#[tokio::test]
async fn loss_after_a_body_that_returns_no_result_goes_to_on_error() {
    assert_eq!(
        loses(&Client::in_memory()).await,
        Made::OnError { completed: true }
    );
}
