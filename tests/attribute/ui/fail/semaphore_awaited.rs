use distlock::{Client, Error};

async fn print(client: &Client) -> Result<(), Error> {
    let permit = client.semaphore("printers").await?;
    permit.release().await
}

fn main() {
    let _ = print(&Client::in_memory());
}
