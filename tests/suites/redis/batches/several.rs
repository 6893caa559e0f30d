//! Several locks that are acquired or released together are one operation of a batch.

use std::future::IntoFuture;
use std::time::Duration;

use distlock::test_util::collect_always;
use distlock::{Client, Error, Guard};
use distlock_tests::RedisServer;
use distlock_tests::rights::PASSWORD;
use futures_util::future::join_all;

use super::{
    AT_ONCE, Acquiring, behind_a_proxy, but_the_third, key, leave_under_way, other_data,
    release_all, scripts_since, untracked_client, warm_client,
};

/// How many scripts the server is sent for operations on two keys each: a batch has as many locks, and half as many operations.
const MOST_OF_TWO_KEYS: u64 = 5;

/// One attempt at two keys each: the first with the third, the second with the fourth, and so on.
fn attempts_at_two(client: &Client) -> Vec<Acquiring> {
    let attempt = |number: usize| -> Acquiring {
        let keys = [0, 2].map(|other| key(4 * (number / 2) + number % 2 + other));
        let lock = client.multi_lock(keys);
        Box::pin(lock.acquire().wait(Duration::ZERO).into_future())
    };
    (0..AT_ONCE).map(attempt).collect()
}

#[tokio::test]
async fn attempts_at_several_keys_travel_together_and_each_gets_all_or_none() {
    let server = RedisServer::start().await;
    let client = warm_client(&server).await;
    other_data(&server, &key(3)).await;
    let other = super::client(&server).await;
    let theirs = other.lock(key(6)).acquire().await.unwrap();
    let before = server.command_calls("evalsha").await;
    let acquired = join_all(attempts_at_two(&client)).await;
    assert!(scripts_since(&server, before).await <= MOST_OF_TWO_KEYS);
    let mut guards = Vec::new();
    for (number, acquired) in acquired.into_iter().enumerate() {
        match number {
            // Keys 1 and 3.
            1 => {
                let text = acquired.unwrap_err().to_string();
                assert!(text.contains("another type of value"), "{text}");
                assert!(text.contains(&format!("{:?}", key(3))), "{text}");
            }
            // Keys 4 and 6.
            2 => {
                let busy = acquired.unwrap_err();
                assert!(busy.is_busy(), "{busy}");
                let text = busy.to_string();
                assert!(text.contains(&theirs.owner().to_string()), "{text}");
            }
            _ => guards.push(acquired.unwrap()),
        }
    }
    for free in [1, 4] {
        assert!(!server.keys().await.contains(&key(free)));
    }
    assert_eq!(server.keys().await.len(), 2 * (AT_ONCE - 2) + 2);
    let before = server.command_calls("evalsha").await;
    release_all(guards).await;
    assert!(scripts_since(&server, before).await <= MOST_OF_TWO_KEYS);
    theirs.release().await.unwrap();
    assert_eq!(server.keys().await, [key(3)]);
}

#[tokio::test]
async fn release_of_several_keys_in_a_batch_frees_those_that_are_no_other_data() {
    let server = RedisServer::start().await;
    let client = untracked_client(&server).await;
    let acquired = join_all(attempts_at_two(&client)).await;
    server.cli(&["DEL", &key(3)]).await;
    other_data(&server, &key(3)).await;
    let guards = acquired.into_iter().map(Result::unwrap);
    let released = join_all(guards.map(Guard::release)).await;
    for (number, released) in released.into_iter().enumerate() {
        // Keys 1 and 3.
        assert_eq!(released.is_err(), number == 1, "{number}: {released:?}");
    }
    assert_eq!(server.keys().await, [key(3)]);
}

#[tokio::test]
async fn attempt_at_several_keys_that_leaves_while_its_batch_is_under_way_keeps_none() {
    let (server, proxy, client) = behind_a_proxy().await;
    release_multi_locks(&client).await;
    // Keys 9 and 11.
    leave_under_way(&server, &proxy, attempts_at_two(&client), 5, key(9)).await;
}

/// The server knows the scripts for several keys afterwards.
async fn release_multi_locks(client: &Client) {
    let acquired = join_all(attempts_at_two(client)).await;
    release_all(acquired.into_iter().map(Result::unwrap).collect()).await;
}

#[tokio::test]
async fn error_of_a_multi_lock_names_the_key_that_its_user_may_not_access() {
    let server = RedisServer::start().await;
    let url = format!("redis://some:{PASSWORD}@{}", server.addr());
    let everything = ["+@all", "&*", "~*"].map(String::from);
    let others = ["+@all", "&*"].map(String::from);
    let others: Vec<String> = others.into_iter().chain(but_the_third()).collect();
    server.set_user("some", &everything).await;
    let client = Client::connect(&url).await.unwrap();
    let all = [key(1), key(2), key(3), key(4)];
    let names_it = |error: Error| {
        let is_named = matches!(&error, Error::Denied { key: named, .. } if *named == key(3));
        assert!(is_named, "{error}");
    };
    let holder = Client::connect(&url).await.unwrap();
    let held = holder.multi_lock(all.clone()).acquire().await.unwrap();
    server.cli(&["ACL", "DELUSER", "some"]).await;
    server.set_user("some", &others).await;
    let all = client.multi_lock(all);
    names_it(all.try_acquire().await.unwrap_err());
    // With those of other tasks, by the script of a batch.
    collect_always(&client);
    names_it(all.acquire().await.unwrap_err());
    names_it(held.release().await.unwrap_err());
}

#[tokio::test]
async fn locks_of_several_keys_of_which_one_has_no_lease_all_stay_free() {
    let server = RedisServer::start().await;
    let leases = format!("(+pexpire {})", but_the_third().join(" "));
    let rights = ["+@all", "-pexpire", "~*", "&*", &leases].map(String::from);
    server.set_user("some", &rights).await;
    let url = format!("redis://some:{PASSWORD}@{}", server.addr());
    let client = Client::connect(&url).await.unwrap();
    collect_always(&client);
    let all = || client.multi_lock([key(1), key(2), key(3)]);
    let denied = all().try_acquire().await.unwrap_err();
    assert!(denied.to_string().contains("denied"), "{denied}");
    assert_eq!(server.keys().await, Vec::<String>::new());
    // As the first of them, where memory is full: the refused commands let others pass that were refused before.
    let maxmemory = ["CONFIG", "SET", "maxmemory"];
    server.cli(&[&maxmemory[..], &["1"]].concat()).await;
    let first = client.multi_lock([key(3), key(4), key(5)]);
    let denied = first.try_acquire().await.unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "{denied}");
    assert_eq!(server.keys().await, Vec::<String>::new());
    server.cli(&[&maxmemory[..], &["0"]].concat()).await;
    // In a batch, behind another one whose lease was accepted.
    let mut attempts: Vec<Acquiring> = vec![Box::pin(all().acquire().into_future())];
    attempts.extend(
        (4..AT_ONCE).map(|number| -> Acquiring {
            Box::pin(client.lock(key(number)).acquire().into_future())
        }),
    );
    attempts.rotate_left(2);
    let (mut granted, mut refused) = (Vec::new(), Vec::new());
    for acquired in join_all(attempts).await {
        match acquired {
            Ok(guard) => granted.push(guard),
            Err(error) => refused.push(error.to_string()),
        }
    }
    assert_eq!(granted.len(), AT_ONCE - 4);
    assert!(
        refused.len() == 1 && refused[0].contains("denied"),
        "{refused:?}"
    );
    release_all(granted).await;
    assert_eq!(server.keys().await, Vec::<String>::new());
}
