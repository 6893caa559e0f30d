//! One connection that is replaced when it fails.
//!
//! The driver reports a command that timed out but keeps the connection forever, even if packets are silently lost on
//! it. Here two unanswered commands in a row replace the connection. Each connection has a number, its epoch: commands
//! with the same epoch are executed in the order in which they were sent.
//!
//! A separate task connects, so that a caller's short deadline does not interrupt it. At most one such task runs, and none
//! beside a connection; see [`Phase`]. If it ended with its runtime, the next caller starts it again in the caller's runtime.

mod config;
mod connecting;
mod epochs;
mod name_watch;
mod opening;
mod other_masters;
mod outage;
mod phase;
mod pings;
mod relogin;
mod run;
mod stake;
mod together;
mod unanswered;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use scopeguard::defer;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(crate) use self::config::{LinkConfig, OnPush};
pub(crate) use self::epochs::Epochs;
pub(crate) use self::name_watch::{Look, NameWatch, Named};
pub(crate) use self::opening::Connected;
use self::opening::Opening;
pub(crate) use self::outage::{OutageLog, REPEATED_AFTER};
use self::phase::Phase;
pub(crate) use self::pings::Pings;
pub(crate) use self::stake::Stake;
use self::together::Member;
pub(crate) use self::together::Together;
use self::unanswered::Unanswered;
#[cfg(feature = "test-util")]
use crate::backend::ConnectionSeen;
use crate::backend::redis::connection::addresses::Endpoint;
use crate::backend::redis::connection::connect::{Driven, Expected};
use crate::backend::{Disconnection, Fault, cause};
use crate::config::{SHORT_LIFE, TIMEOUTS_TO_REPLACE};
use crate::sync::{Changes, Mutex, foreign};

/// A connection that is replaced when it fails.
pub(crate) struct Link {
    config: LinkConfig,
    /// Only tasks of this crate watch it.
    phase: watch::Sender<Phase<Connected>>,
    /// Announced when there is a connection, and when a try has failed. The tasks of users wait for it, and their wakers may panic.
    settled: Changes,
    /// Somebody waits for a connection. Ends the pause after a try that the server refused.
    wanted: Arc<Notify>,
    /// The server is elsewhere now, or is back. A try to connect begins again.
    elsewhere: Changes,
    /// The same. The pause after a failed try ends.
    no_pause: Arc<Changes>,
    /// The number of the current connection, or of the last one. It changes while `phase` is changed, as the two below do.
    epoch: AtomicU64,
    /// The number of the last connection that replaced another one; 0 if there was none.
    replaced: AtomicU64,
    /// How many connections were lost.
    lost: AtomicU64,
    /// The number of the last connection that was left; see [`leave`](Link::leave).
    left: AtomicU64,
    /// The commands in a row that went unanswered.
    unanswered: Unanswered,
    /// When the server of the current connection may grant, or that of the last one, if it was started only recently.
    grants_from: Mutex<Option<Instant>>,
    /// The number of the last connection that was of use; see [`serves`](Link::serves).
    serves: AtomicU64,
    /// How many connections in a row have ended soon after they were made, and were of no use.
    useless: AtomicU32,
    /// Whether what the connection belongs to is gone.
    is_unneeded: watch::Sender<bool>,
    /// When the last connection was lost, or when the link was first asked for one.
    down_since: Mutex<Instant>,
    /// Where the current connection leads, or the last one.
    endpoint: Mutex<Option<Endpoint>>,
    opening: Opening,
    /// The number of the connection over which the run of the server was asked for last, and the answer. The mutex is tokio's: it is
    /// held while the server is asked.
    known_run: tokio::sync::Mutex<Option<(u64, RunId)>>,
}

/// The id of a run of a server; `None` if the user may not ask for it, or if the server has none.
type RunId = Option<Arc<str>>;

