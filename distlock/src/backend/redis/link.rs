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

use parking_lot::Mutex;
use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::greeting;
use super::outage::OutageLog;
use crate::backend::{Fault, cause};
use crate::config::{
    CONNECT_TIMEOUT, FAREWELL_AGAIN_AFTER, PIPELINE_BUFFER, RECONNECT_BACKOFF, REFUSED_PAUSE,
    TIMEOUTS_TO_REPLACE,
};
use crate::telemetry;

/// Called with what the server sends unrequested.
type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// An established connection.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) epoch: u64,
}

#[derive(Clone)]
enum Phase {
    Up(Connected),
    /// No connection, and the last failure to connect.
    Down(Option<Fault>),
}

/// A connection that is replaced when it fails.
pub(super) struct Link {
    what: &'static str,
    client: redis::Client,
    on_push: OnPush,
    longest_pause: Duration,
    outages: Arc<OutageLog>,
    phase: watch::Sender<Phase>,
    /// Somebody waits for a connection. Ends the pause after a try that the server refused.
    wanted: Arc<Notify>,
    /// The number of the current connection, or of the last one.
    epoch: watch::Sender<u64>,
    /// The last number that was given to a connection, established or not.
    numbers: AtomicU64,
    /// Whether the task that connects runs.
    connecting: Arc<AtomicBool>,
    /// The commands in a row that went unanswered. Relaxed: a count that is off by one only moves the replacement of
    /// the connection by one command.
    timeouts: AtomicU32,
    /// When the server was last asked why it had ended a connection, and what it said.
    farewell: Mutex<Option<(Instant, Option<Fault>)>>,
}

impl Link {
    /// A link that connects when a connection is first asked for, and pauses for at most `longest_pause` between two
    /// attempts to connect.
    pub(super) fn new(
        what: &'static str,
        client: redis::Client,
        longest_pause: Duration,
        outages: Arc<OutageLog>,
        on_push: OnPush,
    ) -> Arc<Self> {
        Arc::new(Self {
            what,
            client,
            on_push,
            longest_pause,
            outages,
            wanted: Arc::default(),
            phase: watch::Sender::new(Phase::Down(None)),
            epoch: watch::Sender::new(0),
            numbers: AtomicU64::new(0),
            connecting: Arc::default(),
            timeouts: AtomicU32::new(0),
            farewell: Mutex::default(),
        })
    }

    /// The number of the current connection, or of the last one.
    pub(super) fn epoch(&self) -> u64 {
        // The number changes before a new connection is handed out, so the commands that are sent while it stays the same
        // go over one connection.
        *self.epoch.borrow()
    }

    /// Completes with the number of a new connection when one was established after `epoch`.
    pub(super) async fn epoch_after(&self, epoch: u64) -> u64 {
        let mut epochs = self.epoch.subscribe();
        let other = epochs.wait_for(|number| *number != epoch).await;
        // The sender lives as long as the link.
        other.map_or(epoch, |number| *number)
    }

