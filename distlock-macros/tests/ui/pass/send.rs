#![deny(warnings, clippy::pedantic)]

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "<id>", wait = "5s", on_busy = |_| Ok(0))]
pub async fn sent(id: u64, name: &str, names: Vec<String>) -> Result<usize, Error> {
    let mut length = name.len();
    for part in names.iter().map(String::len).filter(|length| *length > 0) {
        std::future::ready(id).await;
        length += part;
    }
    Ok(length)
}

// As without the attribute: it cannot be sent, and it compiles.
#[distributed_lock(key = "local")]
pub async fn local(id: Rc<u64>) -> Result<u64, Error> {
    std::future::ready(()).await;
    Ok(*id)
}

pub fn boxed(name: &str) -> Pin<Box<dyn Future<Output = Result<usize, Error>> + Send + '_>> {
    Box::pin(async move { sent(1, name, Vec::new()).await })
}

fn main() {
    let _future = boxed("a");
    let task = async || tokio::spawn(async { sent(1, "a", Vec::new()).await });
    let _future = task();
    let _future = local(Rc::new(1));
}