impl Link {
    /// A link that connects when a connection is first asked for.
    pub(crate) fn new(config: LinkConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            wanted: Arc::default(),
            elsewhere: Changes::default(),
            no_pause: Arc::default(),
            phase: watch::Sender::new(Phase::new()),
            settled: Changes::default(),
            epoch: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            left: AtomicU64::new(0),
            unanswered: Unanswered::default(),
            grants_from: Mutex::default(),
            serves: AtomicU64::new(0),
            useless: AtomicU32::new(0),
            is_unneeded: watch::Sender::new(false),
            down_since: Mutex::new(Instant::now()),
            endpoint: Mutex::default(),
            opening: Opening::default(),
            known_run: tokio::sync::Mutex::default(),
        })
    }

    /// The number of the current connection, or of the last one.
    pub(crate) fn epoch(&self) -> u64 {
        // The number changes before a new connection is handed out, so the commands that are sent while it stays the same
        // go over one connection. Acquire: pairs with the Release in `established`.
        self.epoch.load(Ordering::Acquire)
    }

    /// The number of the last connection that replaced another one; 0 if there was none.
    pub(crate) fn replaced(&self) -> u64 {
        // Acquire: pairs with the Release in `established`.
        self.replaced.load(Ordering::Acquire)
    }

    /// The connection in use, beside the number that the link believes in.
    #[cfg(feature = "test-util")]
    pub(crate) fn seen(&self) -> ConnectionSeen {
        let phase = self.phase.borrow();
        ConnectionSeen {
            name: format!("{} of {}", self.config.what, self.config.outages.server()),
            epoch: self.epoch(),
            in_use: match &*phase {
                Phase::Up(connected) => Some(connected.epoch),
                Phase::Down { .. } => None,
            },
        }
    }

    /// What errors and logs call the server.
    pub(crate) fn server(&self) -> &str {
        self.config.outages.server()
    }

    /// The address that the current connection, or the last one, has led to. A socket has none.
    pub(crate) fn reached_at(&self) -> Option<SocketAddr> {
        self.endpoint
            .lock()
            .as_ref()
            .and_then(|endpoint| endpoint.at)
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.phase.borrow().is_up()
    }

    /// How many connections were lost before the present gap; `None` while there is a connection.
    pub(crate) fn gap(&self) -> Option<u64> {
        let phase = self.phase.borrow();
        // Relaxed: it changes while `phase` is changed.
        (!phase.is_up()).then(|| self.lost.load(Ordering::Relaxed))
    }

    /// Whether the last try to connect has failed, and the next one follows.
    pub(crate) fn fails_to_connect(&self) -> bool {
        let phase = self.phase.borrow();
        // The task may have ended with its runtime.
        phase.failure().is_some() && phase.connects()
    }

    /// A try to connect has failed.
    fn note_failed(&self, fault: &Fault) {
        foreign::send_modify(&self.phase, |phase| phase.failed(fault.clone()));
        // Also if the log panics.
        defer! { self.settled.announce(); }
        self.config.outages.failed(self.config.what, &fault.why());
    }

    /// Why the link is disconnected; `None` if it is connected.
    pub(crate) fn disconnected(&self) -> Option<Fault> {
        why_down(&self.phase.borrow())
    }

    /// How long the link has been disconnected, and why; `None` if it is connected.
    pub(crate) fn disconnection(&self) -> Option<Disconnection> {
        let phase = self.phase.borrow();
        let fault = why_down(&phase)?;
        // Under the lock of `phase`, which changes with it.
        let since = *self.down_since.lock();
        Some(Disconnection {
            server: self.server().to_owned(),
            lasted: Instant::now().duration_since(since),
            fault,
        })
    }

    /// How long the server has to wait before it may grant, since it was started only recently.
    pub(crate) fn grace_left(&self) -> Option<Duration> {
        if self.config.restart_grace.is_zero() {
            return None;
        }
        let from = (*self.grants_from.lock())?;
        // Saturating: the time may be over.
        let left = from.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// The connection. Waits for it for at most `patience`. If this fails, nothing was sent.
    pub(crate) async fn connected(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Connected, Fault> {
        // Whatever is sent asks for the connection first.
        self.config.connector.check_identity()?;
        if let Phase::Up(connected) = &*self.phase.borrow() {
            return Ok(connected.clone());
        }
        // Boxed: there nearly always is a connection, and each command would have room for the wait.
        Box::pin(self.await_connection(patience)).await
    }

    /// Waits for the next connection, for at most `patience`.
    async fn await_connection(self: &Arc<Self>, patience: Duration) -> Result<Connected, Fault> {
        let mut changed = self.settled.next();
        self.connect();
        foreign::notify_own_task(&self.wanted);
        let settled = async {
            // What an earlier try met may be over by now. A refusal counts only if it comes from now on.
            let mut is_new = false;
            loop {
                {
                    let phase = self.phase.borrow();
                    let is_refused = phase.failure().is_some_and(Fault::is_refusal);
                    if phase.is_up() || is_new && is_refused {
                        return phase.clone();
                    }
                }
                (&mut changed).await;
                // Before the look: a change after that ends the wait.
                changed = self.settled.next();
                is_new = true;
            }
        };
        let settled = tokio::time::timeout(patience, settled).await;
        let settled = settled.unwrap_or_else(|_| self.phase.borrow().clone());
        match settled {
            Phase::Up(connected) => Ok(connected),
            Phase::Down { failure, .. } => {
                let none = || self.opening.unfinished(patience);
                Err(failure.unwrap_or_else(none))
            }
        }
    }

    /// Connection `epoch`, as long as it is the current one.
    fn connection_of(&self, epoch: u64) -> Option<Driven> {
        match &*self.phase.borrow() {
            Phase::Up(connected) if connected.epoch == epoch => Some(connected.connection.clone()),
            _ => None,
        }
    }

    /// A command over connection `epoch` was answered.
    pub(crate) fn answered(&self, epoch: u64) {
        self.unanswered.answered(epoch);
        self.serves(epoch);
    }

    /// Connection `epoch` is of use: the server answers over it, or nothing is to be asked. If it ends, the next one is made at once.
    pub(crate) fn serves(&self, epoch: u64) {
        // Relaxed: nothing else is read by it. Read first, since nearly every answer comes over the same connection as the last one.
        if self.serves.load(Ordering::Relaxed) < epoch {
            self.serves.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    /// A command over connection `epoch` was not answered in time.
    pub(crate) fn timed_out(self: &Arc<Self>, epoch: u64) {
        if self.unanswered.timed_out(epoch) >= TIMEOUTS_TO_REPLACE && self.replace(epoch) {
            let reason = "commands went unanswered";
            self.config.outages.ended(self.config.what, reason);
        }
    }

    /// Connection `epoch` has ended, or a command over it has failed, and it is replaced. Does nothing if it was replaced already.
    pub(crate) fn broken(self: &Arc<Self>, epoch: u64, reason: &str) {
        if self.lose(epoch, true) {
            self.config.outages.ended(self.config.what, reason);
        }
    }

    /// Replaces connection `epoch`, without a word in the log: the server did not end it. Returns whether it was the
    /// current one.
    pub(crate) fn replace(self: &Arc<Self>, epoch: u64) -> bool {
        self.lose(epoch, false)
    }

    /// Replaces connection `epoch` if it has lasted for this time.
    pub(crate) fn replace_if_older(self: &Arc<Self>, epoch: u64, age: Duration) {
        if Member::since(&**self).is_some_and(|since| since.elapsed() >= age) {
            let _was_current = self.replace(epoch);
        }
    }

    /// Replaces connection `epoch`. `has_ended`: whether the server did not keep it.
    fn lose(self: &Arc<Self>, epoch: u64, has_ended: bool) -> bool {
        let was_up = foreign::send_if_modified(&self.phase, |phase| {
            let now = Instant::now();
            let mut is_short = false;
            let was_up = phase.lose(|connected| {
                is_short = now.duration_since(connected.since) < SHORT_LIFE;
                connected.epoch == epoch
            });
            if was_up {
                *self.down_since.lock() = now;
                // Relaxed, as below.
                if !is_short || self.serves.load(Ordering::Relaxed) == epoch {
                    self.useless.store(0, Ordering::Relaxed);
                } else if has_ended {
                    self.useless.fetch_add(1, Ordering::Relaxed);
                }
                // Relaxed: it is written and read inside of the phase's own lock.
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            was_up
        });
        if was_up {
            self.connect();
        }
        was_up
    }

    /// Replaces the current connection, because it leads to the wrong server. What that server answers from now on must
    /// not be believed; see [`has_left`](Link::has_left). A try to connect that is under way begins again.
    pub(crate) fn leave(self: &Arc<Self>) {
        self.leave_to(None);
    }

    fn leave_to(self: &Arc<Self>, endpoint: Option<&Endpoint>) {
        let epoch = self.epoch();
        // Release, before the replacement: who reads an answer after it finds the number.
        self.left.fetch_max(epoch, Ordering::AcqRel);
        if !self.replace(epoch) {
            self.try_again(endpoint);
        }
    }

    /// A try to connect that is under way begins again, unless it has just begun to connect to this endpoint: it may wait for the
    /// wrong server, which may hang, or pause before it looks where the server is.
    fn try_again(&self, endpoint: Option<&Endpoint>) {
        let is_there = endpoint.is_some_and(|endpoint| self.opening.has_just_begun_at(endpoint));
        if !self.phase.borrow().connects() {
            return;
        }
        // That one may fail all the same.
        self.no_pause.announce();
        if !is_there {
            self.elsewhere.announce();
        }
    }

    pub(crate) fn has_left(&self, epoch: u64) -> bool {
        // Acquire: pairs with the Release in `leave`.
        epoch <= self.left.load(Ordering::Acquire)
    }

    /// What the connection belongs to is gone: a try to connect ends, which may hang.
    pub(crate) fn end(&self) {
        foreign::send_modify(&self.is_unneeded, |value| *value = true);
    }

    /// Pauses for this time after there was no connection to be had. One that is made meanwhile ends the pause.
    pub(crate) async fn pause_until_up(&self, pause: Duration) {
        let mut phase = self.phase.subscribe();
        if phase.borrow().is_up() {
            // What has kept it from its caller would do so again.
            return tokio::time::sleep(pause).await;
        }
        let _in_time = tokio::time::timeout(pause, phase.wait_for(Phase::is_up)).await;
    }

    /// Completes when connection `epoch` is not the current one any more.
    pub(crate) async fn down(&self, epoch: u64) {
        let mut phase = self.phase.subscribe();
        let _closed = phase.wait_for(|phase| !is_current(phase, epoch)).await;
    }
}

impl Member for Link {
    fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.lock().clone()
    }

    fn is_up(&self) -> bool {
        Self::is_up(self)
    }

    fn since(&self) -> Option<Instant> {
        match &*self.phase.borrow() {
            Phase::Up(connected) => Some(connected.since),
            Phase::Down { .. } => None,
        }
    }

    fn replaced_at(&self) -> Option<Instant> {
        (self.replaced() > 0).then(|| *self.down_since.lock())
    }

    fn expected(&self) -> Expected {
        self.config.expected
    }

    fn leave_for(self: Arc<Self>, endpoint: &Endpoint) {
        self.leave_to(Some(endpoint));
    }

    fn server_is_at(&self, endpoint: &Endpoint) {
        self.try_again(Some(endpoint));
    }
}

/// These connections lead to one server. The first one is that for commands, which the others follow.
pub(crate) fn join<'a>(together: &Together, links: impl IntoIterator<Item = &'a Arc<Link>>) {
    let links = links
        .into_iter()
        .map(|link| Arc::downgrade(link) as Weak<dyn Member>);
    together.join(links);
}

/// Why there is no connection; `None` if there is one.
fn why_down(phase: &Phase<Connected>) -> Option<Fault> {
    let none = || Fault::NotNow(cause("no connection to the server"));
    (!phase.is_up()).then(|| phase.failure().cloned().unwrap_or_else(none))
}

fn is_current(phase: &Phase<Connected>, epoch: u64) -> bool {
    matches!(phase, Phase::Up(connected) if connected.epoch == epoch)
}
