#![deny(warnings, clippy::pedantic)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use distlock::{Error, distributed_lock};

const KEY: &str = "nightly";
const WAIT: Duration = Duration::from_secs(1);

pub fn normalized(text: &str) -> String {
    text.to_lowercase()
}

#[distributed_lock(key = format!("order:{id:08}"), wait = WAIT, lease = Duration::from_secs(id))]
pub async fn formatted(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = KEY, wait = 0)]
pub async fn constant() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = name.clone())]
pub async fn cow(name: Cow<'static, str>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<normalized(name)>:<counts[name]>:<(a > b)>:<a + -b>:<*a as u8>")]
pub async fn computed(
    name: &str,
    counts: &HashMap<String, u64>,
    a: &i64,
    b: &i64,
) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(\",\")>")]
pub async fn joined(ids: &[u64]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<ids.iter().map(|id| id.to_string()).collect::<String>()>")]
pub async fn closure(ids: &[u64]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "{cart:<id>}:<<lock>>:<KEY>:<i32::MAX>:<r#type>")]
pub async fn text(id: u64, r#type: &str) -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _future = formatted(1);
    let _future = constant();
    let _future = cow("a".into());
    let counts = HashMap::new();
    let _future = computed("a", &counts, &1, &2);
    let _future = joined(&[1]);
    let _future = closure(&[1]);
    let _future = text(1, "a");
}
