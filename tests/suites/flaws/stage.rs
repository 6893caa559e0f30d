//! The server, the clients and the waiters of a scenario.

use std::time::Duration;

use distlock::{Client, Error, Guard, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::Faults;
use distlock_tests::flaws::Flaw;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub(super) const KEY: &str = "order:42";
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const MOMENT: Duration = Duration::from_millis(5);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// A server, faults, and perhaps a flaw.
pub(super) struct Stage {
    pub(super) server: MemoryServer,
    pub(super) faults: Faults,
    pub(super) flaw: Option<Flaw>,
}

impl Stage {
    /// The client that meets the faults and has the flaw.
    pub(super) fn client(&self) -> Client {
        self.flawed(&self.server)
    }

    /// The same on another server.
    pub(super) fn flawed(&self, server: &MemoryServer) -> Client {
        let builder = Client::builder()
            .watchdog_timeout(LEASE)
            .faults(&self.faults);
        let builder = match self.flaw {
            Some(flaw) => builder.flaw(flaw),
            None => builder,
        };
        builder.in_memory(server).unwrap()
    }

    /// A client that counts its leases as ended somewhat before the server does.
    pub(super) fn client_with_margin(&self, margin: Duration) -> Client {
        let mut builder = Client::builder().watchdog_timeout(LEASE);
        if self.flaw != Some(Flaw::MarginForgotten) {
            builder = builder.lease_margin(margin);
        }
        builder.in_memory(&self.server).unwrap()
    }

    /// A client without either.
    pub(super) fn other(&self) -> Client {
        let builder = Client::builder().watchdog_timeout(LEASE);
        builder.in_memory(&self.server).unwrap()
    }

    /// Can nobody else have the key now?
    pub(super) async fn is_taken(&self) -> bool {
        let tried = self.other().lock(KEY).try_acquire().await.unwrap();
        tried.is_none()
    }
}

pub(super) async fn hold(client: &Client) -> Guard {
    hold_of(client, KEY).await
}

pub(super) async fn hold_of(client: &Client, key: &str) -> Guard {
    client.lock(key).try_acquire().await.unwrap().unwrap()
}

pub(super) type Waiting = JoinHandle<Result<Guard, Error>>;

/// An acquisition that waits; after a moment it stands in line and has subscribed.
pub(super) async fn waiting(client: &Client) -> Waiting {
    let waiting = tokio::spawn(client.lock(KEY).acquire().into_future());
    sleep(MOMENT).await;
    waiting
}

pub(super) async fn gets_in_within(limit: Duration, waiting: Waiting) -> bool {
    timeout(limit, waiting).await.is_ok()
}
