use distlock::{Client, Error};

async fn import(client: &Client) -> Result<(), Error> {
    client.count_down_latch("import:parts").await
}

fn main() {
    let _ = import(&Client::in_memory());
}
