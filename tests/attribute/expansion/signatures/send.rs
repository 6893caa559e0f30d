use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use distlock::{Error, distributed_lock};

use super::ok;

#[distributed_lock(key = "<id>", wait = "5s", on_busy = |_| Ok(0))]
pub async fn sent(id: u64, name: &str, names: Vec<String>) -> Result<usize, Error> {
    let mut length = name.len();
    for part in names.iter().map(String::len).filter(|length| *length > 0) {
        std::future::ready(id).await;
        length += part;
    }
    Ok(length)
}

// A future that is not `Send` is accepted, as without the attribute.
#[distributed_lock(key = "local")]
pub async fn local(id: Rc<u64>) -> Result<u64, Error> {
    std::future::ready(()).await;
    Ok(*id)
}

pub fn boxed(name: &str) -> Pin<Box<dyn Future<Output = Result<usize, Error>> + Send + '_>> {
    Box::pin(async move { sent(1, name, Vec::new()).await })
}

#[tokio::test]
async fn runs() {
    assert_eq!(ok(boxed("a")).await, 1);
    let names = || vec![String::new(), "bc".to_owned()];
    let task = tokio::spawn(async move { ok(sent(1, "a", names())).await });
    assert_eq!(task.await.unwrap(), 3);
    assert_eq!(ok(local(Rc::new(1))).await, 1);
}
