use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Error, distributed_lock};

use super::ok;

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
    counts: &BTreeMap<String, u64>,
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

#[tokio::test]
async fn runs() {
    assert_eq!(ok(formatted(1)).await, 1);
    ok(constant()).await;
    ok(cow("a".into())).await;
    let counts = BTreeMap::from([("a".to_owned(), 1)]);
    ok(computed("a", &counts, &1, &2)).await;
    ok(joined(&[1, 2])).await;
    ok(closure(&[1, 2])).await;
    ok(text(1, "a")).await;
}
