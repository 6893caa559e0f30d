//! One of two backends that are compared: a server, its data, and the verbs of a client.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use distlock::test_util::{Kind, Verbs, collect_always, locks, lose_token, tokens};
use distlock::{Client, MemoryServer};
use distlock_tests::RedisServer;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

/// Longer than anything takes on a noisy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const KEYS: [&str; 3] = ["a", "{b}:c", "d e\0\r\n"];

/// The client that all owners are of, so that they can be compared as they stand in the server.
pub(crate) const OWNERS: Uuid = Uuid::from_u128(7);

/// The owner with this number, as it stands in the server.
pub(crate) fn owner(number: u64) -> String {
    format!("{OWNERS}:{number}")
}

/// What a server may lose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DataLoss {
    /// The last fencing token of this key.
    TokenLost(usize),
    AllLost,
}

/// Where the data of a side is.
enum Server {
    Memory(MemoryServer),
    /// Each server that may have some.
    Redis(Vec<MultiplexedConnection>),
}

/// One of the two backends: a client of a server on which nothing is locked.
pub(crate) struct Side {
    pub(super) verbs: Verbs,
    server: Server,
}

pub(super) type Locks = BTreeMap<String, BTreeMap<String, u64>>;

pub(super) type Tokens = BTreeMap<String, u64>;

/// What the names of fencing tokens begin with.
pub(super) const TOKEN: &str = "redisson_lock_token:";

impl Side {
    pub(super) fn memory(kind: Kind, prefix: &str) -> Self {
        let server = MemoryServer::new();
        let builder = Client::builder().key_prefix(prefix);
        let client = builder.in_memory(&server).unwrap();
        Self {
            verbs: Verbs::new(&client, OWNERS).of_kind(kind),
            server: Server::Memory(server),
        }
    }

    /// The servers behind this URL that have data.
    pub(super) async fn redis(
        url: &str,
        servers: &[&RedisServer],
        kind: Kind,
        prefix: &str,
    ) -> Self {
        // Each step is sent once. A machine that stands still is no difference between the two.
        let builder = Client::builder()
            .key_prefix(prefix)
            .response_timeout(Duration::MAX)
            .unavailable_after(SOON);
        let client = builder.connect(url).await.unwrap();
        // So that what comes up at once travels together.
        collect_always(&client);
        let mut connections = Vec::new();
        for server in servers {
            connections.push(server.connection().await);
        }
        Self {
            verbs: Verbs::new(&client, OWNERS).of_kind(kind),
            server: Server::Redis(connections),
        }
    }

    pub(super) async fn lose(&self, loss: DataLoss, round: u64) {
        let name = |key: usize| self.verbs.in_round(round).name(KEYS[key]);
        match (&self.server, loss) {
            (Server::Memory(server), DataLoss::TokenLost(key)) => lose_token(server, &name(key)),
            (Server::Memory(server), DataLoss::AllLost) => server.forget_all(),
            (Server::Redis(servers), DataLoss::TokenLost(key)) => {
                let token = token_of(&name(key));
                for server in servers {
                    // The other nodes of a cluster send it elsewhere.
                    if ask::<Vec<String>>(server, &["KEYS", "*"])
                        .await
                        .contains(&token)
                    {
                        ask::<()>(server, &["DEL", &token]).await;
                    }
                }
            }
            (Server::Redis(servers), DataLoss::AllLost) => {
                for server in servers {
                    ask::<()>(server, &["FLUSHALL"]).await;
                }
            }
        }
    }

    /// All locks with their holders, and all fencing tokens.
    pub(super) async fn stored(&self) -> (Locks, Tokens) {
        let servers = match &self.server {
            Server::Memory(server) => return (locks(server), tokens(server)),
            Server::Redis(servers) => servers,
        };
        let (mut locks, mut tokens) = (Locks::new(), Tokens::new());
        for server in servers {
            for name in ask::<Vec<String>>(server, &["KEYS", "*"]).await {
                if name.starts_with(TOKEN) {
                    tokens.insert(name.clone(), ask(server, &["GET", &name]).await);
                } else if ask::<String>(server, &["TYPE", &name]).await == "hash" {
                    locks.insert(name.clone(), ask(server, &["HGETALL", &name]).await);
                }
            }
        }
        (locks, tokens)
    }
}

async fn ask<T: FromRedisValue>(server: &MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    let asked = command.arg(words).query_async(&mut server.clone()).await;
    asked.unwrap()
}

/// What Redisson calls the token of a lock.
pub(super) fn token_of(name: &str) -> String {
    if name.contains('{') {
        format!("{TOKEN}{name}")
    } else {
        format!("{TOKEN}{{{name}}}")
    }
}
