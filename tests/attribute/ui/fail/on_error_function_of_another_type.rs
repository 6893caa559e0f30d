use distlock::{Error, distributed_lock};

fn explain(error: Error) -> String {
    error.to_string()
}

#[distributed_lock(key = "pay:<id>", on_error = explain)]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
