//! What the proxy knows of one connection: its role, its orders, and which reply answers what.
//!
//! Bookkeeping without I/O; the sockets are in [`super::lane`].
//!
//! # Invariants
//! 1. The n-th reply answers the n-th request that has a reply. Pushes and subscriptions have no
//!    number, nor has what is not RESP.
//! 2. A request is numbered before it is sent, so that its reply always finds its number.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::Info;
use super::frame::{Frame, Side};
use super::rules::Hits;
use super::select::{Role, Way, is_subscription};

/// What the proxy knows of a connection, and what it has ordered it to do.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    role: Mutex<Role>,
    orders: watch::Sender<Orders>,
    replies: Mutex<Replies>,
}

/// Orders are never taken back.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    cut_client: bool,
    cut_server: bool,
    fin_up: bool,
    fin_down: bool,
}

#[derive(Debug, Default)]
struct Replies {
    asked: u64,
    answered: u64,
    // The server has closed its side, before or after somebody waited for it.
    ended: bool,
    // By number: replies to drop, and replies that somebody waits for.
    eaten: BTreeMap<u64, Hits>,
    told: BTreeMap<u64, oneshot::Sender<Bytes>>,
}

/// A request that was kept back, with all that follows it on its connection.
///
/// Dropped, the request is lost: the connection is cut on both sides.
#[derive(Debug)]
#[must_use = "dropped, the request is lost and its connection is cut"]
pub struct Caught {
    connection: Arc<Connection>,
    go: oneshot::Sender<oneshot::Sender<Bytes>>,
}

impl Caught {
    /// Resets the client's side. The server's side stays open, and the request can be delivered.
    pub fn cut_client(&self) {
        self.connection.cut_side(Side::Client);
    }

    /// Lets the request and all that waits behind it go on to the server.
    ///
    /// Gives the server's reply (whether or not the client is there to get it), or `None` if the
    /// server's side ended without one or the request was a subscription.
    pub async fn deliver(self) -> Option<Bytes> {
        let (tell, reply) = oneshot::channel();
        self.go.send(tell).ok()?;
        reply.await.ok()
    }

    /// The connection it came on.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.connection.id
    }
}

impl Connection {
    pub(super) fn new(id: u64) -> Self {
        let (role, replies) = (Mutex::new(Role::Undecided), Mutex::default());
        Self {
            id,
            role,
            orders: watch::Sender::default(),
            replies,
        }
    }

    pub(super) fn info(&self) -> Info {
        let replies = self.replies.lock();
        let (requests, replies) = (replies.asked, replies.answered);
        Info {
            id: self.id,
            role: self.role(),
            requests,
            replies,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn role(&self) -> Role {
        *self.role.lock()
    }

    pub(super) fn cut(&self) {
        self.cut_side(Side::Client);
        self.cut_side(Side::Server);
    }

    pub(super) fn cut_side(&self, side: Side) {
        self.order(|orders| match side {
            Side::Client => orders.cut_client = true,
            Side::Server => orders.cut_server = true,
        });
    }

    pub(super) fn fin(&self, way: Way) {
        self.order(|orders| {
            orders.fin_up |= way.covers(Side::Client);
            orders.fin_down |= way.covers(Side::Server);
        });
    }

    fn order(&self, give: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(give);
    }

    /// Ends when the socket to that side is to be reset.
    pub(super) async fn cut_ordered(&self, side: Side) {
        self.ordered(|orders| match side {
            Side::Client => orders.cut_client,
            Side::Server => orders.cut_server,
        })
        .await;
    }

    /// Ends when that side is to see an end of what the other one sends.
    pub(super) async fn fin_ordered(&self, from: Side) {
        self.ordered(|orders| match from {
            Side::Client => orders.fin_up,
            Side::Server => orders.fin_down,
        })
        .await;
    }

    async fn ordered(&self, wanted: impl FnMut(&Orders) -> bool) {
        // No error: the sender lives in `self`.
        let _ = self.orders.subscribe().wait_for(wanted).await;
    }

    /// Learns the role from a request that has come.
    pub(super) fn learn(&self, request: &Frame) {
        if request.is_resp {
            let mut role = self.role.lock();
            *role = role.after(request);
        }
    }

    /// A request is to be kept back: what the test gets, and where it says when to go on.
    pub(super) fn catch(self: &Arc<Self>) -> (Caught, oneshot::Receiver<oneshot::Sender<Bytes>>) {
        let (go, gone) = oneshot::channel();
        (
            Caught {
                connection: Arc::clone(self),
                go,
            },
            gone,
        )
    }

    /// The reply with this number is to be dropped.
    pub(super) fn eat(&self, number: u64, hits: Hits) {
        self.replies.lock().eaten.insert(number, hits);
    }

    /// Whether this reply is to be dropped; counted if so.
    pub(super) fn eats(&self, number: u64) -> bool {
        let eaten = self.replies.lock().eaten.remove(&number);
        eaten.inspect(Hits::count).is_some()
    }

    /// Somebody waits for the reply with this number. Dropped at once if none can come.
    pub(super) fn tell(&self, number: u64, tell: oneshot::Sender<Bytes>) {
        let mut replies = self.replies.lock();
        if !replies.ended {
            replies.told.insert(number, tell);
        }
    }

    /// The server's side has ended: waiters for a reply get none.
    pub(super) fn no_more_replies(&self) {
        let mut replies = self.replies.lock();
        replies.ended = true;
        replies.told.clear();
    }

    /// Numbers a request, if it will have a reply.
    pub(super) fn ask(&self, request: &Frame) -> Option<u64> {
        let has_reply = request.is_resp && !is_subscription(&request.word());
        let mut replies = self.replies.lock();
        replies.asked += u64::from(has_reply);
        has_reply.then_some(replies.asked)
    }

    /// Numbers a message of the server, if it is a reply; tells the waiter for it.
    pub(super) fn answer(&self, message: &Frame) -> Option<u64> {
        if self.is_push(message) {
            return None;
        }
        let mut replies = self.replies.lock();
        // More answers than questions: the refusal of a subscription is not a push.
        let number = (replies.answered < replies.asked).then_some(replies.answered + 1)?;
        replies.answered = number;
        if let Some(tell) = replies.told.remove(&number) {
            let _ = tell.send(message.bytes.clone());
        }
        Some(number)
    }

    /// In RESP2 a subscriber gets its messages as arrays that look like replies.
    fn is_push(&self, message: &Frame) -> bool {
        let is_resp2_push = || {
            self.role() == Role::Subscriber
                && message.is(b'*')
                && (message.word().ends_with("MESSAGE") || is_subscription(&message.word()))
        };
        !message.is_resp || message.is(b'>') || is_resp2_push()
    }
}
