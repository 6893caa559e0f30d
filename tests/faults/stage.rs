//! For rows that are played on both backends: a server of either kind, its clients, and the faults between them.

use std::sync::Mutex;
use std::time::Duration;

use distlock::test_util::{Sizes, sizes, stored};
use distlock::{Builder, Client, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::Faults;
use distlock_tests::{RedisServer, eventually_eq};

use crate::support::SOON;

enum Server {
    /// In paused time, or with threads.
    Memory(MemoryServer),
    /// In real time.
    Redis(Box<RedisServer>),
}

/// Where a row is played.
pub(crate) struct Stage {
    server: Server,
    faults: Faults,
    clients: Mutex<Vec<Client>>,
}

impl Stage {
    pub(crate) fn memory() -> Self {
        Self::on(Server::Memory(MemoryServer::new()))
    }

    pub(crate) async fn redis() -> Self {
        Self::on(Server::Redis(Box::new(RedisServer::start().await)))
    }

    fn on(server: Server) -> Self {
        Self {
            server,
            faults: Faults::new(),
            clients: Mutex::default(),
        }
    }

    /// A client without faults.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    /// A client that meets the [`faults`](Stage::faults).
    pub(crate) async fn faulty_client(&self) -> Client {
        self.client_with(|builder| builder.faults(&self.faults))
            .await
    }

    /// A client with these settings.
    pub(crate) async fn client_with(&self, set: impl FnOnce(Builder) -> Builder) -> Client {
        let builder = set(Client::builder());
        let client = match &self.server {
            Server::Memory(server) => builder.in_memory(server).unwrap(),
            Server::Redis(server) => builder.connect(&server.url()).await.unwrap(),
        };
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Takes back all faults that are planned.
    pub(crate) fn heal(&self) {
        self.faults.clear_all();
    }

    /// The one number in memory, the other on a real server.
    pub(crate) fn either<T>(&self, memory: T, redis: T) -> T {
        match &self.server {
            Server::Memory(_) => memory,
            Server::Redis(_) => redis,
        }
    }

    /// Completes when no key is left in the server and nothing in any client; panics where that takes longer than
    /// `bound`. A real server has [`SOON`], which is far below the lease that would free a lock as well.
    pub(crate) async fn free_within(&self, bound: Duration) {
        let bound = self.either(bound, SOON.max(10 * bound));
        let left = || async {
            let keys = match &self.server {
                Server::Memory(server) => stored(server).0,
                Server::Redis(server) => {
                    let keys = server.keys().await;
                    // The last fencing token of a lock stays on purpose.
                    let is_left = |key: &&String| !key.starts_with("redisson_lock_token:");
                    keys.iter().filter(is_left).count()
                }
            };
            (keys, self.kept())
        };
        eventually_eq(bound, "keys, and what clients keep", (0, vec![]), left).await;
    }

    /// The same of the clients alone.
    pub(crate) async fn idle_within(&self, bound: Duration) {
        let bound = self.either(bound, SOON.max(10 * bound));
        let kept = || async { self.kept() };
        eventually_eq(bound, "what clients keep", vec![], kept).await;
    }

    /// As [`free_within`](Stage::free_within), soon, and no channel is listened to.
    pub(crate) async fn nothing_is_left(&self) {
        self.free_within(SOON / 10).await;
        let channels = || async {
            match &self.server {
                Server::Memory(server) => stored(server).1,
                Server::Redis(server) => server.pubsub_channels().await.len(),
            }
        };
        eventually_eq(SOON, "channels", 0, channels).await;
    }

    /// How often the real server ran a command.
    pub(crate) async fn command_calls(&self, command: &str) -> u64 {
        match &self.server {
            Server::Memory(_) => panic!("no commands in memory"),
            Server::Redis(server) => server.command_calls(command).await,
        }
    }

    fn kept(&self) -> Vec<Sizes> {
        let clients = self.clients.lock().unwrap();
        let kept = clients.iter().map(sizes);
        kept.filter(|kept| *kept != Sizes::default()).collect()
    }
}
