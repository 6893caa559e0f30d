use distlock::{Error, distributed_lock};

struct NoFrom(Option<Error>);

#[distributed_lock(key = "pay:<id>")]
async fn pay(id: u8) -> Result<u8, NoFrom> {
    if id == 0 {
        return Err(NoFrom(None));
    }
    Ok(id)
}

fn main() {}
