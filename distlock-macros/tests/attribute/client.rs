use super::*;

#[distributed_lock(key = "k")]
async fn ambient(here: &Client) -> Result<bool, Error> {
    Ok(held(here, "k").await)
}

struct App(Client);

impl App {
    #[distributed_lock(key = "k", client = self.0)]
    async fn method(&self) -> Result<bool, Error> {
        Ok(held(&self.0, "k").await)
    }
}

// One test, because what is installed is the process's.
#[tokio::test]
async fn given_before_scoped_before_installed_before_an_error() {
    let (given, scoped, installed) = (
        Client::in_memory(),
        Client::in_memory(),
        Client::in_memory(),
    );
    let error = ambient(&installed).await.unwrap_err();
    assert!(error.is_misuse(), "{error:?}");
    installed.install();
    assert!(ambient(&installed).await.unwrap());
    with_client(&scoped, async {
        assert!(ambient(&scoped).await.unwrap());
        assert!(App(given).method().await.unwrap());
    })
    .await;
}
