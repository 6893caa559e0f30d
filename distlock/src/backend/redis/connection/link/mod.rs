//! One connection that is replaced when it fails.
//!
//! The driver reports a command that timed out but keeps the connection forever, even if packets are silently lost on
//! it. Here two unanswered commands in a row replace the connection. Each connection has a number, its epoch: commands
//! with the same epoch are executed in the order in which they were sent.
//!
//! A separate task connects, so that a caller's short deadline does not interrupt it. At most one such task runs, and none
//! beside a connection; see [`Phase`]. If it ended with its runtime, the next caller starts it again in the caller's runtime.

mod config;
mod epochs;
mod known_run;
mod name_watch;
mod opening;
mod outage;
mod phase;
mod pings;
mod relogin;
mod run;
mod stake;
mod together;
mod unanswered;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::PushKind;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(crate) use self::config::{LinkConfig, OnPush};
pub(crate) use self::epochs::Epochs;
use self::known_run::KnownRun;
pub(crate) use self::name_watch::{Look, NameWatch, Named};
pub(crate) use self::opening::Connected;
use self::opening::{For, Opening};
pub(crate) use self::outage::{ConnectedGauge, OutageLog, REPEATED_AFTER};
use self::phase::Phase;
pub(crate) use self::pings::Pings;
use self::relogin::keep_logged_in;
pub(crate) use self::stake::Stake;
use self::together::Member;
pub(crate) use self::together::Together;
use self::unanswered::Unanswered;
#[cfg(feature = "test-util")]
use crate::backend::ConnectionSeen;
use crate::backend::redis::connection::addresses::Endpoint;
use crate::backend::redis::connection::connect::{Driven, Expected, ReconnectPause};
use crate::backend::{Fault, cause};
use crate::config::TIMEOUTS_TO_REPLACE;
use crate::foreign;
use crate::mutex::Mutex;
use crate::telemetry;

/// A connection that is replaced when it fails.
pub(crate) struct Link {
    config: LinkConfig,
    phase: watch::Sender<Phase<Connected>>,
    /// Somebody waits for a connection. Ends the pause after a try that the server refused.
    wanted: Arc<Notify>,
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
    /// When the last connection was lost, or when the link was first asked for one.
    down_since: Mutex<Instant>,
    /// Where the current connection leads, or the last one.
    endpoint: Mutex<Option<Endpoint>>,
    opening: Opening,
    pub(crate) known_run: KnownRun,
}

impl Link {
    /// A link that connects when a connection is first asked for.
    pub(crate) fn new(config: LinkConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            wanted: Arc::default(),
            phase: watch::Sender::new(Phase::new()),
            epoch: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            left: AtomicU64::new(0),
            unanswered: Unanswered::default(),
            grants_from: Mutex::default(),
            down_since: Mutex::new(Instant::now()),
            endpoint: Mutex::default(),
            opening: Opening::default(),
            known_run: KnownRun::default(),
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
        self.config.outages.failed(self.config.what, &fault.why());
    }

    /// Why the link is disconnected; `None` if it is connected.
    pub(crate) fn disconnected(&self) -> Option<Fault> {
        self.disconnection().map(|(_, fault)| fault)
    }

    /// How long the link has been disconnected, and why; `None` if it is connected.
    pub(crate) fn disconnection(&self) -> Option<(Duration, Fault)> {
        let phase = self.phase.borrow();
        if phase.is_up() {
            return None;
        }
        let none = || Fault::NotNow(cause("no connection to the server"));
        let fault = phase.failure().cloned().unwrap_or_else(none);
        let since = *self.down_since.lock();
        Some((Instant::now().duration_since(since), fault))
    }

    /// How long the server has to wait before it may grant, since it was started only recently.
    pub(crate) fn grace_left(&self) -> Option<Duration> {
        if self.config.restart_grace.is_zero() {
            return None;
        }
        let from = (*self.grants_from.lock())?;
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
        let mut phase = self.phase.subscribe();
        self.connect();
        foreign::notify_own_task(&self.wanted);
        // What an earlier try met may be over by now. A refusal counts only if it comes from now on.
        let mut is_new = false;
        let settled = phase.wait_for(|phase| {
            let is_refused = phase.failure().is_some_and(Fault::is_refusal);
            phase.is_up() || std::mem::replace(&mut is_new, true) && is_refused
        });
        let settled = match tokio::time::timeout(patience, settled).await {
            Ok(Ok(phase)) => phase.clone(),
            _ => self.phase.borrow().clone(),
        };
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
    }

