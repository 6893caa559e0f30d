use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<from>")]
async fn pay<'a, 'b>(from: &'a str, to: &'b str) -> Result<&'a str, Error> {
    if from.is_empty() {
        return Ok(to);
    }
    Ok(from)
}

fn main() {}
