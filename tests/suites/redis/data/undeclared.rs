//! Keys that a script does not declare, where they are refused: by a pattern of the user's keys here, by the engine elsewhere.

use distlock::{Builder, Client, Error, Primitive};
use distlock_tests::{RedisServer, rights};

use crate::redis::SOON;

const KEY: &str = "shop:k";
const OTHER: &str = "shop:other";

/// The rights to all primitives, with those keys of two locks that scripts declare.
fn declared_keys() -> Vec<String> {
    let mut rights: Vec<String> = rights::all().into_iter().map(str::to_owned).collect();
    rights.retain(|right| right != "~{shop:*");
    let beside = [
        "rwlock_turn",
        "rwlock_readers_wait",
        "distlock_waiters",
        "distlock_owners",
        "timeout",
    ];
    for key in [KEY, OTHER] {
        rights.extend(beside.map(|name| format!("~{{{key}}}:{name}")));
    }
    rights
}

async fn connect(server: &RedisServer, user: impl FnOnce(Builder) -> Builder) -> Client {
    let builder = user(Client::builder().key_prefix("shop:"));
    builder.connect(&server.url()).await.unwrap()
}

/// A server with a user that may use declared keys alone, and a client of this user.
async fn stage() -> (RedisServer, Client) {
    let server = RedisServer::start().await;
    server.set_user("shop", &declared_keys()).await;
    let client = connect(&server, |builder| {
        builder.credentials("shop", rights::PASSWORD)
    })
    .await;
    (server, client)
}

#[tokio::test]
async fn read_lock_is_refused_before_anything_is_written() {
    let (server, client) = stage().await;
    let lock = client.rw_lock("k");
    let error = lock.read().acquire().wait(SOON).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    let denied = server.denied_to("shop").await;
    assert!(
        denied.iter().any(|one| one.contains("rwlock_timeout")),
        "{denied:?}"
    );
    assert_eq!(server.keys().await, Vec::<String>::new());
    // Writers need no such key, and a reader inside of one changes nothing of it.
    let writer = lock.write().acquire().await.expect("nobody holds it");
    let before = server.cli(&["HGETALL", KEY]).await;
    let inside = client.rw_lock("k");
    let inside = async { inside.read().acquire().wait(SOON).await.map(drop) };
    let error = writer.scope(inside).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert_eq!(server.cli(&["HGETALL", KEY]).await, before);
    writer.release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn reader_whose_entries_cannot_be_read_is_found_by_looks_with_the_end_of_the_lock() {
    let (server, client) = stage().await;
    let holder = connect(&server, |builder| builder).await;
    let _reader = holder.rw_lock("k").read().acquire().await.unwrap();
    let _other = holder.lock("other").acquire().await.unwrap();
    let mut scan = client.scan("*");
    let mut found = Vec::new();
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(page);
    }
    let keys: Vec<_> = found.iter().map(|report| &report.key[..]).collect();
    assert_eq!(keys, ["k", "other"]);
    assert_eq!(found[0].primitive, Primitive::ReadLock);
    let [reader] = &found[0].holders[..] else {
        panic!("one reader: {found:?}");
    };
    assert!(reader.lease_left.is_some(), "{reader:?}");
    let denied = server.denied_to("shop").await;
    assert!(
        denied.iter().any(|one| one.contains("rwlock_timeout")),
        "{denied:?}"
    );
}
