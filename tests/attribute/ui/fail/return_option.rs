use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
async fn pay(id: u8, _: Option<Error>) -> Option<u8> {
    Some(id)
}

fn main() {}
