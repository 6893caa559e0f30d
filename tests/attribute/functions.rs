use super::*;

#[async_trait::async_trait]
trait Shop {
    fn client(&self) -> &Client;

    #[distributed_lock(key = "<item>", client = self.client())]
    async fn buy(&self, item: String) -> Result<bool, Error> {
        Ok(held(self.client(), &item).await)
    }

    async fn sell(&mut self, item: &str) -> Result<bool, Error>;

    async fn swap(self, pair: (String, u8)) -> Result<bool, Error>;
}

#[async_trait::async_trait]
impl Shop for Client {
    fn client(&self) -> &Client {
        self
    }

    #[distributed_lock(key = "<item>", client = self)]
    async fn sell(&mut self, item: &str) -> Result<bool, Error> {
        Ok(held(self, item).await)
    }

    #[distributed_lock(key = "<given>:<taken>", client = self)]
    async fn swap(self, (mut given, taken): (String, u8)) -> Result<bool, Error> {
        given.push_str(":1");
        Ok(held(&self, &given).await && taken == 1)
    }
}

#[tokio::test]
async fn methods_under_async_trait_hold_the_lock() {
    let mut client = Client::in_memory();
    assert!(client.buy("a".to_owned()).await.unwrap());
    assert!(client.sell("a").await.unwrap());
    assert!(client.swap(("a".to_owned(), 1)).await.unwrap());
}

#[expect(clippy::manual_async_fn)]
#[distributed_lock(key = "k", client = client)]
fn opaque(client: &Client) -> impl Future<Output = Result<bool, Error>> + Send {
    async move { Ok(held(client, "k").await) }
}

#[tokio::test]
async fn functions_that_return_an_async_block_hold_the_lock() {
    assert!(opaque(&Client::in_memory()).await.unwrap());
}

#[distributed_lock(key = "k", client = client)]
#[tracing::instrument(skip_all)]
async fn instrumented_below(client: &Client) -> Result<bool, Error> {
    Ok(held(client, "k").await)
}

#[tracing::instrument(skip_all)]
#[distributed_lock(key = "k", client = client)]
async fn instrumented_above(client: &Client) -> Result<bool, Error> {
    Ok(held(client, "k").await)
}

#[tokio::test]
async fn instrumented_functions_hold_the_lock() {
    let client = Client::in_memory();
    assert!(instrumented_below(&client).await.unwrap());
    assert!(instrumented_above(&client).await.unwrap());
}

#[distributed_lock(key = "<depth>", client = client)]
async fn recursive(client: &Client, depth: u8) -> Result<u8, Error> {
    match depth {
        0 => Ok(0),
        _ => Ok(1 + Box::pin(recursive(client, depth - 1)).await?),
    }
}

#[tokio::test]
async fn recursion_locks_at_each_level() {
    assert_eq!(recursive(&Client::in_memory(), 3).await.unwrap(), 3);
}

async fn plain(client: &Client, large: [u8; 4096]) -> Result<usize, Error> {
    sleep(LONG).await;
    Ok(large.len() + usize::from(held(client, "k").await))
}

#[distributed_lock(key = "k", client = client)]
async fn locked(client: &Client, large: [u8; 4096]) -> Result<usize, Error> {
    sleep(LONG).await;
    Ok(large.len() + usize::from(held(client, "k").await))
}

#[test]
fn future_grows_by_at_most_half_a_kib_and_the_arguments_by_value() {
    let client = Client::in_memory();
    let large = [0; 4096];
    let added = size_of_val(&locked(&client, large)) - size_of_val(&plain(&client, large));
    assert!(added <= size_of_val(&large) + 512, "{added} bytes");
}
