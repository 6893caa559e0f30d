use distlock::{Error, distributed_lock};

#[distributed_lock(key = "<tenant>:order:{id}")]
async fn braces(tenant: &str, id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<tenant>/order/:id")]
async fn colon(tenant: &str, id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "order:{0}")]
async fn number(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
