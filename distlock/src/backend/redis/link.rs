//! One connection that comes back by itself, with a health rule of our own.
//!
//! The driver reports a command that timed out and keeps the connection, also a black-holed one, for ever. Here two
//! unanswered commands in a row replace it. Each connection has a number, its epoch: commands of one epoch are carried
//! out in the order they were sent.
//!
//! Connecting is a task of its own, one at a time, so that no caller's short deadline cuts it off; where the task died
//! with its runtime, the next caller starts it again in its own.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::sync::watch;

use super::reply;
use crate::backend::{Fault, cause};
use crate::config::{CONNECT_TIMEOUT, PIPELINE_BUFFER, RECONNECT_BACKOFF, TIMEOUTS_TO_REPLACE};
use crate::telemetry;

/// What to do with what the server says unasked.
type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// A connection that stands.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) epoch: u64,
}

#[derive(Clone)]
enum Phase {
    Up(Connected),
    /// With the last failure to connect.
    Down(Option<Fault>),
}

/// A connection that comes back by itself.
pub(super) struct Link {
    what: &'static str,
    client: redis::Client,
    on_push: OnPush,
    longest_pause: Duration,
    phase: watch::Sender<Phase>,
    /// The number of the connection that stands, or stood last.
    epoch: AtomicU64,
    /// Numbers given out, each to one connection.
    numbers: AtomicU64,
    connecting: Arc<AtomicBool>,
    timeouts: AtomicU32,
}

impl Link {
    /// A link that connects when it is first asked for, and never pauses for longer between two tries.
    pub(super) fn new(
        what: &'static str,
        client: redis::Client,
        longest_pause: Duration,
        on_push: OnPush,
    ) -> Arc<Self> {
        Arc::new(Self {
            what,
            client,
            on_push,
            longest_pause,
            phase: watch::Sender::new(Phase::Down(None)),
            epoch: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            connecting: Arc::default(),
            timeouts: AtomicU32::new(0),
        })
    }

    /// The number of the connection that stands, or stood last.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The connection, waiting for it for at most `patience`. Nothing was sent where this fails.
    pub(super) async fn connected(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Connected, Fault> {
        if let Phase::Up(connected) = &*self.phase.borrow() {
            return Ok(connected.clone());
        }
        let mut phase = self.phase.subscribe();
        self.connect();
        let up = phase
            .wait_for(|phase| matches!(phase, Phase::Up(_) | Phase::Down(Some(Fault::Denied(_)))));
        let settled = match tokio::time::timeout(patience, up).await {
            Ok(Ok(phase)) => phase.clone(),
            _ => self.phase.borrow().clone(),
        };
        match settled {
            Phase::Up(connected) => Ok(connected),
            Phase::Down(Some(fault)) => Err(fault),
            Phase::Down(None) => Err(Fault::NotNow(cause("not connected"))),
        }
    }

    /// A command over this connection was answered.
    pub(super) fn answered(&self) {
        // Read first: the flag is nearly always down, and a write would pull its cache line about.
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// A command over connection `epoch` went unanswered.
    pub(super) fn timed_out(self: &Arc<Self>, epoch: u64) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_TO_REPLACE {
            self.broken(epoch, "commands went unanswered");
        }
    }

    /// Connection `epoch` is of no use any more: connects anew. Later ones are left alone.
    pub(super) fn broken(self: &Arc<Self>, epoch: u64, reason: &str) {
        let fell = self.phase.send_if_modified(|phase| {
            let same = matches!(phase, Phase::Up(connected) if connected.epoch == epoch);
            if same {
                *phase = Phase::Down(None);
            }
            same
        });
        if fell {
            telemetry::disconnected(self.what, reason);
            self.timeouts.store(0, Ordering::Relaxed);
            self.connect();
        }
    }

    /// Completes when connection `epoch` stands no more.
    pub(super) async fn down(&self, epoch: u64) {
        let mut phase = self.phase.subscribe();
        let other =
            |phase: &Phase| !matches!(phase, Phase::Up(connected) if connected.epoch == epoch);
        let _closed = phase.wait_for(other).await;
    }

    /// Starts to connect, unless that is under way or there is no runtime to do it in.
    fn connect(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if !self.connecting.swap(true, Ordering::AcqRel) {
            let alive = Alive(Arc::clone(&self.connecting));
            drop(runtime.spawn(connect_until_it_stands(Arc::downgrade(self), alive)));
        }
    }

    async fn connect_once(self: &Arc<Self>) -> Result<Connected, Fault> {
        let epoch = self.numbers.fetch_add(1, Ordering::AcqRel) + 1;
        let (on_push, link) = (Arc::clone(&self.on_push), Arc::downgrade(self));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            // Timeouts are ours to count.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
            .set_push_sender(move |push: PushInfo| {
                match (&push.kind, link.upgrade()) {
                    (PushKind::Disconnection, Some(link)) => {
                        link.broken(epoch, "the server closed it")
                    }
                    _ => on_push(push),
                }
                Ok::<(), ()>(())
            });
        let connect = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(connection)) => Ok(Connected { connection, epoch }),
            Ok(Err(error)) => Err(match reply::fault(error) {
                // Nothing was sent yet.
                Fault::Unknown(cause) | Fault::Protocol(cause) => Fault::NotNow(cause),
                other => other,
            }),
            Err(_) => Err(Fault::NotNow(cause("connecting took too long"))),
        }
    }

    /// A new connection stands; one too many is dropped.
    fn stands(self: &Arc<Self>, connected: Connected) {
        let epoch = connected.epoch;
        self.epoch.fetch_max(epoch, Ordering::AcqRel);
        let taken = self.phase.send_if_modified(|phase| {
            let wanted = matches!(phase, Phase::Down(_));
            if wanted {
                *phase = Phase::Up(connected);
            }
            wanted
        });
        if taken {
            telemetry::connected(self.what, epoch);
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

/// Tries until it stands or nobody is left to use it, with growing pauses.
async fn connect_until_it_stands(link: Weak<Link>, alive: Alive) {
    let mut pause = RECONNECT_BACKOFF.first;
    loop {
        let Some(link) = link.upgrade() else { return };
        pause = pause.min(link.longest_pause);
        match link.connect_once().await {
            Ok(connected) => {
                // First: whoever finds this connection broken again must be able to start the next task.
                drop(alive);
                link.stands(connected);
                return;
            }
            Err(fault) => {
                telemetry::connect_failed(link.what, &fault, pause);
                link.phase.send_replace(Phase::Down(Some(fault)));
            }
        }
        drop(link);
        // Jitter: many clients that lost one server do not come back in step.
        let jitter = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(pause.mul_f64(jitter)).await;
        pause *= 2;
    }
}

/// Held by a task beside the driver's: the driver says nothing when it goes with its runtime.
struct RuntimeEnds(Weak<Link>, u64);

impl Drop for RuntimeEnds {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.broken(self.1, "it is no more, or its runtime has ended");
        }
    }
}

/// Held by the task that connects; says when it does no more, however it ended.
struct Alive(Arc<AtomicBool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
