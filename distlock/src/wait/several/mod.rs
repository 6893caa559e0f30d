//! How an acquisition waits for several keys of one client that are granted together.
//!
//! It waits and asks as a [waiter](super::waiter) for one key does. This module adds what the other keys need.
//!
//! It has the same place in the queues of all its keys: before everything that came later. It *waits* in one of these
//! queues and blocks only that one. In the other queues, later waiters may overtake it. When it is first in that queue and the key is
//! free, it takes its slots in the other queues and *collects*: holds that end are offered to it, or it finds keys
//! free. When nothing is missing that this client holds, it asks the server for the free keys and takes the offers. Keys in
//! several slots of a cluster are asked for [slot by slot](self::parts).
//!
//! # No deadlock, and no long waits for others
//! * It holds nothing while it waits. While it collects, an offer lies in its slot for at most
//!   [`HAND_OVER_TIME`](crate::config::HAND_OVER_TIME), until
//!   other holders of its own client end. After that the offered hold is released in the server.
//! * It collects for at most a third of the time in which it let the others pass before. If one of the keys is not free by
//!   then, it lets the others pass again and waits for that key. Those that need one key only lose at most a quarter of
//!   their time, however long the holders of other keys take.
//! * It stops collecting if the release of a hold that is in its way is not answered for a
//!   [response timeout](crate::config::Config::response_timeout), and waits for that key. There it finds out whether the server is gone.
//! * Keys that change hands in step could be missed in the same way each time. After
//!   [`COLLECTIONS_WITHOUT_REST`](crate::config::COLLECTIONS_WITHOUT_REST) failures it [rests](self::rest) before it waits
//!   again, twice as long each time. So it may collect for longer, until it is as long as the other keys are held. A rest is no
//!   longer than [`MOST_REST`](crate::config::MOST_REST), and ends when all keys are free.

mod collect;
mod part;
pub(super) mod parts;
mod position;
mod rest;
mod waiter;

use std::sync::Arc;

use self::position::WaitPosition;
pub(crate) use self::rest::rest_after_refusal;
use self::waiter::{RoundOutcome, SeveralKeysWaiter};
use super::request::Request;
use crate::error::Error;
use crate::local::{OpenShares, Registry};

/// Waits until all requested keys are granted.
pub(super) async fn acquire(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<OpenShares, Error> {
    let mut next = WaitPosition::first(request);
    loop {
        // Declared before: the drop of the waiter may wake and count, and if a block's end panics, the value of the block is not
        // dropped.
        let outcome;
        {
            let mut waiter = SeveralKeysWaiter::join(registry, request, next);
            outcome = waiter.win().await?;
            // Before anything else happens, the waiter's owners are ended, and its turn goes to the next one.
        }
        match outcome {
            RoundOutcome::All(shares) => return Ok(shares),
            RoundOutcome::Elsewhere(mut position) => {
                position.rest(registry, request).await;
                next = position;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::yield_now;
    use tokio::time::timeout;

    use crate::Client;
    use crate::config::OWN_HOLDER_TRUST;
    use crate::local::Registry;
    use crate::resource::key::{Key, Resource};
    use crate::resource::kind::Kind;

    /// Whether anybody waits in the queues of `a` and `b`.
    fn in_line(registry: &Registry) -> [bool; 2] {
        ["a", "b"].map(|key| {
            let key = Key::new("", key).unwrap();
            registry.has_waiters(&Resource {
                kind: Kind::Reentrant,
                key,
            })
        })
    }

    const MOMENT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn collecting_waiter_that_is_polled_again_notices_at_once_that_it_has_lost_its_place() {
        let client = Client::in_memory();
        let registry = client.registry();
        let a = client.lock("a").acquire().await.unwrap();
        let _b = client.lock("b").acquire().await.unwrap();
        let mut both = Box::pin(client.multi_lock(["a", "b"]).acquire().into_future());
        // So it may collect for a third of this time.
        assert!(timeout(LONG, &mut both).await.is_err());
        a.release().await.unwrap();
        // Until it has asked the server about the hold of b.
        assert!(timeout(OWN_HOLDER_TRUST * 2, &mut both).await.is_err());
        assert_eq!(
            in_line(&registry),
            [true, true],
            "it collects, and b is held"
        );

        let rival = tokio::spawn(client.lock("a").acquire().into_future());
        let a = rival.await.unwrap().unwrap();
        assert_eq!(in_line(&registry), [false, false], "it was not polled");
        assert!(timeout(MOMENT, &mut both).await.is_err());
        assert_eq!(in_line(&registry), [true, false], "it waits for a again");

        // It was in nobody's way for a moment only, and so collects for a part of it.
        let latecomer = tokio::spawn(client.lock("a").acquire().into_future());
        yield_now().await;
        a.release().await.unwrap();
        let granted = async { latecomer.await.unwrap().unwrap() };
        let beside = async {
            tokio::select! {
                granted = granted => granted,
                both = &mut both => panic!("{both:?}"),
            }
        };
        let granted = timeout(Duration::from_secs(1), beside).await;
        granted.unwrap().release().await.unwrap();
    }
}
