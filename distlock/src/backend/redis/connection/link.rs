//! One connection that is replaced when it fails.
//!
//! The driver reports a command that timed out but keeps the connection forever, even if packets are silently lost on
//! it. Here two unanswered commands in a row replace the connection. Each connection has a number, its epoch: commands
//! with the same epoch are executed in the order in which they were sent.
//!
//! A separate task connects, so that a caller's short deadline does not interrupt it. At most one such task runs. If it
//! ended with its runtime, the next caller starts it again in the caller's runtime.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::address::{Address, Locate};
use super::connector::Connector;
use super::epochs::Epochs;
use super::greeting::{self, Expected};
use super::outage::OutageLog;
use super::tls;
use crate::backend::{Fault, cause};
use crate::config::{
    FAREWELL_AGAIN_AFTER, HANDSHAKE_SILENCE, PIPELINE_BUFFER, RECONNECT_BACKOFF, REFUSED_PAUSE,
    TIMEOUTS_TO_REPLACE,
};
use crate::foreign;
use crate::mutex::Mutex;
use crate::telemetry;

/// Called with the number of a connection, and with what the server sends over it unrequested.
pub(in crate::backend::redis) type OnPush = Arc<dyn Fn(u64, PushInfo) + Send + Sync>;

/// What a link needs to connect.
pub(in crate::backend::redis) struct Wiring {
    /// What the connection is for, as the log says it.
    pub(in crate::backend::redis) what: &'static str,
    /// Says which server to connect to.
    pub(in crate::backend::redis) server: Arc<dyn Locate>,
    pub(in crate::backend::redis) connector: Arc<Connector>,
    pub(in crate::backend::redis) expected: Expected,
    /// Whether small commands are sent at once.
    pub(in crate::backend::redis) nodelay: bool,
    /// The longest pause between two tries to connect.
    pub(in crate::backend::redis) longest_pause: Duration,
    pub(in crate::backend::redis) outages: Arc<OutageLog>,
    pub(in crate::backend::redis) epochs: Arc<Epochs>,
    /// How long the server has to be up before it may grant. Its time is asked for only if this is not zero.
    pub(in crate::backend::redis) restart_grace: Duration,
    /// Whether the first connection of the client finds out if the server has all that locks need.
    pub(in crate::backend::redis) first: Option<Arc<FirstCheck>>,
    pub(in crate::backend::redis) on_push: OnPush,
}

/// What the first connection of a client finds out.
#[derive(Debug)]
pub(in crate::backend::redis) struct FirstCheck {
    is_done: AtomicBool,
    /// How long the server may take for each answer.
    patience: Duration,
}

impl FirstCheck {
    pub(in crate::backend::redis) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            is_done: AtomicBool::new(false),
            patience,
        })
    }

    /// Finds out whether the server has all that locks need, unless that was done. A server that does not answer in time may
    /// still have it.
    async fn check(
        &self,
        server: &str,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), Fault> {
        // Relaxed: two connections that are made at the same time may both ask.
        if self.is_done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let known = greeting::check_commands(server, connection);
        let was_told = match tokio::time::timeout(self.patience, known).await {
            Ok(answered) => answered?,
            Err(_) => false,
        };
        let warned = greeting::warn_of_eviction(server, connection);
        // Without an answer there is no warning. It is not needed for locks.
        let _in_time = tokio::time::timeout(self.patience, warned).await;
        self.is_done.store(was_told, Ordering::Relaxed);
        Ok(())
    }
}

/// An established connection.
#[derive(Clone)]
pub(in crate::backend::redis) struct Connected {
    pub(in crate::backend::redis) connection: MultiplexedConnection,
    pub(in crate::backend::redis) epoch: u64,
    /// When the server may grant, if it was started only recently.
    grants_from: Option<Instant>,
}

#[derive(Clone)]
enum Phase {
    Up(Connected),
    /// No connection, and the last failure to connect.
    Down(Option<Fault>),
}

