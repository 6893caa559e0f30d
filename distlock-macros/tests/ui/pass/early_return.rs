#![deny(warnings, clippy::pedantic)]

use std::num::ParseIntError;

use distlock::{Error, distributed_lock};

#[derive(Debug)]
pub enum PayError {
    Number(ParseIntError),
    Lock(Error),
}

impl From<ParseIntError> for PayError {
    fn from(error: ParseIntError) -> Self {
        Self::Number(error)
    }
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

type Paid<T> = Result<T, PayError>;

#[distributed_lock(key = "<text>")]
pub async fn parse(text: &str) -> Paid<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    let number: u64 = text.parse()?;
    match number {
        0 => Ok(1),
        n => Ok(n),
    }
}

#[distributed_lock(key = "boxed")]
pub async fn boxed(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let number = text.parse::<u64>()?;
    if number == 0 {
        return Err("zero".into());
    }
    Ok(number)
}

fn main() {
    let _future = parse("1");
    let _future = boxed("1");
}
