use std::rc::Rc;

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
async fn pay(id: u64) -> Result<u64, Error> {
    let id = Rc::new(id);
    std::future::ready(()).await;
    Ok(*id)
}

fn is_send(_: impl Send) {}

fn main() {
    is_send(pay(1));
}
