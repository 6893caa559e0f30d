use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", mode = "fenced", token = token)]
async fn pay(id: u64) -> Result<u64, Error> {
    let text: &str = token;
    Ok(id + text.len() as u64)
}

fn main() {}