/// A connection that is replaced when it fails.
pub(in crate::backend::redis) struct Link {
    wiring: Wiring,
    phase: watch::Sender<Phase>,
    /// Somebody waits for a connection. Ends the pause after a try that the server refused.
    wanted: Arc<Notify>,
    /// The number of the current connection, or of the last one.
    epoch: AtomicU64,
    /// The number of the last connection that was left; see [`leave`](Link::leave).
    left: AtomicU64,
    /// The number of the last connection that replaced another one; 0 if there was none.
    replaced: AtomicU64,
    /// How many connections were lost. It changes while `phase` is changed.
    lost: AtomicU64,
    /// Whether the task that connects runs.
    connecting: Arc<AtomicBool>,
    /// The commands in a row that went unanswered. Relaxed: a count that is off by one only moves the replacement of
    /// the connection by one command.
    timeouts: AtomicU32,
    /// When the server of the current connection may grant, or that of the last one, if it was started only recently.
    grants_from: Mutex<Option<Instant>>,
    /// When the last connection was lost, or when the link was first asked for one.
    down_since: Mutex<Instant>,
    /// When the server was last asked why it had ended a connection, and what it said.
    farewell: Mutex<Option<(Instant, Option<Fault>)>>,
}

impl Link {
    /// A link that connects when a connection is first asked for.
    pub(in crate::backend::redis) fn new(wiring: Wiring) -> Arc<Self> {
        Arc::new(Self {
            wiring,
            wanted: Arc::default(),
            phase: watch::Sender::new(Phase::Down(None)),
            epoch: AtomicU64::new(0),
            left: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            connecting: Arc::default(),
            timeouts: AtomicU32::new(0),
            grants_from: Mutex::default(),
            down_since: Mutex::new(Instant::now()),
            farewell: Mutex::default(),
        })
    }

    /// The number of the current connection, or of the last one.
    pub(in crate::backend::redis) fn epoch(&self) -> u64 {
        // The number changes before a new connection is handed out, so the commands that are sent while it stays the same
        // go over one connection. Acquire: pairs with the Release in `established`.
        self.epoch.load(Ordering::Acquire)
    }

