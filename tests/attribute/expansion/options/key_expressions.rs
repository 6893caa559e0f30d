use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
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

#[distributed_lock(key = "name:<name.map_or_else(none, String::from)>:<twice(id)>")]
pub async fn functions(name: Option<&str>, id: u64) -> Result<(), Error> {
    Ok(())
}

fn none() -> String {
    "none".to_owned()
}

fn twice(id: u64) -> u64 {
    2 * id
}

pub struct Node {
    pub r#gen: u64,
}

/// `gen` is a name in the editions before 2024, which a template does not know.
#[distributed_lock(key = "<node.gen>:<node.r#gen>:<format!(\"{}\", node.gen)>")]
pub async fn generation(node: &Node) -> Result<u64, Error> {
    Ok(node.r#gen)
}

/// The text means a parameter in other libraries, but the key is an expression.
#[distributed_lock(key = String::from("pay:#id"))]
pub async fn literally(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = concat!("pay:<", "id>"))]
pub async fn brackets_literally(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "#1:$idle:{ids}:#id.x:<id>")]
pub async fn beside_a_placeholder(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "#1:$idle:{ids}:idle")]
pub async fn similar_text(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// The body does not name what the key has taken.
#[distributed_lock(key = name)]
pub async fn moved(name: String) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = names)]
pub async fn all_moved(names: Vec<String>, id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(keys = ["a", first, ..rest])]
pub async fn some_moved(first: String, rest: Vec<String>) -> Result<(), Error> {
    Ok(())
}

/// Without a grant, nothing of the key is left to drop.
#[distributed_lock(key = name, condition = locks)]
pub async fn moved_if(name: String, locks: bool) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = name)]
pub fn moved_into_a_future(
    name: String,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async { Ok(()) })
}

#[async_trait]
pub trait Imports: Sync {
    async fn import(&self, name: String, lines: usize) -> Result<usize, Error>;

    #[distributed_lock(keys = names)]
    async fn import_all(&self, mut names: Vec<String>) -> Result<(), Error> {
        Ok(())
    }
}

pub struct Files;

/// `async_trait` moves each argument into its block, also if the body does not name it.
#[async_trait]
impl Imports for Files {
    #[distributed_lock(key = name)]
    async fn import(&self, name: String, lines: usize) -> Result<usize, Error> {
        Ok(lines)
    }
}

/// `Copy`, so the body may name it as well.
#[distributed_lock(key = name)]
pub async fn copied(name: &'static str) -> Result<usize, Error> {
    Ok(name.len())
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
    ok(functions(None, 1)).await;
    assert_eq!(ok(generation(&Node { r#gen: 3 })).await, 3);
    assert_eq!(ok(literally(1)).await, 1);
    assert_eq!(ok(brackets_literally(1)).await, 1);
    ok(beside_a_placeholder(1)).await;
    assert_eq!(ok(similar_text(1)).await, 1);
}

#[tokio::test]
async fn key_takes_a_parameter_that_the_body_does_not_name() {
    ok(moved("a".into())).await;
    assert_eq!(ok(all_moved(vec!["a".into()], 7)).await, 7);
    ok(some_moved("b".into(), vec!["c".into()])).await;
    ok(moved_if("a".into(), true)).await;
    ok(moved_if("a".into(), false)).await;
    ok(moved_into_a_future("a".into())).await;
    assert_eq!(ok(Files.import("a".into(), 7)).await, 7);
    ok(Files.import_all(vec!["b".into()])).await;
    assert_eq!(ok(copied("abc")).await, 3);
}
