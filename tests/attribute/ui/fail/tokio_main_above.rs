use distlock::{Error, distributed_lock};

#[tokio::main]
#[distributed_lock(key = "main")]
async fn main() -> Result<(), Error> {
    Ok(())
}
