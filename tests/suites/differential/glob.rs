//! Patterns of scans: memory finds the keys that Redis finds.

use std::collections::BTreeSet;

use distlock::{Client, MemoryServer};
use distlock_tests::{RedisServer, size};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Builder;

const KEYS: [&str; 16] = [
    "a", "b", "ab", "ba", "aab", "abc", "a*b", "a?b", "[a]", "a-b", "^a", r"a\b", "]", "-", "ü",
    "aü*",
];

async fn found(client: &Client, pattern: &str) -> BTreeSet<String> {
    let (mut scan, mut found) = (client.scan(pattern).page_size(1_000), BTreeSet::new());
    while let Some(page) = scan.next_page().await.unwrap() {
        found.extend(page.into_iter().map(|report| report.key));
    }
    found
}

#[test]
fn memory_and_redis_find_the_same_keys_under_any_pattern() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(RedisServer::start());
    let (memory, redis) = runtime.block_on(async {
        let memory = Client::builder().in_memory(&MemoryServer::new()).unwrap();
        let redis = Client::connect(&server.url()).await.unwrap();
        for client in [&memory, &redis] {
            for key in KEYS {
                client.semaphore(key).try_set_permits(1).await.unwrap();
            }
        }
        (memory, redis)
    });
    let cases = size(300, 3_000);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    // A range that ends in a byte above 127 is another one where the server's compiler has signed characters.
    let pattern = r"[ab\*\?\[\]\^\-\\ü]{0,8}".prop_filter("a range of bytes above 127", |it| {
        !(it.contains('[') && it.contains('-') && it.contains('ü'))
    });
    runner
        .run(&pattern, |pattern| {
            let (one, two) = runtime.block_on(async {
                (
                    found(&memory, &pattern).await,
                    found(&redis, &pattern).await,
                )
            });
            prop_assert_eq!(one, two, "{:?}", pattern);
            Ok(())
        })
        .unwrap();
}
