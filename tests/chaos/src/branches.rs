//! Branches of a multi-lock's scope, which want its keys one by one and together.

use std::time::Duration;

use distlock::{Blocker, Client, Error};

use super::worker::other_key;

/// Runs branches that have one of the keys and want another one, beside one that wants all of them as one lock. `own`: a key that
/// the scope does not have, and nobody else wants.
///
/// # Panics
/// If a branch waits for another one for longer than `patience`.
pub(super) async fn cross(client: &Client, key: &str, own: &str, patience: Duration) {
    let other = other_key(key);
    let one_by_one = async |first: &str, second: &str| {
        let first = client.lock(first).acquire().wait(patience).await?;
        tokio::task::yield_now().await;
        let second = client.lock(second).acquire().wait(patience).await?;
        second.release().await?;
        first.release().await
    };
    let together = async {
        let all = client.multi_lock([key, other.as_str(), own]).acquire();
        all.wait(patience).await?.release().await
    };
    let (one, two, all) = tokio::join!(one_by_one(&other, key), one_by_one(own, key), together);
    for ended in [one, two, all] {
        // Other effects of the servers on them have tests of their own.
        if let Err(
            error @ Error::Timeout {
                blocker: Blocker::Sibling,
                ..
            },
        ) = ended
        {
            panic!("a branch waited for another one: {error}");
        }
    }
}
