use distlock::{Error, distributed_lock};

#[async_trait::async_trait]
trait Payments {
    #[distributed_lock(key = "pay:<id>")]
    async fn pay(&self, id: u64) -> Result<u64, Error>;
}

fn main() {}
