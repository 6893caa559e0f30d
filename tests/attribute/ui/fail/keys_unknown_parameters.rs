use distlock::{Error, distributed_lock};

#[distributed_lock(keys = ["order:<idd>", "stock:<itm>"])]
async fn pay(id: u64, item: u64) -> Result<u64, Error> {
    Ok(id + item)
}

fn main() {}
