use distlock::{Error, distributed_lock};

#[deny(unused_variables)]
#[distributed_lock(key = "pay:<id>", mode = "fenced", token = token)]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
