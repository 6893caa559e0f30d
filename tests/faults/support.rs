//! What most rows need: clients, and the question whether everything is free again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{self, Sizes, Verbs};
use distlock::{Builder, Client, Guard};
pub(crate) use distlock_tests::listened;
use distlock_tests::{Leaks, Proxy, RedisServer, eventually, eventually_eq};
use futures_util::future::join_all;

use crate::row::Row;

/// Longer than anything here takes on a noisy machine, and far below the lease of 30 s, which would also free a lock.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// What user code panics with where a test wants it to: the message is not the library's.
pub(crate) const OURS: &str = "injected into user code";

/// Prints the panics that nobody wanted. Those of [`OURS`] would hide them, a stack trace each.
pub(crate) fn silence_wanted_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        if text.or(payload.downcast_ref().copied()) != Some(OURS) {
            print(info);
        }
    }));
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server of the test's own, and a proxy in front of it.
pub(crate) async fn server_and_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    (server, proxy)
}

/// A client of `url`, with settings.
pub(crate) async fn client_with(url: &str, set: impl FnOnce(Builder) -> Builder) -> Client {
    set(Client::builder()).connect(url).await.expect("a client")
}

/// A client of `url` that takes a command for unanswered after 300 ms.
pub(crate) async fn client(url: &str) -> Client {
    client_with(url, |builder| builder.response_timeout(ms(300))).await
}

/// A client of `url` with the settings that users have: it waits for an answer also where the machine is busy.
pub(crate) async fn default_client(url: &str) -> Client {
    client_with(url, |builder| builder).await
}

/// Acquires, renews and releases once: connections stand and scripts are known from here on.
pub(crate) async fn warm_up(client: &Client) {
    let guard = client.lock("warm:up").acquire().await.unwrap();
    let renewal = ("warm:up", guard.owner().number(), 1, SOON);
    let verbs = Verbs::new(client, client.id());
    verbs.renew(&[renewal]).await.unwrap();
    guard.release().await.unwrap();
    // Of what begins at once, what is more than sixteen goes together.
    let at_once = (0..20).map(|n| client.lock(format!("warm:up:{n}")).acquire().into_future());
    for guard in join_all(at_once).await {
        guard.unwrap().release().await.unwrap();
    }
}

/// Completes when this client keeps nothing: no hold, no waiter, no release owed.
pub(crate) async fn idle(client: &Client) {
    eventually_eq(SOON, "what the client keeps", Sizes::default(), || async {
        test_util::sizes(client)
    })
    .await;
}

/// A grant that more replicas have to confirm than there are fails, and the error has both numbers.
pub(crate) async fn assert_told_of_too_few_replicas(client: &Client, numbers: &str) {
    for waits in [false, true] {
        // Those that there are may be late.
        let told = async || {
            let acquired = if waits {
                client.lock("k").acquire().wait(SOON).await.map(Some)
            } else {
                client.lock("k").try_acquire().await
            };
            // What the attempt before was granted may not be released yet.
            let error = acquired.err().ok_or_else(|| "it is taken".to_owned())?;
            assert!(error.is_unavailable(), "{error}");
            match error.to_string() {
                text if text.contains(numbers) => Ok(()),
                text => Err(text),
            }
        };
        eventually(SOON * 3, "the numbers", told).await;
    }
    idle(client).await;
}

/// The holder of the one learns of its loss soon, and the other hold goes on.
pub(crate) async fn assert_told_of_one(row: &Row, lost: Guard, kept: Guard) {
    let told = row.timeout(SOON, lost.lost()).await;
    told.expect("the holder is told");
    assert!(lost.release().await.unwrap_err().is_lost());
    assert!(kept.is_held());
    kept.release().await.unwrap();
}

/// Completes when this client's waiters are this many.
pub(crate) async fn waiting(client: &Client, waiters: usize) {
    eventually_eq(SOON, "waiters", waiters, || async {
        test_util::sizes(client).waiters
    })
    .await;
}

/// How many holds the server has renewed so far: beside renewals only a look at a lock asks for a single field.
pub(crate) async fn renewals(server: &RedisServer) -> u64 {
    server.command_calls("hget").await
}

/// Completes when all is free: these clients keep nothing, and the server has no key and no listener.
pub(crate) async fn free(server: &RedisServer, clients: &[&Client]) {
    for client in clients {
        idle(client).await;
    }
    let left = || async { (server.keys().await, server.pubsub_channels().await) };
    eventually_eq(SOON, "keys and channels", (vec![], vec![]), left).await;
}

/// As [`free`], and when the last handle of these clients goes, no connection and no task is left either.
///
/// Not where a late command may still come: then the client goes on releasing for up to a lease after its last handle is gone.
pub(crate) async fn nothing_is_left(leaks: Leaks, server: &RedisServer, clients: Vec<Client>) {
    free(server, &clients.iter().collect::<Vec<_>>()).await;
    drop(clients);
    leaks.check(server, "").await;
}

/// Inside of what a lock guards: one at a time, or a panic.
pub(crate) struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    pub(crate) fn enter(inside: &'a AtomicUsize) -> Self {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
        Self(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
