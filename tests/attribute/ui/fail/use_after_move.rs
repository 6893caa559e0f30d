use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<name>")]
async fn pay(name: String) -> Result<String, Error> {
    drop(name);
    Ok(name)
}

fn main() {}
