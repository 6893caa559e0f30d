use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<name>", on_error = |_: Error| name.len())]
async fn pay(name: String) -> usize {
    name.len()
}

fn main() {}
