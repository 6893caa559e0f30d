use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
async fn pay(id: u64) {
    let _: (u64, Option<Error>) = (id, None);
}

fn main() {}
