use distlock::{Client, Error};

async fn show(client: &Client) -> Result<(), Error> {
    let guard = client.rw_lock("report:42").await?;
    guard.release().await
}

fn main() {
    let _ = show(&Client::in_memory());
}
