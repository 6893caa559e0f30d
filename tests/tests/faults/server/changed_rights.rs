//! Row 66: a user that is deleted, or may listen no more, while clients use it.

use std::time::Duration;

use distlock::Error;
use distlock_tests::eventually;
use tokio::time::sleep;

use super::rights::{connect, grant, server_without_default_user};
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
    // The server ends the connection of whoever listens to what it may not.
    grant(&mut admin, "listener", &["resetchannels"]).await;
    row.injected("right to listen taken away", 1);
    guard.release().await.unwrap();
    let granted = row.timeout(2 * INTERVAL, waits).await;
    let guard = granted.expect("asked again").unwrap().unwrap();
    grant(&mut admin, "listener", &[]).await;
    guard.release().await.unwrap();
    idle(&waiter).await;
}

rows! {
    Real:
        f66_user_that_is_deleted_is_denied_until_it_is_back,
        f66_waiter_that_may_listen_no_more_asks_by_itself;
}
