use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", on_error = |_| "none")]
async fn pay(id: u8, _: Option<Error>) -> u8 {
    id
}

fn main() {}
