//! What lies in the server: names, values, expiry times and messages, as Redisson has them, and what the scripts cost there.

mod commands;
mod expire_after;
mod fair;
mod force_release;
mod golden;
mod guide_scripts;
mod latch;
mod permit;
mod report;
mod rw;
mod semaphore;
mod slots;
mod undeclared;
mod wire;

use distlock::Client;
use distlock::test_util::{Kind, Verbs};
use distlock_tests::RedisServer;
use uuid::Uuid;

/// The bare verbs of a kind.
fn verbs(client: &Client, kind: Kind) -> Verbs {
    Verbs::new(client, Uuid::from_u128(7)).of_kind(kind)
}

fn owner(number: u64) -> String {
    format!("{}:{number}", Uuid::from_u128(7))
}

/// Asserts the fields of a hash, in any order.
async fn assert_fields(server: &RedisServer, key: &str, fields: &[(&str, &str)]) {
    let text = |(field, value): &(&str, &str)| ((*field).to_owned(), (*value).to_owned());
    assert_eq!(server.hgetall(key).await, fields.iter().map(text).collect());
}

/// Asserts that the key has nearly this time to live, in milliseconds.
async fn assert_left(server: &RedisServer, key: &str, most: i64) {
    let ttl = server.pttl(key).await;
    assert!(
        (most * 3 / 4..=most).contains(&ttl),
        "{key}: {ttl}, not {most}"
    );
}