    /// Whether there is a connection.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Up(_))
    }

    /// The connection. Waits for it for at most `patience`. If this fails, nothing was sent.
    pub(super) async fn connected(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Connected, Fault> {
        if let Phase::Up(connected) = &*self.phase.borrow() {
            return Ok(connected.clone());
        }
        let mut phase = self.phase.subscribe();
        self.connect();
        self.wanted.notify_one();
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
            Phase::Down(None) => Err(Fault::NotNow(cause("not connected"))),
        }
    }

    /// A command over the connection was answered.
    pub(super) fn answered(&self) {
        // Read first: the count is nearly always 0, and a write would move its cache line between cores.
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// A command over connection `epoch` was not answered in time.
    pub(super) fn timed_out(self: &Arc<Self>, epoch: u64) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_TO_REPLACE {
            self.broken(epoch, "commands went unanswered");
        }
    }

    /// Connection `epoch` cannot be used any more, and is replaced. Does nothing if it was replaced already.
    pub(super) fn broken(self: &Arc<Self>, epoch: u64, reason: &str) {
        if self.replace(epoch) {
            self.outages.failed(self.what, &reason);
        }
    }

    /// Replaces connection `epoch`, without a word in the log: the server did not end it. Returns whether it was the
    /// current one.
    pub(super) fn replace(self: &Arc<Self>, epoch: u64) -> bool {
        let was_up = self.phase.send_if_modified(|phase| {
            let same = matches!(phase, Phase::Up(connected) if connected.epoch == epoch);
            if same {
                *phase = Phase::Down(None);
            }
            same
        });
        if was_up {
            self.timeouts.store(0, Ordering::Relaxed);
            self.connect();
        }
        was_up
    }

    /// Completes when connection `epoch` is not the current one any more.
    pub(super) async fn down(&self, epoch: u64) {
        let mut phase = self.phase.subscribe();
        let other =
            |phase: &Phase| !matches!(phase, Phase::Up(connected) if connected.epoch == epoch);
        let _closed = phase.wait_for(other).await;
    }

    /// Starts the task that connects, unless it runs or there is no runtime to run it in.
    fn connect(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // One swap: of several callers exactly one starts the task. It pairs with the Release of `Connecting`.
        if !self.connecting.swap(true, Ordering::AcqRel) {
            let connecting = Connecting(Arc::clone(&self.connecting));
            drop(runtime.spawn(connect_until_established(Arc::downgrade(self), connecting)));
        }
    }

    async fn connect_once(self: &Arc<Self>) -> Result<Connected, Fault> {
        // Relaxed: the numbers only have to differ and to grow.
        let epoch = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (on_push, link) = (Arc::clone(&self.on_push), Arc::downgrade(self));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            // Off: the response timeout is applied and counted by the callers.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
            .set_push_sender(move |push: PushInfo| {
                match (&push.kind, link.upgrade()) {
                    (PushKind::Disconnection, Some(link)) => {
                        link.broken(epoch, "the server closed the connection")
                    }
                    _ => on_push(push),
                }
                Ok::<(), ()>(())
            });
        let connect = async {
            let connected = self
                .client
                .get_multiplexed_async_connection_with_config(&config);
            let server = self.outages.server();
            let mut connection = match connected.await {
                Ok(connection) => connection,
                Err(error) => {
                    let fault = match greeting::may_be_turned_away(&error) {
                        true => self.turned_away().await,
                        false => None,
                    };
                    return Err(fault.unwrap_or_else(|| greeting::refused(server, error)));
                }
            };
            greeting::check(server, &mut connection).await?;
            Ok(connection)
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(connection)) => Ok(Connected { connection, epoch }),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::NotNow(cause("no connection in time"))),
        }
    }

    /// What the server says that ended the last connection. It is asked now and then only, because asking takes another
    /// connection.
    async fn turned_away(&self) -> Option<Fault> {
        let now = Instant::now();
        let last = self.farewell.lock().clone();
        if let Some((at, fault)) = last
            && now.duration_since(at) < FAREWELL_AGAIN_AFTER
        {
            return fault;
        }
        let address = self.client.get_connection_info().addr();
        let fault = greeting::turned_away(address).await;
        *self.farewell.lock() = Some((now, fault.clone()));
        fault
    }

    /// A new connection is established. It is dropped if there is a current one.
    fn established(self: &Arc<Self>, connected: Connected) {
        let epoch = connected.epoch;
        *self.farewell.lock() = None;
        // Before the connection is handed out, see `epoch`. The maximum, since numbers are given before connecting.
        self.epoch.send_if_modified(|number| {
            let is_newer = epoch > *number;
            *number = epoch.max(*number);
            is_newer
        });
        let was_taken = self.phase.send_if_modified(|phase| {
            let is_needed = matches!(phase, Phase::Down(_));
            if is_needed {
                *phase = Phase::Up(connected);
            }
            is_needed
        });
        if was_taken {
            telemetry::connected(self.what, epoch);
            self.outages.established(self.what);
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
        pause = pause.min(link.longest_pause);
        let was_refused = match link.connect_once().await {
            Ok(connected) => {
                // In this order: if the connection breaks as soon as it is handed out, the next task must be able to
                // start, and it could not while this one counts as running.
                drop(connecting);
                link.established(connected);
                return;
            }
            Err(fault) => {
                telemetry::connect_failed(link.what, &fault, pause);
                link.outages.failed(link.what, &fault);
                let was_refused = is_refusal(&fault);
                link.phase.send_replace(Phase::Down(Some(fault)));
                was_refused
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
