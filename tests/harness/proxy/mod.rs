//! The wire between a client and a server, in the hands of a test.
//!
//! A [`Proxy`] listens on a loopback port and carries each connection to its target. Faults are set
//! at any time, for connections that are open ([`Select::EXISTING`]), for those to come
//! ([`Select::NEW`]), or by what a connection is for ([`Select::SUBSCRIBERS`],
//! [`Select::COMMANDS`]). Each fault counts what it did, so that a test can tell whether it ever
//! happened: see [`Fault::hits`].
//!
//! | to have | call |
//! | --- | --- |
//! | a black hole, delays, a thin line, tiny segments | [`Proxy::flow`] |
//! | a reset, at once or after some bytes | [`Proxy::cut`], [`Proxy::cut_after`] |
//! | one direction closed | [`Proxy::fin`] |
//! | no new connections | [`Proxy::refuse`] |
//! | a request that is executed but not answered | [`Proxy::eat_reply`] |
//! | a request that is executed much later | [`Proxy::hold`] |
//!
//! # Invariants
//! 1. The proxy never does what no network could: within a direction nothing overtakes, nothing is
//!    lost from the middle of a connection that lives on, nothing comes twice.
//! 2. No task outlives the [`Proxy`].

mod connection;
mod fault;
mod frame;
mod lane;
mod rules;
mod select;
mod writer;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::server::loopback;

use connection::Connection;
use rules::{Hits, Rules};
use select::Selector;

pub use connection::Caught;
pub use fault::{Fault, Held};
pub use select::{Flow, Role, Select, Way, Which};

/// A proxy in front of one server at a time. Ends, with all connections, by `Drop`.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

/// A connection through the proxy, as [`Proxy::connections`] tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Counts from 0 in the order in which they were accepted.
    pub id: u64,
    /// What it is for.
    pub role: Role,
    /// Requests that went to the server, subscriptions not counted.
    pub requests: u64,
    /// Replies that came from the server, pushes not counted.
    pub replies: u64,
}

impl Proxy {
    /// Starts to listen, in front of the server at `target`.
    ///
    /// # Panics
    /// If no port can be had.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(loopback(0))
            .await
            .expect("a port for the proxy");
        let addr = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared::new(target));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self {
            addr,
            shared,
            accepting,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// URL for a client, without options.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Another server, for connections to come.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Sets how bytes move. Of several settings for a connection the last one counts.
    ///
    /// Each message that it concerned is a hit, with [`Flow::Pass`] as well.
    pub fn flow(&self, on: Select, way: Way, flow: Flow) -> Fault {
        self.fault(|rules, at| rules.add_flow(on.at(at), way, flow))
    }

    /// Accepts connections from now on only to reset them. Each is a hit.
    pub fn refuse(&self) -> Fault {
        self.fault(|rules, _| rules.refuse())
    }

    /// Resets connections on both sides. Gives their number.
    ///
    /// What the server has not read yet is lost.
    #[must_use = "0 means that there was nothing to cut"]
    pub fn cut(&self, on: Select) -> usize {
        self.shared
            .selected(on)
            .iter()
            .map(|connection| connection.cut())
            .count()
    }

    /// Resets one connection, once this many bytes have gone that way on the selected ones together:
    /// in the middle of a message, if that is where they end. The cut is one hit.
    pub fn cut_after(&self, on: Select, way: Way, bytes: usize) -> Fault {
        self.fault(|rules, at| rules.add_cut(on.at(at), way, bytes))
    }

    /// Closes a direction: its receiver sees the end of the stream. What comes later that way is
    /// dropped. Gives the number of connections.
    #[must_use = "0 means that there was nothing to close"]
    pub fn fin(&self, on: Select, way: Way) -> usize {
        self.shared
            .selected(on)
            .iter()
            .map(|connection| connection.fin(way))
            .count()
    }

    /// Lets one request through, drops its reply, and cuts its connection. That is one hit.
    ///
    /// Replies to earlier requests are delivered. A subscription has no reply and does not count.
    pub fn eat_reply(&self, on: Select, which: impl Into<Which>) -> Fault {
        self.fault(|rules, at| rules.add_eat(on.at(at), which.into()))
    }

    /// Keeps one request back until the test delivers it, together with all that follows it on its
    /// connection. The connection to the server stays open, also when the client has gone.
    pub fn hold(&self, on: Select, which: impl Into<Which>) -> Held {
        let on = on.at(self.shared.next_id());
        Held::new(self.shared.rules().add_hold(on, which.into()))
    }

    /// Takes back all faults. Requests that were caught stay caught.
    pub fn heal(&self) {
        self.shared.change(Rules::heal);
    }

    /// The connections that are open on at least one side.
    #[must_use]
    pub fn connections(&self) -> Vec<Info> {
        self.shared
            .connections
            .lock()
            .open
            .values()
            .map(|open| open.info())
            .collect()
    }

    /// How many connections were accepted so far, refused ones included.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.next_id()
    }

    fn fault(&self, set: impl FnOnce(&mut Rules, u64) -> (u64, Hits)) -> Fault {
        let next_id = self.shared.next_id();
        let (id, hits) = self.shared.change(|rules| set(rules, next_id));
        Fault::new(id, hits, Arc::clone(&self.shared))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections belong to the accepting task's set, and end with it.
        self.accepting.abort();
    }
}

/// What the proxy, its handles and its connections share.
#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    connections: Mutex<Connections>,
    rules: Mutex<Rules>,
    // Fires when a flow may have become another.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Connections {
    next_id: u64,
    open: BTreeMap<u64, Arc<Connection>>,
}

impl Shared {
    fn new(target: SocketAddr) -> Self {
        Self {
            target: Mutex::new(target),
            connections: Mutex::default(),
            rules: Mutex::default(),
            changed: watch::Sender::default(),
        }
    }

    fn target(&self) -> SocketAddr {
        *self.target.lock()
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Rules) -> T) -> T {
        let result = change(&mut self.rules());
        self.changed.send_replace(());
        result
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn next_id(&self) -> u64 {
        self.connections.lock().next_id
    }

    fn selected(&self, on: Select) -> Vec<Arc<Connection>> {
        let connections = self.connections.lock();
        let on: Selector = on.at(connections.next_id);
        let open = connections.open.values();
        open.filter(|open| on.matches(open.id(), open.role()))
            .cloned()
            .collect()
    }

    fn open(&self) -> Arc<Connection> {
        let mut connections = self.connections.lock();
        let id = connections.next_id;
        connections.next_id += 1;
        let connection = Arc::new(Connection::new(id));
        connections.open.insert(id, Arc::clone(&connection));
        connection
    }

    fn close(&self, id: u64) {
        self.connections.lock().open.remove(&id);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted.expect("the proxy can accept");
                let connection = shared.open();
                if shared.rules().refuses() {
                    lane::reset(client);
                    shared.close(connection.id());
                } else {
                    carried.spawn(carry(Arc::clone(&shared), connection, client));
                }
            }
            Some(_) = carried.join_next() => {}
        }
    }
}

async fn carry(shared: Arc<Shared>, connection: Arc<Connection>, client: TcpStream) {
    // An error means that the client is gone already, which its reader will see.
    let _ = client.set_nodelay(true);
    lane::carry(&shared, &connection, client).await;
    shared.close(connection.id());
}
