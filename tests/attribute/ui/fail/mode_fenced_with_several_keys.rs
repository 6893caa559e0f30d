use distlock::{Error, distributed_lock};

#[distributed_lock(keys = ["pay:<id>", "stock:<id>"], mode = "fenced")]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
