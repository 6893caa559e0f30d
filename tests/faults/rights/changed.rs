//! Row 66: a user that is deleted, gets another password, or may listen no more, while clients use it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Credentials, Error};
use distlock_tests::log::lines_with;
use distlock_tests::rights;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{RedisServer, eventually, eventually_eq};
use tokio::time::sleep;

use super::least::{connect, grant, server_without_default_user};
use crate::row::{Row, rows};
use crate::support::{SOON, idle, ms, waiting};

async fn f66_user_that_is_deleted_is_denied_until_it_is_back(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let client = connect(&server, "shop").await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    admin.send(&["ACL", "DELUSER", "shop"]).await;
    row.injected("user deleted", 1);
    let lost = row.timeout(SOON, guard.lost()).await;
    lost.expect("told at the deadline");
    let denied = async || match client.lock("k").acquire().wait(ms(100)).await {
        Err(Error::Denied { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually(SOON, "a denial", denied).await;
    grant(&mut admin, "shop", &[]).await;
    let again = async || client.lock("k").acquire().wait(SOON).await;
    let again = eventually(SOON, "a grant", again).await;
    again.release().await.unwrap();
    idle(&client).await;
}

async fn f66_new_password_that_the_server_refuses_is_told_and_the_old_right_goes_on(row: &Row) {
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    let vault = Arc::new(Mutex::new(rights::PASSWORD.to_owned()));
    let password = Arc::clone(&vault);
    let builder = Client::builder()
        .key_prefix("shop:")
        .credentials_interval(ms(200))
        .credentials_from(move || {
            let password = password.lock().unwrap().clone();
            async move { Ok::<_, io::Error>(Credentials::new("shop", password)) }
        });
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let address = server.addr().to_string();
    let told = || lines_with(&["WARN", &address, "new credentials cannot be used"]);
    assert_eq!(told(), 0);
    *vault.lock().unwrap() = "no such password".to_owned();
    row.injected("new password that is wrong", 1);
    eventually(SOON, "a warning", async || told() > 0).await;
    assert_eq!(lines_with(&[&address, "no such password"]), 0);
    assert!(guard.is_held());
    let other = client.lock("other").acquire().await.unwrap();
    other.release().await.unwrap();
    guard.release().await.unwrap();
    idle(&client).await;
}

/// Its answer to a command that it does not know quotes the arguments.
async fn f66_password_that_a_server_without_auth_quotes_is_not_logged(row: &Row) {
    let server = RedisServer::builder().arg("--rename-command", "AUTH HIDDEN");
    let server = server.start().await;
    let builder = Client::builder()
        .credentials_interval(ms(200))
        // Any password is that of a user who needs none.
        .credentials_from(|| async {
            Ok::<_, io::Error>(Credentials::new("default", "quoted password"))
        });
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let address = server.addr().to_string();
    let told = || lines_with(&["WARN", &address, "new credentials cannot be used"]);
    eventually(SOON, "a warning", async || told() > 0).await;
    row.injected("AUTH that is unknown", 1);
    assert_eq!(lines_with(&[&address, "quoted password"]), 0);
    guard.release().await.unwrap();
}

async fn f66_waiter_that_may_listen_no_more_asks_by_itself(row: &Row) {
    /// Of a waiter whom nobody tells.
    const INTERVAL: Duration = Duration::from_secs(5);
    let (server, mut admin) = server_without_default_user().await;
    grant(&mut admin, "shop", &[]).await;
    grant(&mut admin, "listener", &[]).await;
    let holder = connect(&server, "shop").await.unwrap();
    let waiter = connect(&server, "listener").await.unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let waits = tokio::spawn(waiter.lock("k").acquire().into_future());
    waiting(&waiter, 1).await;
    let channels = ["PUBSUB", "CHANNELS"];
    while admin
        .ask::<Vec<String>>(&channels)
        .await
        .unwrap()
        .is_empty()
    {
        sleep(ms(5)).await;
    }
    // The server closes the connection of a subscriber that has lost its right.
    grant(&mut admin, "listener", &["resetchannels"]).await;
    row.injected("right to listen taken away", 1);
    guard.release().await.unwrap();
    let granted = row.timeout(2 * INTERVAL, waits).await;
    let guard = granted.expect("asked again").unwrap().unwrap();
    grant(&mut admin, "listener", &[]).await;
    guard.release().await.unwrap();
    idle(&waiter).await;
}

/// The password of `shop` changes twice while it holds locks. `tell` tells all servers a command.
pub(crate) async fn holds_outlive_changed_passwords(
    row: &Row,
    url: &str,
    keys: &[String],
    tell: impl AsyncFn(&[&str]),
) {
    const LEASE: Duration = Duration::from_secs(5);
    let vault = Arc::new(Mutex::new(rights::PASSWORD.to_owned()));
    let password = Arc::clone(&vault);
    let builder = Client::builder()
        .watchdog_timeout(LEASE)
        .unavailable_after(SOON * 3)
        .credentials_from(move || {
            let password = password.lock().unwrap().clone();
            async { Ok::<_, io::Error>(Credentials::new("shop", password)) }
        });
    let client = builder.connect(url).await.unwrap();
    let mut guards = Vec::new();
    for key in keys {
        guards.push(client.lock(key).acquire().await.unwrap());
    }
    for password in ["NEW", "NEWER"] {
        *vault.lock().unwrap() = password.to_owned();
        let word = format!(">{password}");
        tell(&["ACL", "SETUSER", "shop", "resetpass", &word]).await;
        tell(&["CLIENT", "KILL", "USER", "shop"]).await;
        row.injected("password changed", 1);
        for key in keys {
            let lock = client.lock(format!("{key}:other"));
            let other = lock.acquire().wait(SOON * 3).await.unwrap();
            other.release().await.unwrap();
        }
        // The time of a whole lease: they were renewed over new connections.
        sleep(LEASE).await;
        let held = guards.iter().filter(|guard| guard.is_held()).count();
        assert_eq!(held, keys.len(), "held with {password}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    idle(&client).await;
}

/// The user `shop` is deleted while it holds a lock, and comes back by `restore`. `tell` tells all servers a command.
pub(crate) async fn deleted_user_is_denied_until_it_is_back(
    row: &Row,
    url: &str,
    tell: impl AsyncFn(&[&str]),
    restore: impl AsyncFn(),
) {
    let builder = Client::builder().credentials("shop", rights::PASSWORD);
    let builder = builder.watchdog_timeout(ms(1_500));
    let client = builder.connect(url).await.unwrap();
    let guard = client.lock("shop:k").acquire().await.unwrap();
    tell(&["ACL", "DELUSER", "shop"]).await;
    row.injected("user deleted", 1);
    let lost = row.timeout(SOON, guard.lost()).await;
    lost.expect("told at the deadline");
    let denied = async || match client.lock("shop:k").acquire().wait(ms(100)).await {
        Err(Error::Denied { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually(SOON, "a denial", denied).await;
    restore().await;
    let again = async || client.lock("shop:k").acquire().wait(SOON).await;
    let again = eventually(SOON * 3, "a grant", again).await;
    again.release().await.unwrap();
    idle(&client).await;
}

/// Gives all servers of a set the user `shop`.
async fn set_user(set: &SentinelSet) {
    for at in 0..3 {
        set.server(at)
            .set_user("shop", &rights::of(rights::LOCKS))
            .await;
    }
}

async fn tell(set: &SentinelSet, words: &[&str]) {
    for at in 0..3 {
        set.server(at).cli(words).await;
    }
}

async fn f66_changed_password_behind_sentinels_costs_no_hold(row: &Row) {
    let set = SentinelSet::start().await;
    set_user(&set).await;
    let tell = async |words: &[&str]| tell(&set, words).await;
    let keys = ["shop:k".to_owned()];
    holds_outlive_changed_passwords(row, &set.url(), &keys, tell).await;
    let left = || set.server(0).keys();
    eventually_eq(SOON, "keys", Vec::<String>::new(), left).await;
}

async fn f66_user_that_is_deleted_behind_sentinels_is_denied_until_it_is_back(row: &Row) {
    let set = SentinelSet::start().await;
    set_user(&set).await;
    let tell = async |words: &[&str]| tell(&set, words).await;
    let restore = async || set_user(&set).await;
    deleted_user_is_denied_until_it_is_back(row, &set.url(), tell, restore).await;
}

rows! {
    Real:
        f66_changed_password_behind_sentinels_costs_no_hold,
        f66_user_that_is_deleted_behind_sentinels_is_denied_until_it_is_back,
        f66_user_that_is_deleted_is_denied_until_it_is_back,
        f66_waiter_that_may_listen_no_more_asks_by_itself,
        f66_new_password_that_the_server_refuses_is_told_and_the_old_right_goes_on,
        f66_password_that_a_server_without_auth_quotes_is_not_logged;
}
