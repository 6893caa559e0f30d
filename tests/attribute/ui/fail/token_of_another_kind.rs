use distlock::{Client, Error};

async fn token(client: &Client) -> Result<u64, Error> {
    let guard = client.lock("order:42").acquire().await?;
    Ok(guard.token())
}

fn main() {}
