//! The scripts on the guide's page `what_is_in_redis` share a lock with this crate, as a program in another language would.

use distlock_tests::RedisServer;

use crate::redis::{SOON, client, listened};

const PAGE: &str = include_str!("../../../../distlock/src/guide/what_is_in_redis.md");

const OWNER: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:1";

const CHANNEL: &str = "redisson_lock__channel:{k}";

/// The scripts that acquire, renew and release.
fn scripts() -> [&'static str; 3] {
    let blocks = PAGE.split("```lua\n").skip(1);
    let scripts: Vec<_> = blocks
        .map(|block| block.split("```").next().unwrap())
        .collect();
    scripts.try_into().unwrap()
}

#[tokio::test]
async fn lock_that_the_scripts_of_the_guide_take_and_leave_is_shared_with_this_crate() {
    let server = RedisServer::start().await;
    let [acquire, renew, release] = scripts();
    let eval = async |script: &str, more: &str| -> Option<i64> {
        let words = ["EVAL", script, "1", "k", OWNER, more];
        server.try_cli(&words).await.unwrap()
    };
    let lock = client(&server).await.lock("k");

    assert_eq!(eval(acquire, "20000").await, None);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(eval(renew, "30000").await, Some(1));
    let left = lock.remaining_lease().await.unwrap().unwrap();
    assert!(left.as_secs() > 20, "{left:?}");

    let waiter = tokio::spawn(lock.acquire().wait(SOON).into_future());
    listened(&server, "k", 1).await;
    assert_eq!(eval(release, CHANNEL).await, Some(1));
    let guard = waiter.await.unwrap().unwrap();

    let left = eval(acquire, "20000").await;
    assert!(left.is_some_and(|left| left > 0), "{left:?}");
    assert_eq!(eval(renew, "30000").await, Some(0));
    assert_eq!(eval(release, CHANNEL).await, None);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(eval(acquire, "20000").await, None);
}
