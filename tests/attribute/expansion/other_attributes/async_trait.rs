use std::error::Error;

use async_trait::async_trait;
use distlock::{Client, distributed_lock};

use super::{ok, run};

#[async_trait]
pub trait Payments: Sync {
    fn tenant(&self) -> &str;

    async fn pay(&self, id: u64) -> Result<u64, Box<dyn Error + Send + Sync>>;

    #[distributed_lock(key = "<self.tenant()>:<id>")]
    async fn refund(&self, id: u64, reason: String) -> Result<u64, Box<dyn Error + Send + Sync>> {
        if reason.is_empty() {
            return Err("no reason".into());
        }
        self.pay(id).await
    }
}

pub struct Desk {
    pub tenant: String,
    pub locks: Client,
}

#[async_trait]
impl Payments for Desk {
    fn tenant(&self) -> &str {
        &self.tenant
    }

    #[distributed_lock(key = "<self.tenant>:<id>", client = self.locks, wait = "1s")]
    async fn pay(&self, id: u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let id: u64 = id.to_string().parse()?;
        Ok(id)
    }
}

#[async_trait]
pub trait Jobs {
    async fn run(&mut self, name: &str);
}

#[async_trait]
impl Jobs for Desk {
    #[distributed_lock(key = "job:<name>", client = self.locks, on_error = |_| ())]
    async fn run(&mut self, name: &str) {
        name.clone_into(&mut self.tenant);
    }
}

pub struct Order {
    pub id: u64,
    pub lines: Vec<String>,
}

#[async_trait]
pub trait Shop {
    async fn place(
        self,
        order: Order,
        count: usize,
        pair: (u8, &str),
    ) -> Result<usize, distlock::Error>;
}

#[async_trait]
impl Shop for Desk {
    #[distributed_lock(keys = ["<self.tenant>:<id>:<b>", ..lines.iter().map(|line| format!("item:{line}"))])]
    #[tracing::instrument(skip_all)]
    async fn place(
        self,
        Order { id, mut lines }: Order,
        mut count: usize,
        (a, b): (u8, &str),
    ) -> Result<usize, distlock::Error> {
        lines.push(format!("{id}{a}{b}"));
        count += lines.len();
        Ok(count)
    }
}

#[tokio::test]
async fn runs() {
    let (tenant, locks) = ("a".to_owned(), Client::in_memory());
    let mut desk = Desk { tenant, locks };
    assert_eq!(ok(desk.refund(1, "late".to_owned())).await, 1);
    let refused = run(desk.refund(1, String::new())).await.unwrap_err();
    assert_eq!(refused.to_string(), "no reason");
    Jobs::run(&mut desk, "b").await;
    assert_eq!(desk.tenant, "b");
    let lines = vec!["x".to_owned()];
    let placed = desk.place(Order { id: 1, lines }, 1, (2, "b"));
    assert_eq!(ok(placed).await, 3);
}
