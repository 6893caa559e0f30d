use distlock::{Error, distributed_lock};

struct Account(String);

impl Account {
    #[distributed_lock(key = "pay:<self.0>")]
    async fn pay(&self, to: &str) -> Result<&str, Error> {
        Ok(to)
    }
}

fn main() {}
