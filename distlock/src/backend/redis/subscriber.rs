//! The task that listens: one connection, all channels of one client, kept as the state machine in `channels` wants it.
//!
//! Messages come in by the driver's callback, which only moves flags. Everything that is sent goes through the task, one
//! command at a time, so that confirmations keep their order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::channels::{Channel, Channels};
use super::link::{Connected, Link};
use super::{names, reply};
use crate::backend::{Fault, Subscription};
use crate::clock::Clock;
use crate::config::{RECONNECT_BACKOFF, SUBSCRIPTION_LINGER, SUBSCRIPTION_PING};
use crate::telemetry;

/// Channels that travel in one command.
const BATCH: usize = 500;

/// The subscriptions of one client.
pub(super) struct Subscriber {
    link: Arc<Link>,
    shared: Arc<Shared>,
    response_timeout: Duration,
    running: Arc<AtomicBool>,
}

/// What shares, the driver's callback and the task have in common.
struct Shared {
    channels: Mutex<Channels>,
    wake: Notify,
    clock: Clock,
    /// No client is left: the task ends.
    closed: AtomicBool,
}

impl Subscriber {
    pub(super) fn new(client: redis::Client, clock: Clock, response_timeout: Duration) -> Self {
        let shared = Arc::new(Shared {
            channels: Mutex::new(Channels::new(SUBSCRIPTION_LINGER)),
            wake: Notify::new(),
            clock,
            closed: AtomicBool::new(false),
        });
        let listener = Arc::clone(&shared);
        let link = Link::new(
            "messages",
            client,
            RECONNECT_BACKOFF.longest,
            Arc::new(move |push| listener.heard(&push)),
        );
        Self {
            link,
            shared,
            response_timeout,
            running: Arc::default(),
        }
    }

    /// A share in a channel.
    pub(super) fn subscribe(&self, channel: String) -> Subscription {
        let channel: Channel = channel.into();
        let (signal, send) = self.shared.channels.lock().join(&channel);
        self.start();
        if send {
            self.shared.wake.notify_one();
        }
        let share = Share {
            shared: Arc::clone(&self.shared),
            channel,
        };
        Subscription::new(signal, share)
    }

    /// How many of this client's connections hear what is published on a channel.
    pub(super) fn listens(&self, channel: &str) -> i64 {
        self.shared.channels.lock().listens(channel)
    }

    /// Channels that are listened to, or still to be left.
    #[cfg(feature = "test-util")]
    pub(super) fn channels(&self) -> usize {
        self.shared.channels.lock().len()
    }

    /// Starts the task again where its runtime has gone and somebody still listens.
    pub(super) fn revive(&self) {
        if !self.running.load(Ordering::Acquire) && !self.shared.channels.lock().is_empty() {
            self.start();
        }
    }

