use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<name>")]
async fn pay<'a>(name: String) -> Result<&'a str, Error> {
    Ok(&name[..])
}

fn main() {}
