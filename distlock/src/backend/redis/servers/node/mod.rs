//! What one server needs: a connection for commands, and one for messages that is made when it is first used.

mod send;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

pub(super) use self::send::Sending;
use super::confirmations::Confirmations;
use super::shared::Shared;
use crate::backend::Fault;
use crate::backend::redis::connection::{
    ConnectedGauge, Expected, Link, LinkConfig, Locate, OutageLog, Pings, Together, join,
};
use crate::backend::redis::messages::{PubSubMode, ServerNumber, Subscriber};
use crate::backend::redis::tracking::Switch;
use crate::config::{ATTEMPTS_AT_ONCE, RECONNECT_BACKOFF};

pub(crate) struct Node {
    /// A number that no other server of the client has.
    number: ServerNumber,
    link: Arc<Link>,
    subscriber: Subscriber,
    /// `None` if grants need no confirmation.
    confirmations: Option<Arc<Confirmations>>,
    outages: Arc<OutageLog>,
    tracking: Switch,
    response_timeout: Duration,
    /// What the server has to be.
    expected: Expected,
    /// The scripts that the server has carried out, each by its bit.
    carried_out: AtomicU64,
    /// Whether it has refused the last scripts because it does not reach enough nodes of its cluster.
    lacks_the_others: AtomicBool,
    /// The attempts that may be unanswered at once. Renewals and releases need no slot, so they never queue behind attempts.
    attempt_slots: Arc<Semaphore>,
}

/// What the connections to one server have in common.
struct Beside<'a> {
    shared: &'a Shared,
    together: Arc<Together>,
    expected: Expected,
    outages: &'a Arc<OutageLog>,
}

impl Beside<'_> {
    /// A connection that carries no commands of locks: it has separate epochs. It is always without Nagle's delay, because its
    /// commands are small and rare, and somebody waits for each answer.
    fn link(&self, what: &'static str, server: &Arc<dyn Locate>) -> LinkConfig {
        let shared = self.shared;
        LinkConfig {
            what,
            server: Arc::clone(server),
            together: Arc::clone(&self.together),
            connector: Arc::clone(&shared.connector),
            names: Arc::clone(&shared.names),
            expected: self.expected,
            nodelay: true,
            pings: shared.pings,
            longest_pause: shared.longest_pause,
            outages: Arc::clone(self.outages),
            // Its changes say nothing of holds, so no hold is renewed and no release repeated because of them.
            epochs: Arc::default(),
            restart_grace: Duration::ZERO,
            check: None,
            on_push: Arc::new(|_, _| {}),
        }
    }

    /// The connection over which replicas confirm grants, if they are to.
    fn confirmations(&self, server: &Arc<dyn Locate>) -> Option<Arc<Confirmations>> {
        let shared = self.shared;
        let wanted = shared.confirmation?;
        let pings = Pings {
            // The server answers a PING behind a WAIT, and not before that ends.
            patience: shared.pings.patience.saturating_add(wanted.timeout),
            ..shared.pings
        };
        let link = LinkConfig {
            pings,
            ..self.link("confirmations", server)
        };
        Some(Confirmations::new(
            Link::new(link),
            wanted,
            shared.response_timeout,
        ))
    }
}

impl Node {
    /// A server that is connected to when it is first used. `messages` says where connections for messages lead to.
    pub(super) fn new(
        server: Arc<dyn Locate>,
        messages: Arc<dyn Locate>,
        expected: Expected,
        shared: &Shared,
        number: ServerNumber,
        mode: PubSubMode,
    ) -> Self {
        let gauge = shared.gauge.clone();
        let gauge = gauge.unwrap_or_else(|| ConnectedGauge::of_each(server.name()));
        let outages = Arc::new(OutageLog::new(
            server.name(),
            gauge,
            Arc::clone(&shared.stake),
        ));
        let beside = Beside {
            shared,
            together: Arc::default(),
            expected,
            outages: &outages,
        };
        let confirmations = beside.confirmations(&server);
        let heard = Arc::clone(&shared.heard);
        let commands = LinkConfig {
            on_push: Arc::new(move |_, push| heard.add(&push)),
            nodelay: shared.nodelay,
            epochs: Arc::clone(&shared.epochs),
            restart_grace: shared.restart_grace,
            check: Some(Arc::clone(&shared.check)),
            ..beside.link("commands", &server)
        };
        let messages = |on_push| LinkConfig {
            longest_pause: RECONNECT_BACKOFF.longest,
            on_push,
            ..beside.link("messages", &messages)
        };
        let node = Self {
            number,
            link: Link::new(commands),
            subscriber: shared.subscriptions.at(number, mode, messages),
            confirmations,
            outages: Arc::clone(&outages),
            tracking: Switch::new(shared.track_holds),
            response_timeout: shared.response_timeout,
            expected,
            carried_out: AtomicU64::new(0),
            lacks_the_others: AtomicBool::new(false),
            attempt_slots: Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)),
        };
        join(&beside.together, node.links());
        node
    }

    /// What errors and logs call the server.
    pub(crate) fn name(&self) -> &str {
        self.outages.server()
    }

    pub(crate) fn attempt_slots(&self) -> &Arc<Semaphore> {
        &self.attempt_slots
    }

    /// Whether the client wants this server to track keys.
    pub(super) fn is_to_track(&self) -> bool {
        self.tracking.is_wanted()
    }

    /// A number that no other server of the client has.
    pub(super) fn number(&self) -> ServerNumber {
        self.number
    }

    /// The address that the connection for commands leads to, or has led to last.
    pub(crate) fn reached_at(&self) -> Option<SocketAddr> {
        self.link.reached_at()
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Begins to connect, and tells in the log if that fails. The caller does not wait for it.
    pub(super) fn begin_to_connect(&self) {
        self.tell_first();
        self.link.connect();
    }

    /// From now on the log also reports failures before the first connection.
    pub(super) fn tell_first(&self) {
        self.outages.tell_first();
    }

    /// The client needs the server no more.
    pub(super) fn forget(&self) {
        self.outages.forget();
    }

    /// The connections that lead to this server.
    pub(super) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        let confirmations = self.confirmations.as_ref();
        let more = confirmations.map(|confirmations| confirmations.link());
        [&self.link, self.subscriber.link()].into_iter().chain(more)
    }

    /// Whether it has refused the last scripts because it does not reach enough nodes of its cluster. It still answers with its map,
    /// in which it has its slots.
    pub(super) fn lacks_the_others(&self) -> bool {
        // Relaxed, here and where it is written: nothing else is read by it.
        self.lacks_the_others.load(Ordering::Relaxed)
    }

    /// Whether grants need a confirmation.
    pub(super) fn confirms(&self) -> bool {
        self.confirmations.is_some()
    }

    pub(crate) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// The number of the connection for commands, once there is one.
    pub(super) async fn connected_epoch(&self) -> Result<u64, Fault> {
        let connected = self.link.connected(self.response_timeout).await?;
        Ok(connected.epoch)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.links().for_each(|link| link.end());
    }
}
