#![deny(warnings, clippy::pedantic)]

use std::fmt::Display;

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "<name>")]
pub async fn shown(name: impl Display + Copy) -> Result<impl Display, Error> {
    Ok(format!("{name}!"))
}

#[distributed_lock(key = "<name>")]
pub async fn opaque(name: &str) -> impl Into<Result<usize, Error>> {
    Ok::<usize, Error>(name.len())
}

#[distributed_lock(key = "<name>", on_error = |_| Vec::new())]
pub async fn listed(name: &str) -> Vec<impl Display> {
    vec![name.len()]
}

#[distributed_lock(key = "x", on_error = |_| Box::new(0_u8))]
pub async fn coerced() -> Box<dyn Display + Send> {
    Box::new("text")
}

// Coerced within the value: the body must know the written type.
#[distributed_lock(key = "x")]
pub async fn coerced_inside(short: bool) -> Result<Box<dyn Display + Send>, Error> {
    if short {
        return Ok(Box::new(1));
    }
    Ok(Box::new("text"))
}

fn main() {
    let _future = shown("a");
    let _future = opaque("a");
    let _future = listed("a");
    let _future = coerced();
    let _future = coerced_inside(true);
}
