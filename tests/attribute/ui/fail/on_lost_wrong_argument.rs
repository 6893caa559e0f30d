use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", on_lost = |text: String, _| Ok(id))]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
