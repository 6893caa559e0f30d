//! A server and its replica, with a connection between them that can be cut.

use std::time::Duration;

use distlock::{Builder, Client, Error};
use distlock_tests::{RedisServer, eventually, eventually_eq};

use crate::support::{SOON, client_with, ms};

/// How long a replica may take to confirm. Also where it cannot: the tests wait for that.
pub(crate) const TIMEOUT: Duration = ms(500);

/// A primary and its replica. What they are to each other, the test says.
pub(crate) struct Pair {
    pub(crate) primary: RedisServer,
    pub(crate) replica: RedisServer,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        let primary = RedisServer::builder().arg("--repl-diskless-sync-delay", "0");
        let pair = Self {
            primary: primary.start().await,
            replica: RedisServer::start().await,
        };
        pair.join().await;
        pair
    }

    /// The replica follows the primary.
    pub(crate) async fn join(&self) {
        let port = self.primary.port().to_string();
        self.follow(&["REPLICAOF", "127.0.0.1", &port]).await;
        eventually_eq(SOON, "replicas", "1".to_owned(), || self.replicas()).await;
        let up = "up".to_owned();
        eventually_eq(SOON, "replication", up, || async {
            let mut info = self.replica.info("replication").await;
            info.remove("master_link_status").unwrap_or_default()
        })
        .await;
        // The primary knows of that a little later, and counts the replica from then on.
        eventually(SOON, "the primary to count the replica", || async {
            let info = self.primary.info("replication").await;
            info.get("slave0")
                .is_some_and(|replica| replica.contains("state=online"))
        })
        .await;
    }

    /// The replica does not reach the primary any more, and nothing is on its way to it.
    pub(crate) async fn cut(&self) {
        self.follow(&["REPLICAOF", "127.0.0.1", "1"]).await;
        eventually_eq(SOON, "replicas", "0".to_owned(), || self.replicas()).await;
    }

    /// The replica is a primary as well.
    pub(crate) async fn promote(&self) {
        self.follow(&["REPLICAOF", "NO", "ONE"]).await;
    }

    pub(crate) async fn follow(&self, words: &[&str]) {
        self.replica.cli(words).await;
    }

    pub(crate) async fn replicas(&self) -> String {
        let mut info = self.primary.info("replication").await;
        info.remove("connected_slaves").unwrap_or_default()
    }

    /// A client of the primary whose grants the replica has to confirm.
    pub(crate) async fn confirmed_client(&self) -> Client {
        self.client_that_waits(TIMEOUT).await
    }

    /// The same, with the time in which the replica has to confirm.
    pub(crate) async fn client_that_waits(&self, timeout: Duration) -> Client {
        let set = |builder: Builder| {
            let builder = builder.replicas(1, timeout).unavailable_after(2 * timeout);
            builder.response_timeout(SOON)
        };
        client_with(&self.primary.url(), set).await
    }
}

pub(crate) fn assert_unconfirmed(error: &Error) {
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
}
