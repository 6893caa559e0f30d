#![allow(non_snake_case)]

use ::distlock::{Error as LockError, distributed_lock};

use super::{ok, run};

// The names that an expansion could use.
pub struct Ok;
pub struct Err;
pub struct Some;
pub struct None;
pub struct String;
pub struct Option;
pub struct Result;
pub struct Box;
pub struct Duration;
pub struct Into;
pub struct Future;
pub struct Error;
pub mod std {}
pub mod core {}
pub mod distlock {}

pub type Outcome<T> = ::std::result::Result<T, LockError>;

#[distributed_lock(key = "<id>", wait = "5s", client = client, on_busy = |_| Outcome::Ok(0))]
pub async fn shadowed(id: u32, client: &::distlock::Client) -> Outcome<u32> {
    let (__key, __guard, __enter) = (1, 2, 3);
    Outcome::Ok(id + __key + __guard + __enter)
}

#[allow(non_camel_case_types)]
pub struct bool;
#[allow(non_camel_case_types)]
pub struct u64;
pub struct Mode;
pub struct Locks;

#[distributed_lock(keys = ["<id>", ..more], wait = 0, lease = "5s", hold_at_least = "1s", mode = "spin", client = client, on_unavailable = "run", condition = id > 0, on_busy = |_| Outcome::Ok(()))]
pub async fn every_option(id: u8, more: [&str; 2], client: &::distlock::Client) -> Outcome<()> {
    let (__keys, __condition, __held, __on_error) = (id, more, client, ());
    Outcome::Ok(__on_error)
}

#[distributed_lock(key = "<__held>", mode = fenced, token = __token)]
pub async fn own_token(__held: u8) -> Outcome<::std::primitive::u64> {
    Outcome::Ok(__token)
}

// Parameters with the names of variables of the expansion.
#[::distlock::distributed_lock(key = "<__key>:<__guard>", client = __enter, on_error = |_| __error)]
pub async fn own_names(__key: u32, __guard: u8, __enter: &::distlock::Client, __error: u8) -> u8 {
    __guard + __error
}

#[tokio::test]
async fn runs() {
    let client = ::distlock::Client::in_memory();
    assert_eq!(ok(shadowed(1, &client)).await, 7);
    ok(every_option(1, ["a", "b"], &client)).await;
    assert!(ok(own_token(1)).await > 0);
    assert_eq!(run(own_names(1, 2, &client, 3)).await, 5);
}
