use distlock::{Client, Error, distributed_lock};

#[distributed_lock(key = "order:<id>", client = client, wait = "5s", on_busy = |_| Ok([false; 2]))]
#[distributed_lock(key = "stock:<id>", client = client, mode = "read")]
pub async fn two(client: &Client, id: u64) -> Result<[bool; 2], Error> {
    Ok([
        distlock::is_held(&format!("order:{id}")),
        distlock::is_held(&format!("stock:{id}")),
    ])
}

#[tokio::test]
async fn runs() -> Result<(), Error> {
    let client = Client::in_memory();
    assert_eq!(two(&client, 1).await?, [true; 2]);
    let _order = client.lock("order:1").acquire().await?;
    let waits = tokio::time::timeout(std::time::Duration::ZERO, two(&client, 1));
    assert!(waits.await.is_err());
    Ok(())
}