    /// A command over connection `epoch` was not answered in time.
    pub(crate) fn timed_out(self: &Arc<Self>, epoch: u64) {
        if self.unanswered.timed_out(epoch) >= TIMEOUTS_TO_REPLACE {
            self.broken(epoch, "commands went unanswered");
        }
    }

    /// Connection `epoch` cannot be used any more, and is replaced. Does nothing if it was replaced already.
    pub(crate) fn broken(self: &Arc<Self>, epoch: u64, reason: &str) {
        if self.replace(epoch) {
            self.config.outages.ended(self.config.what, reason);
        }
    }

    /// Replaces connection `epoch`, without a word in the log: the server did not end it. Returns whether it was the
    /// current one.
    pub(crate) fn replace(self: &Arc<Self>, epoch: u64) -> bool {
        let was_up = foreign::send_if_modified(&self.phase, |phase| {
            let was_up = phase.lose(|connected| connected.epoch == epoch);
            if was_up {
                *self.down_since.lock() = Instant::now();
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
    /// not be believed; see [`has_left`](Link::has_left).
    pub(crate) fn leave(self: &Arc<Self>) {
        let epoch = self.epoch();
        // Release, before the replacement: who reads an answer after it finds the number.
        self.left.fetch_max(epoch, Ordering::AcqRel);
        let _was_current = self.replace(epoch);
    }

    /// Whether connection `epoch` was left.
    pub(crate) fn has_left(&self, epoch: u64) -> bool {
        // Acquire: pairs with the Release in `leave`.
        epoch <= self.left.load(Ordering::Acquire)
    }

    /// Completes when connection `epoch` is not the current one any more.
    pub(crate) async fn down(&self, epoch: u64) {
        let mut phase = self.phase.subscribe();
        let _closed = phase.wait_for(|phase| !is_current(phase, epoch)).await;
    }

    /// Starts the task that connects, unless it runs, there is a connection by now, or there is no runtime to run it in.
    pub(crate) fn connect(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut is_needed = false;
        foreign::send_if_modified(&self.phase, |phase| {
            let had_failed = phase.failure().is_some();
            is_needed = phase.begin_to_connect();
            if is_needed && self.epoch() == 0 && !had_failed {
                *self.down_since.lock() = Instant::now();
            }
            // Nobody waits for the beginning.
            false
        });
        if is_needed {
            let connecting = Connecting(Arc::downgrade(self));
            drop(runtime.spawn(connect_until_established(Arc::downgrade(self), connecting)));
        }
    }

    /// Tries to connect once.
    async fn connect_once(self: &Arc<Self>) -> Result<(Connected, Endpoint), Fault> {
        let link = Arc::downgrade(self);
        let on_push = Arc::clone(&self.config.on_push);
        let on_push: OnPush = Arc::new(move |epoch, push| match (&push.kind, link.upgrade()) {
            (PushKind::Disconnection, Some(link)) => {
                link.broken(epoch, "the server closed the connection");
            }
            _ => on_push(epoch, push),
        });
        let link = For {
            config: &self.config,
            member: &**self,
            on_push: &on_push,
        };
        self.opening.connect(link).await
    }

    /// A new connection is established by the task that connects, which ends.
    fn established(
        self: &Arc<Self>,
        connected: Connected,
        endpoint: &Endpoint,
        connecting: Connecting,
    ) {
        let epoch = connected.epoch;
        self.opening.succeeded();
        let was_taken = foreign::send_if_modified(&self.phase, |phase| {
            let grants_from = connected.grants_from;
            let was_taken = phase.establish(connected);
            if was_taken {
                *self.grants_from.lock() = grants_from;
                *self.endpoint.lock() = Some(endpoint.clone());
                // Before anybody gets the connection, see `epoch`, and only with it: a number that belongs to no connection
                // would never be that of an answer.
                if self.epoch.swap(epoch, Ordering::AcqRel) != 0 {
                    self.replaced.store(epoch, Ordering::Release);
                }
            }
            was_taken
        });
        // At once: if the connection breaks as soon as it is handed out, another task connects, and this one is not to end for
        // it.
        connecting.end();
        if was_taken {
            let runtime_ends = RuntimeEnds(Arc::downgrade(self), epoch);
            let mut phase = self.phase.subscribe();
            let connector = Arc::clone(&self.config.connector);
            let what = self.config.what;
            let server = self.config.outages.server().to_owned();
            let link = Arc::downgrade(self);
            let pings = self.config.pings;
            drop(tokio::spawn(async move {
                let _runtime_ends = runtime_ends;
                let connection = || link.upgrade()?.connection_of(epoch);
                let heard = |is_in_time| match link.upgrade() {
                    Some(link) if is_in_time => link.answered(epoch),
                    Some(link) => link.timed_out(epoch),
                    None => {}
                };
                tokio::select! {
                    _closed = phase.wait_for(|phase| !is_current(phase, epoch)) => {}
                    () = keep_logged_in(what, &server, &connector, connection) => {}
                    () = pings.ask(connection, heard) => {}
                }
            }));
            self.config.epochs.changed();
            telemetry::connected(self.config.what, epoch);
            self.config.outages.established(self.config.what);
        }
    }
}

impl Member for Link {
    fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.lock().clone()
    }

    fn is_up(&self) -> bool {
        Self::is_up(self)
    }

    fn expected(&self) -> Expected {
        self.config.expected
    }

    fn leave(self: Arc<Self>) {
        Self::leave(&self);
    }
}

/// These connections lead to one server. The first one is that for commands, which the others follow.
pub(crate) fn join<'a>(together: &Together, links: impl IntoIterator<Item = &'a Arc<Link>>) {
    let links = links
        .into_iter()
        .map(|link| Arc::downgrade(link) as Weak<dyn Member>);
    together.join(links);
}

/// Tries to connect, with growing pauses, until a connection is established or the link is dropped.
async fn connect_until_established(link: Weak<Link>, connecting: Connecting) {
    let longest = |link: Arc<Link>| link.config.longest_pause;
    let Some(longest) = link.upgrade().map(longest) else {
        return;
    };
    let mut pause = ReconnectPause::new(longest);
    loop {
        let Some(link) = link.upgrade() else { return };
        let was_refused = match link.connect_once().await {
            Ok((connected, endpoint)) => {
                link.established(connected, &endpoint, connecting);
                // Checked when the connection is handed out: of a change after this, `leave` tells the link.
                let config = &link.config;
                let is_with_others = config.together.connected(&*link, &endpoint);
                config.watch_name(&endpoint);
                if !is_with_others || !config.server.is_current(&endpoint.address) {
                    link.leave();
                }
                return;
            }
            Err(fault) => {
                telemetry::connect_failed(link.config.what, &fault.why(), pause.next());
                link.note_failed(&fault);
                fault.is_refusal()
            }
        };
        let wanted = Arc::clone(&link.wanted);
        // Not held during the pause, so that the link can be dropped.
        drop(link);
        pause.sleep(was_refused, &wanted).await;
    }
}

/// Whether connection `epoch` is the current one.
fn is_current(phase: &Phase<Connected>, epoch: u64) -> bool {
    matches!(phase, Phase::Up(connected) if connected.epoch == epoch)
}

/// Reports the loss of a connection when its runtime ends. The driver does not, so a task in the same runtime holds
/// this.
struct RuntimeEnds(Weak<Link>, u64);

impl Drop for RuntimeEnds {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            let _was_current = link.replace(self.1);
        }
    }
}

/// Held by the task that connects. Tells the link when the task ends without a connection, also with its runtime.
struct Connecting(Weak<Link>);

impl Connecting {
    /// The link has a connection. What it is told later is of another task.
    fn end(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            foreign::send_if_modified(&link.phase, |phase| {
                phase.gave_up();
                false
            });
        }
    }
}
