use super::*;

#[derive(Debug, PartialEq)]
enum Failed {
    Body,
    Lock { completed: bool },
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        assert!(error.is_lost(), "{error:?}");
        let completed = error.body_completed();
        Self::Lock { completed }
    }
}

#[distributed_lock(key = "k", client = client)]
async fn loses(client: &Client, result: Result<u8, Failed>) -> Result<u8, Failed> {
    client.lock("k").force_release().await?;
    result
}

#[distributed_lock(key = "k", client = client, on_error = |error| Err(error.into()))]
async fn handled(client: &Client, result: Result<u8, Failed>) -> Result<u8, Failed> {
    client.lock("k").force_release().await?;
    result
}

#[tokio::test]
async fn ok_is_replaced_by_the_loss_and_err_is_kept() {
    let client = Client::in_memory();
    let lost = Err(Failed::Lock { completed: true });
    assert_eq!(loses(&client, Ok(1)).await, lost);
    assert_eq!(loses(&client, Err(Failed::Body)).await, Err(Failed::Body));
    assert_eq!(handled(&client, Ok(1)).await, lost);
    assert_eq!(handled(&client, Err(Failed::Body)).await, Err(Failed::Body));
}
