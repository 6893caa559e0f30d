use std::pin::Pin;

use distlock::{Error, distributed_lock};

type Paid<'a> = Result<&'a str, Error>;

#[distributed_lock(key = "pay:<from>")]
fn pay<'a>(from: &'a str, to: &str) -> Pin<Box<dyn Future<Output = Paid<'a>> + Send + 'a>> {
    Box::pin(async move { Ok(to) })
}

fn main() {}
