//! Shapes that few functions have.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use distlock::{Client, Error, distributed_lock};

use super::{ok, run};

#[distributed_lock(key = "<N>:<{ N * 2 }>:<all[0]>")]
pub async fn first_of<'a, T: Display + 'a, const N: usize>(
    all: &'a [T; N],
) -> Result<&'a T, Error> {
    Ok(&all[0])
}

#[distributed_lock(key = "<*id>:<!*is_late>:<-*days>:<days.pow(2) as u8>")]
pub async fn operators(id: &u64, is_late: &bool, days: &i32) -> Result<u64, Error> {
    Ok(*id)
}

/// The body does not run without an id.
#[distributed_lock(key = "<id?>", on_error = |_| None)]
pub async fn ends_in_its_key(id: Option<u64>) -> Option<u64> {
    Some(id? + 1)
}

#[distributed_lock(key = "<id>")]
pub async fn either(
    (Ok(id) | Err(id)): Result<u64, u64>,
    &(ref a, b): &(String, u64),
) -> Result<u64, Error> {
    Ok(id + b * u64::from(!a.is_empty()))
}

async fn tenant(id: u64) -> String {
    std::future::ready(format!("t{id}")).await
}

async fn locks() -> Client {
    std::future::ready(Client::in_memory()).await
}

#[distributed_lock(key = "<tenant(id).await>:<id>", client = locks().await, condition = tenant(id).await != "t0")]
pub async fn options_that_wait(id: u64) -> Result<bool, Error> {
    Ok(distlock::is_held("t7:7"))
}

macro_rules! locked {
    ($function:item) => {
        #[distributed_lock(key = "item")]
        $function
    };
}

locked! {
    pub async fn captured_as_an_item(id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

pub struct Names {
    pub first: Vec<String>,
}

pub struct Order {
    pub id: u64,
    pub names: Names,
}

impl Order {
    #[distributed_lock(key = "<self.id>:<self.names.first[0]>")]
    pub async fn pinned(mut self: Pin<&mut Self>, by: u64) -> Result<u64, Error> {
        self.id += by;
        Ok(self.id)
    }

    #[distributed_lock(keys = ["<self.id>", ..self.names.first.iter().map(|name| format!("name:{name}"))])]
    pub async fn r#match(self: Arc<Self>, r#type: &str) -> Result<usize, Error> {
        Ok(r#type.len() + self.names.first.len())
    }
}

pub trait Payments {
    fn tenant(&self) -> &str;

    /// As `trait_variant` writes an `async fn` with a body.
    #[distributed_lock(key = "<self.tenant()>:<id>")]
    fn pay(&self, id: u64) -> impl Future<Output = Result<u64, Error>> + Send
    where
        Self: Sync,
    {
        async move { Ok(id + u64::from(self.tenant() == "ab")) }
    }
}

impl Payments for Order {
    fn tenant(&self) -> &str {
        &self.names.first[0]
    }
}

#[tokio::test]
async fn runs() {
    assert_eq!(*ok(first_of(&[1, 2])).await, 1);
    assert_eq!(ok(operators(&1, &true, &2)).await, 1);
    assert_eq!(run(ends_in_its_key(Some(1))).await, Some(2));
    assert_eq!(run(ends_in_its_key(None)).await, None);
    assert_eq!(ok(either(Err(1), &("a".to_owned(), 2))).await, 3);
    assert!(ok(options_that_wait(7)).await);
    assert!(!ok(options_that_wait(0)).await);
    assert_eq!(ok(captured_as_an_item(1)).await, 1);
    let first = vec!["ab".to_owned()];
    let mut order = Order {
        id: 1,
        names: Names { first },
    };
    assert_eq!(ok(Pin::new(&mut order).pinned(2)).await, 3);
    assert_eq!(ok(order.pay(1)).await, 2);
    assert_eq!(ok(Arc::new(order).r#match("abc")).await, 4);
}