    /// Starts the task where it does not run: at first, or after its runtime has gone.
    fn start(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = Task {
            link: Arc::clone(&self.link),
            shared: Arc::clone(&self.shared),
            response_timeout: self.response_timeout,
            running: Arc::clone(&self.running),
        };
        drop(runtime.spawn(task.run()));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

/// One share in a channel.
struct Share {
    shared: Arc<Shared>,
    channel: Channel,
}

impl Drop for Share {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        let mut channels = self.shared.channels.lock();
        let before = channels.next_end();
        channels.leave(&self.channel, now);
        let earlier = channels.next_end() < before;
        drop(channels);
        if earlier {
            self.shared.wake.notify_one();
        }
    }
}

impl Shared {
    /// Called inside the driver: takes a flag over and returns. What the channel's kind never says is passed over.
    fn heard(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        let [Value::BulkString(channel), Value::BulkString(payload)] = push.data.as_slice() else {
            return;
        };
        match (std::str::from_utf8(channel), payload.as_slice()) {
            (Ok(channel), payload) if names::says(channel, payload) => {
                let news = self.channels.lock().message(channel);
                news.tell();
            }
            _ => telemetry::odd_message(channel, payload.len()),
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

struct Task {
    link: Arc<Link>,
    shared: Arc<Shared>,
    response_timeout: Duration,
    running: Arc<AtomicBool>,
}

impl Drop for Task {
    /// Also when the runtime goes: then nothing is subscribed any more.
    fn drop(&mut self) {
        self.running.store(false, Ordering::Release);
        let news = self.shared.channels.lock().disconnected();
        news.tell();
    }
}

impl Task {
    async fn run(self) {
        while !self.shared.is_closed() {
            if self.shared.channels.lock().is_empty() {
                self.shared.wake.notified().await;
                continue;
            }
            match self.link.connected(self.response_timeout).await {
                Ok(connected) => self.serve(connected).await,
                // Connecting goes on by itself, and what is refused today may be granted later.
                Err(_) => tokio::time::sleep(RECONNECT_BACKOFF.longest).await,
            }
        }
    }

    /// Does what the channels want for as long as one connection stands.
    async fn serve(&self, mut connected: Connected) {
        let (epoch, mut answered) = (connected.epoch, Instant::now());
        while !self.shared.is_closed() {
            let done = tokio::select! {
                biased;
                () = self.link.down(epoch) => break,
                done = self.next_command(&mut connected, answered + SUBSCRIPTION_PING) => done,
            };
            match done {
                Ok(true) => answered = Instant::now(),
                Ok(false) => {}
                Err(fault) => {
                    self.failed(epoch, &fault).await;
                    break;
                }
            }
        }
        let news = self.shared.channels.lock().disconnected();
        news.tell();
    }

    /// Sends what is wanted, or sleeps until something is; a connection that was silent until `ping_at` is asked whether
    /// it lives. Whether anything was answered.
    async fn next_command(
        &self,
        connected: &mut Connected,
        ping_at: Instant,
    ) -> Result<bool, Fault> {
        let (leave, join, next_end) = {
            let mut channels = self.shared.channels.lock();
            let leave = channels.take_lingered(self.shared.clock.now(), BATCH);
            let join = channels.take_wanted(BATCH);
            (leave, join, channels.next_end())
        };
        if !leave.is_empty() {
            let names: Vec<&str> = leave.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.unsubscribe(names))
                .await?;
            let news = self.shared.channels.lock().unsubscribed(&leave);
            news.tell();
        }
        if !join.is_empty() {
            let names: Vec<&str> = join.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.subscribe(names)).await?;
            let news = self
                .shared
                .channels
                .lock()
                .subscribed(&join, self.shared.clock.now());
            news.tell();
        }
        if !(leave.is_empty() && join.is_empty()) {
            return Ok(true);
        }
        tokio::select! {
            () = self.shared.wake.notified() => Ok(false),
            () = self.shared.clock.sleep_until(next_end) => Ok(false),
            () = tokio::time::sleep_until(ping_at) => {
                let ping = redis::cmd("PING");
                self.bounded(async { ping.query_async::<Value>(&mut connected.connection).await.map(drop) }).await.map(|()| true)
            }
        }
    }

    async fn bounded(
        &self,
        command: impl Future<Output = redis::RedisResult<()>>,
    ) -> Result<(), Fault> {
        match timeout(self.response_timeout, command).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(reply::fault(error)),
            Err(_) => Err(Fault::Unknown(crate::backend::cause("no answer"))),
        }
    }

    /// A refusal is no fault of the connection, but trying again at once would not help.
    async fn failed(&self, epoch: u64, fault: &Fault) {
        telemetry::subscription_failed(fault);
        if fault.is_final() {
            let news = self.shared.channels.lock().disconnected();
            news.tell();
            tokio::time::sleep(RECONNECT_BACKOFF.longest).await;
        }
        self.link.broken(epoch, "a subscription failed");
    }
}
