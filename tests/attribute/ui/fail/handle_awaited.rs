use distlock::{Client, Error};

async fn pay(client: &Client) -> Result<(), Error> {
    let guard = client.lock("order:42").await?;
    guard.release().await
}

fn main() {
    let _ = pay(&Client::in_memory());
}
