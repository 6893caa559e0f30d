//! Semaphores with thousands of permits that are acquired.

use distlock::ForceRelease;
use distlock_tests::RedisServer;

use super::{OUT, SEATS};
use crate::redis::client;

/// A report names a part of a crowd, and a script looks at a part.
#[tokio::test]
async fn crowd_of_permits_is_deleted_by_force_only_if_no_more_are_unseen_than_were_unnamed() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let acquired = async |first: &str| {
        server.cli(&["FLUSHALL"]).await;
        let add = "redis.call('SET', KEYS[1], '0')
            for n = ARGV[1], ARGV[1] + 11999 do
              redis.call('ZADD', KEYS[2], 9e14, string.format('%016d', n))
            end";
        server.cli(&["EVAL", add, "2", SEATS, OUT, first]).await;
    };
    acquired("1").await;
    let seen = client.inspect(SEATS).await.unwrap();
    assert_eq!(seen.holder_total, 12_000);
    acquired("100001").await;
    let forced = client.force_release(&seen).await.unwrap();
    assert!(matches!(forced, ForceRelease::Changed(_)), "{forced:?}");
    acquired("1").await;
    // Those that were seen have been renewed, and end last.
    for permit in &seen.holders {
        let id = permit.owner.as_bytes().chunks(2);
        let id = id.map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16));
        let id: Vec<u8> = id.map(Result::unwrap).collect();
        let id = String::from_utf8(id).unwrap();
        server.cli(&["ZADD", OUT, "900000000000001", &id]).await;
    }
    let forced = client.force_release(&seen).await.unwrap();
    assert_eq!(forced, ForceRelease::Freed);
}
