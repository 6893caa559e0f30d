use distlock::{Client, Error, distributed_lock};

use super::ok;

macro_rules! literal_of_the_caller {
    ($name:ident, $key:literal) => {
        #[distributed_lock(key = $key, wait = "5s")]
        pub async fn $name(id: u64) -> Result<u64, Error> {
            Ok(id)
        }
    };
}

macro_rules! literal_of_the_macro {
    ($name:ident, $id:ident) => {
        #[distributed_lock(key = "pay:<id>")]
        pub async fn $name($id: u64) -> Result<u64, Error> {
            Ok($id)
        }
    };
}

macro_rules! expressions {
    ($name:ident, $wait:expr, $handler:expr, $($body:tt)*) => {
        #[distributed_lock(key = "x", wait = $wait, on_busy = $handler)]
        pub async fn $name() -> Result<u64, Error> {
            $($body)*
        }
    };
}

macro_rules! methods {
    ($key:literal) => {
        #[distributed_lock(key = $key)]
        pub async fn method(&self) -> Result<u64, Error> {
            Ok(self.0)
        }
    };
}

macro_rules! body {
    ($name:ident, $output:ty, $body:block) => {
        #[distributed_lock(key = "x")]
        pub async fn $name() -> $output $body
    };
}

macro_rules! every_option {
    ($name:ident($id:ident), [$($key:expr),*], $client:expr, $condition:expr, $lease:literal, $run:ident) => {
        #[distributed_lock(keys = [$($key),*], client = $client, condition = $condition, lease = $lease, hold_at_least = $lease, on_unavailable = $run)]
        pub async fn $name($id: u64) -> Result<u64, Error> {
            Ok($id)
        }
    };
}

body!(four, Result<u64, Error>, { Ok(1) });
literal_of_the_caller!(one, "pay:<id>");
literal_of_the_macro!(two, id);
expressions!(three, "5s", |_| Ok(1), Ok(2));
every_option!(
    five(number),
    ["pay:<number>", format!("stock:{number}")],
    Client::in_memory(),
    number > 0,
    "5s",
    run
);

pub struct Shop(pub u64);

impl Shop {
    methods!("<self.0>");
}

#[tokio::test]
async fn runs() {
    assert_eq!(ok(one(1)).await, 1);
    assert_eq!(ok(two(1)).await, 1);
    assert_eq!(ok(three()).await, 2);
    assert_eq!(ok(four()).await, 1);
    assert_eq!(ok(five(1)).await, 1);
    assert_eq!(ok(Shop(1).method()).await, 1);
}
