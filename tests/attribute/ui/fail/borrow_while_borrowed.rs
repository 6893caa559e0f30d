use distlock::{Error, distributed_lock};

struct Account(Vec<String>);

impl Account {
    #[distributed_lock(key = "pay")]
    async fn pay(&mut self) -> Result<usize, Error> {
        let first = &self.0[0];
        self.0.push(String::new());
        Ok(first.len())
    }
}

fn main() {}
