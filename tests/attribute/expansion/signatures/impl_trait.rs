use std::fmt::Display;

use distlock::{Error, distributed_lock};

use super::{ok, run};

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

// The coercion is inside the value, so the body must know the declared type.
#[distributed_lock(key = "x")]
pub async fn coerced_inside(short: bool) -> Result<Box<dyn Display + Send>, Error> {
    if short {
        return Ok(Box::new(1));
    }
    Ok(Box::new("text"))
}

#[tokio::test]
async fn runs() {
    assert_eq!(ok(shown("a")).await.to_string(), "a!");
    let opaque: Result<usize, Error> = run(opaque("ab")).await.into();
    assert_eq!(opaque.unwrap(), 2);
    assert_eq!(run(listed("ab")).await[0].to_string(), "2");
    assert_eq!(run(coerced()).await.to_string(), "text");
    assert_eq!(ok(coerced_inside(true)).await.to_string(), "1");
}
