use distlock::{Client, Error, distributed_lock};

use super::ok;

pub struct Shop {
    pub locks: Client,
    pub tenant: String,
    pub sold: u64,
}

impl Shop {
    #[distributed_lock(key = "<self.tenant>:read", client = self.locks)]
    pub async fn read(&self) -> Result<u64, Error> {
        Ok(self.sold)
    }

    // The key borrows `self`, which the body changes.
    #[distributed_lock(key = "<self.tenant>:<item>", client = &self.locks)]
    pub async fn sell(&mut self, item: u64) -> Result<u64, Error> {
        self.sold += item;
        Ok(self.sold)
    }

    #[distributed_lock(key = "<self.tenant>:close", client = self.locks)]
    pub async fn close(self) -> Result<String, Error> {
        Ok(self.tenant)
    }

    #[distributed_lock(key = &self.tenant)]
    pub async fn boxed(mut self: Box<Self>, tenant: String) -> Result<Box<Self>, Error> {
        self.tenant = tenant;
        Ok(self)
    }

    #[distributed_lock(key = "open:<tenant>")]
    pub async fn open(tenant: String) -> Result<Self, Error> {
        Ok(Self {
            locks: Client::in_memory(),
            tenant,
            sold: 0,
        })
    }
}

#[tokio::test]
async fn runs() {
    let mut shop = ok(Shop::open("a".to_owned())).await;
    assert_eq!(ok(shop.sell(2)).await, 2);
    assert_eq!(ok(shop.read()).await, 2);
    let shop = ok(Box::new(shop).boxed("b".to_owned())).await;
    assert_eq!(ok(shop.close()).await, "b");
}
