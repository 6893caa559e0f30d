use distlock::{Error, distributed_lock};

#[distributed_lock(key = name)]
#[distributed_lock(key = name, mode = "read")]
async fn show(name: String) -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = show(String::new());
}
