use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
async fn pay(id: u64) -> Result<u64, Error> {
    println!("{id}");
}

fn main() {}
