use distlock::{Error, distributed_lock};

struct Shop;

#[distributed_lock(key = "shop")]
impl Shop {
    async fn pay(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}
