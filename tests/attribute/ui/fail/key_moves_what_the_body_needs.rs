use distlock::{Error, distributed_lock};

#[distributed_lock(key = name)]
async fn pay(name: String) -> Result<usize, Error> {
    Ok(name.len())
}

fn main() {}