    /// The number of the last connection that replaced another one; 0 if there was none.
    pub(in crate::backend::redis) fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// Whether there is a connection.
    pub(in crate::backend::redis) fn is_up(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Up(_))
    }

    /// How many connections were lost before the present gap; `None` while there is a connection.
    pub(in crate::backend::redis) fn gap(&self) -> Option<u64> {
        let phase = self.phase.borrow();
        // Relaxed: it changes while `phase` is changed.
        matches!(&*phase, Phase::Down(_)).then(|| self.lost.load(Ordering::Relaxed))
    }

    /// Whether the last try to connect has failed, and the next one follows.
    pub(in crate::backend::redis) fn fails_to_connect(&self) -> bool {
        // Acquire, as for each who looks at it. The task may have ended with its runtime.
        self.has_failed() && self.connecting.load(Ordering::Acquire)
    }

    fn has_failed(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Down(Some(_)))
    }

    /// A try to connect has failed. Returns false if there is a connection, which another task has established.
    fn note_failed(&self, fault: &Fault) -> bool {
        let is_down = foreign::send_if_modified(&self.phase, |phase| {
            let is_down = matches!(phase, Phase::Down(_));
            if is_down {
                *phase = Phase::Down(Some(fault.clone()));
            }
            is_down
        });
        if is_down {
            self.wiring.outages.failed(self.wiring.what, fault);
        }
        is_down
    }

    /// Why the link is disconnected; `None` if it is connected.
    pub(in crate::backend::redis) fn disconnected(&self) -> Option<Fault> {
        self.disconnection().map(|(_, fault)| fault)
    }

    /// How long the link has been disconnected, and why; `None` if it is connected.
    pub(in crate::backend::redis) fn disconnection(&self) -> Option<(Duration, Fault)> {
        let phase = self.phase.borrow();
        let fault = match &*phase {
            Phase::Up(_) => return None,
            Phase::Down(Some(fault)) => fault.clone(),
            Phase::Down(None) => Fault::NotNow(cause("no connection to the server")),
        };
        let since = *self.down_since.lock();
        Some((Instant::now().duration_since(since), fault))
    }

    /// How long the server has to wait before it may grant, since it was started only recently.
    pub(in crate::backend::redis) fn grace_left(&self) -> Option<Duration> {
        if self.wiring.restart_grace.is_zero() {
            return None;
        }
        let from = (*self.grants_from.lock())?;
        let left = from.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// The connection. Waits for it for at most `patience`. If this fails, nothing was sent.
    pub(in crate::backend::redis) async fn connected(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Connected, Fault> {
        // Whatever is sent asks for the connection first.
        self.wiring.connector.check_identity()?;
        if let Phase::Up(connected) = &*self.phase.borrow() {
            return Ok(connected.clone());
        }
        let mut phase = self.phase.subscribe();
        self.connect();
        foreign::notify_one(&self.wanted);
        // What an earlier try met may be over by now. A refusal counts only if it comes from here on.
        let mut is_new = false;
        let settled = phase.wait_for(|phase| {
            let is_refused = matches!(phase, Phase::Down(Some(fault)) if is_refusal(fault));
            matches!(phase, Phase::Up(_)) || std::mem::replace(&mut is_new, true) && is_refused
        });
        let settled = match tokio::time::timeout(patience, settled).await {
            Ok(Ok(phase)) => phase.clone(),
            _ => self.phase.borrow().clone(),
        };
        match settled {
            Phase::Up(connected) => Ok(connected),
            Phase::Down(Some(fault)) => Err(fault),
            Phase::Down(None) => Err(Fault::NotNow(cause(format!(
                "no connection within {patience:?}"
            )))),
        }
    }

    /// A command over the connection was answered.
    pub(in crate::backend::redis) fn answered(&self) {
        // Read first: the count is nearly always 0, and a write would move its cache line between cores.
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// A command over connection `epoch` was not answered in time.
    pub(in crate::backend::redis) fn timed_out(self: &Arc<Self>, epoch: u64) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_TO_REPLACE {
            self.broken(epoch, "commands went unanswered");
        }
    }

    /// Connection `epoch` cannot be used any more, and is replaced. Does nothing if it was replaced already.
    pub(in crate::backend::redis) fn broken(self: &Arc<Self>, epoch: u64, reason: &str) {
        if self.replace(epoch) {
            self.wiring.outages.failed(self.wiring.what, &reason);
        }
    }

    /// Replaces connection `epoch`, without a word in the log: the server did not end it. Returns whether it was the
    /// current one.
    pub(in crate::backend::redis) fn replace(self: &Arc<Self>, epoch: u64) -> bool {
        let was_up = foreign::send_if_modified(&self.phase, |phase| {
            let same = matches!(phase, Phase::Up(connected) if connected.epoch == epoch);
            if same {
                *phase = Phase::Down(None);
                *self.down_since.lock() = Instant::now();
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            same
        });
        if was_up {
            self.timeouts.store(0, Ordering::Relaxed);
            self.connect();
        }
        was_up
    }

    /// Replaces the current connection, because it leads to the wrong server. What that server answers from here on must
    /// not be believed; see [`has_left`](Link::has_left).
    pub(in crate::backend::redis) fn leave(self: &Arc<Self>) {
        let epoch = self.epoch();
        // Release, before the replacement: who reads an answer after it finds the number.
        self.left.fetch_max(epoch, Ordering::AcqRel);
        let _was_current = self.replace(epoch);
    }

    /// Whether connection `epoch` was left.
    pub(in crate::backend::redis) fn has_left(&self, epoch: u64) -> bool {
        epoch <= self.left.load(Ordering::Acquire)
    }

    /// Completes when connection `epoch` is not the current one any more.
    pub(in crate::backend::redis) async fn down(&self, epoch: u64) {
        let mut phase = self.phase.subscribe();
        let other =
            |phase: &Phase| !matches!(phase, Phase::Up(connected) if connected.epoch == epoch);
        let _closed = phase.wait_for(other).await;
    }

    /// Starts the task that connects, unless it runs or there is no runtime to run it in.
    pub(in crate::backend::redis) fn connect(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // One swap: of several callers exactly one starts the task. It pairs with the Release of `Connecting`.
        if !self.connecting.swap(true, Ordering::AcqRel) {
            if self.epoch() == 0 && !self.has_failed() {
                *self.down_since.lock() = Instant::now();
            }
            let connecting = Connecting(Arc::clone(&self.connecting));
            drop(runtime.spawn(connect_until_established(Arc::downgrade(self), connecting)));
        }
    }

    async fn connect_once(self: &Arc<Self>) -> Result<(Connected, Address), Fault> {
        let connect_timeout = self.wiring.connector.timeout();
        let epoch = self.wiring.epochs.next();
        let (on_push, link) = (Arc::clone(&self.wiring.on_push), Arc::downgrade(self));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            // Off: the response timeout is applied and counted by the callers.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
            .set_push_sender(move |push: PushInfo| {
                match (&push.kind, link.upgrade()) {
                    (PushKind::Disconnection, Some(link)) => {
                        link.broken(epoch, "the server closed the connection")
                    }
                    _ => on_push(epoch, push),
                }
                Ok::<(), ()>(())
            });
        let connect = async {
            let address = self.wiring.server.locate().await?;
            let (connector, nodelay) = (&self.wiring.connector, self.wiring.nodelay);
            let client = connector.client(&address, nodelay).await?;
            let connected = client.get_multiplexed_async_connection_with_config(&config);
            let connected = tokio::select! {
                connected = connected => connected,
                fault = self.no_tls_there(&address) => return Err(fault),
            };
            let mut connection = match connected {
                Ok(connection) => connection,
                Err(error) => {
                    let fault = match greeting::may_be_turned_away(&error) || tls::is_no_tls(&error)
                    {
                        true => self.turned_away(&address).await,
                        false => None,
                    };
                    let refused = || greeting::refused(&address.to_string(), error);
                    return Err(fault.unwrap_or_else(refused));
                }
            };
            let greeted = (self.wiring.expected, connector.client_name());
            greeting::check(&address.to_string(), greeted, &mut connection).await?;
            if let Some(first) = &self.wiring.first {
                let server = self.wiring.outages.server();
                first.check(server, &mut connection).await?;
            }
            let connected = Connected {
                grants_from: self.grants_from(&mut connection).await?,
                connection,
                epoch,
            };
            Ok((connected, address))
        };
        match tokio::time::timeout(connect_timeout, connect).await {
            Ok(connected) => connected,
            Err(_) => Err(Fault::NotNow(cause(format!(
                "no connection within {connect_timeout:?}"
            )))),
        }
    }

    /// When the server at the end of a new connection may grant, if it was started only recently.
    async fn grants_from(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<Instant>, Fault> {
        let grace = self.wiring.restart_grace;
        if grace.is_zero() {
            return Ok(None);
        }
        let now = Instant::now();
        let left = grace.saturating_sub(greeting::uptime(connection).await?);
        Ok((!left.is_zero()).then(|| now + left))
    }

    /// What the server says that ended the last connection. It is asked now and then only, because asking takes another
    /// connection.
    async fn turned_away(&self, address: &Address) -> Option<Fault> {
        let now = Instant::now();
        let last = self.farewell.lock().clone();
        if let Some((at, fault)) = last
            && now.duration_since(at) < FAREWELL_AGAIN_AFTER
        {
            return fault;
        }
        let (has_tls, expected) = (self.wiring.connector.has_tls(), self.wiring.expected);
        let fault = greeting::turned_away(address, has_tls, expected).await;
        *self.farewell.lock() = Some((now, fault.clone()));
        fault
    }

    /// Completes if a server leaves the handshake of TLS unanswered because it speaks none: it waits for the end of a line.
    async fn no_tls_there(&self, address: &Address) -> Fault {
        if self.wiring.connector.has_tls() {
            tokio::time::sleep(HANDSHAKE_SILENCE).await;
            if let Some(fault) = self.turned_away(address).await {
                return fault;
            }
        }
        std::future::pending().await
    }

    /// A new connection is established. It is dropped if there is a current one.
    fn established(self: &Arc<Self>, connected: Connected) {
        let epoch = connected.epoch;
        *self.farewell.lock() = None;
        *self.grants_from.lock() = connected.grants_from;
        // Before the connection is handed out, see `epoch`. The maximum, since numbers are given before connecting.
        if self.epoch.fetch_max(epoch, Ordering::AcqRel) != 0 {
            self.replaced.fetch_max(epoch, Ordering::AcqRel);
        }
        self.wiring.epochs.changed();
        let was_taken = foreign::send_if_modified(&self.phase, |phase| {
            let is_needed = matches!(phase, Phase::Down(_));
            if is_needed {
                *phase = Phase::Up(connected);
            }
            is_needed
        });
        if was_taken {
            telemetry::connected(self.wiring.what, epoch);
            self.wiring.outages.established(self.wiring.what);
            let runtime_ends = RuntimeEnds(Arc::downgrade(self), epoch);
            let mut phase = self.phase.subscribe();
            drop(tokio::spawn(async move {
                let _runtime_ends = runtime_ends;
                let other = |phase: &Phase| !matches!(phase, Phase::Up(up) if up.epoch == epoch);
                let _closed = phase.wait_for(other).await;
            }));
        }
    }
}

/// Tries to connect, with growing pauses, until a connection is established or the link is dropped.
async fn connect_until_established(link: Weak<Link>, connecting: Connecting) {
    let mut pause = RECONNECT_BACKOFF.first;
    loop {
        let Some(link) = link.upgrade() else { return };
        pause = pause.min(link.wiring.longest_pause);
        let was_refused = match link.connect_once().await {
            Ok((connected, address)) => {
                // In this order: if the connection breaks as soon as it is handed out, the next task must be able to
                // start, and it could not while this one counts as running.
                drop(connecting);
                link.established(connected);
                // Checked when the connection is handed out: of a change after this, `leave` tells the link.
                if !link.wiring.server.is_current(&address) {
                    link.leave();
                }
                return;
            }
            Err(fault) => {
                telemetry::connect_failed(link.wiring.what, &fault, pause);
                if !link.note_failed(&fault) {
                    return;
                }
                is_refusal(&fault)
            }
        };
        let wanted = Arc::clone(&link.wanted);
        // Not held during the pause, so that the link can be dropped.
        drop(link);
        // Jitter: the many clients that lost one server should not all return at the same moment.
        let jitter = rand::rng().random_range(0.5..1.0);
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(jitter)) => {}
            // The server is there, and may admit the next try.
            () = wanted_after(REFUSED_PAUSE, &wanted), if was_refused => {}
        }
        pause *= 2;
    }
}

/// Whether the server is there and refuses this client's connections.
fn is_refusal(fault: &Fault) -> bool {
    matches!(fault, Fault::LoginDenied(_)) || fault.is_final()
}

/// Completes after the pause, when somebody waits for a connection.
async fn wanted_after(pause: Duration, wanted: &Notify) {
    tokio::time::sleep(pause).await;
    wanted.notified().await;
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

/// Held by the task that connects. Resets the flag when the task ends, also when it ends with its runtime.
struct Connecting(Arc<AtomicBool>);

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
