use std::num::ParseIntError;

use distlock::{Error, distributed_lock};

use super::{ok, run};

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
    if text == "none" {
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

#[tokio::test]
async fn runs() {
    for (text, number) in [("none", 0), ("0", 1), ("7", 7)] {
        assert_eq!(ok(parse(text)).await, number, "{text:?}");
    }
    let error = run(parse("seven")).await.unwrap_err();
    assert!(matches!(error, PayError::Number(_)), "{error:?}");
    assert_eq!(ok(boxed("7")).await, 7);
    let error = run(boxed("0")).await.unwrap_err();
    assert_eq!(error.to_string(), "zero");
}
