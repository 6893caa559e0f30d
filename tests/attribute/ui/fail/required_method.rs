use distlock::{Error, distributed_lock};

trait Payments {
    #[distributed_lock(key = "pay:<id>")]
    async fn pay(&self, id: u64) -> Result<u64, Error>;
}

fn main() {}
