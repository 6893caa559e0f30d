use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use distlock::{Error, distributed_lock};

use super::ok;

// Users write these for a future that must be `Send`, and for recursion.
#[expect(clippy::manual_async_fn)]
#[distributed_lock(key = "pay:<id>")]
pub fn pay(id: u64) -> impl Future<Output = Result<u64, Error>> + Send {
    async move { Ok(id) }
}

#[distributed_lock(key = "tree:<depth>")]
pub fn walk(depth: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            return Ok(0);
        }
        Ok(walk(depth - 1).await? + 1)
    })
}

#[distributed_lock(key = "list:<depth>")]
pub async fn count(depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(Box::pin(count(depth - 1)).await? + 1)
}

type Boxed = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;

pub struct Service;

// The future does not borrow `self`, as `tower::Service::call` requires.
impl Service {
    #[distributed_lock(key = "call:<id>")]
    pub fn call(&mut self, id: u64, _tenant: &str) -> Boxed {
        Box::pin(async move { Ok(id) })
    }

    #[distributed_lock(key = "typed:<id>")]
    pub fn typed(self: Pin<&mut Self>, id: u64, _cell: Rc<u8>) -> Boxed {
        Box::pin(async move { Ok(id) })
    }
}

// Without `move` the future must still not borrow the arguments.
#[expect(clippy::manual_async_fn)]
#[distributed_lock(key = "unused:<id>")]
pub fn without_move(id: u64, _other: u64, name: &str) -> impl Future<Output = Result<u64, Error>> {
    async { Ok(name.len() as u64) }
}

#[tokio::test]
async fn runs() {
    assert_eq!(ok(pay(1)).await, 1);
    assert_eq!(ok(walk(1)).await, 1);
    assert_eq!(ok(count(1)).await, 1);
    assert_eq!(ok(Service.call(1, "a")).await, 1);
    let typed = Pin::new(&mut Service).typed(1, Rc::new(1));
    assert_eq!(ok(typed).await, 1);
    assert_eq!(ok(without_move(1, 2, "abc")).await, 3);
}
