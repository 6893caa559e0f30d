#![allow(async_fn_in_trait)]

use distlock::{Error, distributed_lock};

use super::ok;

pub trait Payments {
    fn tenant(&self) -> &str;

    async fn pay(&self, id: u64) -> Result<u64, Error>;

    #[distributed_lock(key = "<self.tenant()>:<id>")]
    async fn refund(&self, id: u64) -> Result<u64, Error> {
        self.pay(id).await
    }
}

pub struct Desk(pub String);

impl Payments for Desk {
    fn tenant(&self) -> &str {
        &self.0
    }

    #[distributed_lock(key = "<self.0>:<id>")]
    async fn pay(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

#[tokio::test]
async fn runs() {
    let desk = Desk("a".to_owned());
    assert_eq!(ok(desk.refund(1)).await, 1);
}
