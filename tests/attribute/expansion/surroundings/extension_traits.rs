//! A trait in scope that gives every type methods with the names of those that the expansion calls.

use distlock::{Client, Error, distributed_lock, is_held};

pub trait Everywhere {
    fn text(&self, _: &str) {}

    fn part<T>(&self, _: &str, _: &T) {}

    fn add<T>(&self, _: T) {}

    fn token(self) -> u64
    where
        Self: Sized,
    {
        0
    }

    #[allow(
        clippy::wrong_self_convention,
        reason = "a method by value comes before one by reference"
    )]
    fn is_held_by_another(self) -> bool
    where
        Self: Sized,
    {
        false
    }
}

impl<T> Everywhere for T {}

#[distributed_lock(key = "order:<id>", client = client)]
pub async fn one(client: &Client, id: u64) -> Result<bool, Error> {
    Ok(is_held(&format!("order:{id}")))
}

#[distributed_lock(keys = ["order:<id>", ..["stock"]], client = client)]
pub async fn several(client: &Client, id: u64) -> Result<bool, Error> {
    Ok(is_held(&format!("order:{id}")) && is_held("stock"))
}

#[distributed_lock(key = "account", mode = fenced, token = granted, client = client)]
pub async fn fenced(client: &Client) -> Result<u64, Error> {
    Ok(granted)
}

#[distributed_lock(key = "busy", wait = 0, client = client, on_busy = |_| Ok(true))]
pub async fn busy(client: &Client) -> Result<bool, Error> {
    Ok(false)
}

#[tokio::test]
async fn keys_are_whole_beside_a_trait_with_methods_for_all_types() {
    let client = Client::in_memory();
    assert!(one(&client, 1).await.unwrap());
    assert!(several(&client, 1).await.unwrap());
    assert!(fenced(&client).await.unwrap() > 0);
    let _taken = client.lock("busy").acquire().await.unwrap();
    assert!(busy(&client).await.unwrap());
}
