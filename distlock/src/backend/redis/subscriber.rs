//! The task that subscribes: one connection for all channels of one client, kept in step with the state machine in
//! [`channels`](super::channels).
//!
//! Messages arrive in the driver's callback, which only changes signals. Every command goes through the task, one at a
//! time, so that confirmations arrive in the order of the commands.

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
use super::outage::{OutageLog, REPEATED_AFTER};
use super::{names, reply};
use crate::backend::{Fault, Subscription, cause};
use crate::clock::Clock;
use crate::config::{RECONNECT_BACKOFF, SUBSCRIPTION_LINGER, SUBSCRIPTION_PING};
use crate::telemetry;

/// The most channels in one command.
const BATCH: usize = 500;

/// The subscriptions of one client.
pub(super) struct Subscriber {
    link: Arc<Link>,
    shared: Arc<Shared>,
    response_timeout: Duration,
    /// Whether the task runs. Release at its end and Acquire elsewhere: the next task sees everything that the last
    /// did.
    running: Arc<AtomicBool>,
}

/// What the shares, the driver's callback and the task have in common.
struct Shared {
    channels: Mutex<Channels>,
    /// Wakes the task when there may be something to send.
    wake: Notify,
    clock: Clock,
    /// When the log last said that subscribing is refused.
    denial_logged: Mutex<Option<Instant>>,
    /// The client is gone, and the task has to end.
    closed: AtomicBool,
}

impl Subscriber {
    pub(super) fn new(
        client: redis::Client,
        clock: Clock,
        response_timeout: Duration,
        outages: Arc<OutageLog>,
    ) -> Self {
        let shared = Arc::new(Shared {
            channels: Mutex::new(Channels::new(SUBSCRIPTION_LINGER)),
            wake: Notify::new(),
            clock,
            denial_logged: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let receiver = Arc::clone(&shared);
        let link = Link::new(
            "messages",
            client,
            RECONNECT_BACKOFF.longest,
            outages,
            Arc::new(move |push| receiver.received(&push)),
        );
        Self {
            link,
            shared,
            response_timeout,
            running: Arc::default(),
        }
    }

    /// A share in the subscription to a channel.
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

    /// How many of this client's connections the server counts as subscribers of a channel.
    pub(super) fn subscribers(&self, channel: &str) -> i64 {
        self.shared.channels.lock().subscribers(channel)
    }

    /// The number of channels that are subscribed, or have yet to be unsubscribed.
    #[cfg(feature = "test-util")]
    pub(super) fn channels(&self) -> usize {
        self.shared.channels.lock().len()
    }

    /// Starts the task again, in the caller's runtime, if it ended with its own runtime and there are shares left.
    pub(super) fn revive(&self) {
        if !self.running.load(Ordering::Acquire) && !self.shared.channels.lock().is_empty() {
            self.start();
        }
    }

    /// Starts the task unless it runs. Without a runtime nothing happens; a later caller has one.
    fn start(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // One swap: of several callers exactly one starts the task.
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
        // Release, before the wake-up: the task that is woken by it sees the flag.
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
        let ends_earlier = channels.next_end() < before;
        drop(channels);
        // The task sleeps until `before`. Other shares need no wake-up: their channels linger until later.
        if ends_earlier {
            self.shared.wake.notify_one();
        }
    }
}

impl Shared {
    /// Called by the driver, whose other work waits meanwhile: changes a signal and returns. A payload that is never
    /// published on such a channel is ignored.
    fn received(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        let [Value::BulkString(channel), Value::BulkString(payload)] = push.data.as_slice() else {
            return;
        };
        match (std::str::from_utf8(channel), payload.as_slice()) {
            (Ok(channel), payload) if names::is_message(channel, payload) => {
                let notifications = self.channels.lock().message(channel);
                notifications.send();
            }
            _ => telemetry::odd_message(channel, payload.len()),
        }
    }

    /// Logs that the server refuses to subscribe, now and then for as long as it does.
    fn log_denial(&self, fault: &Fault) {
        let now = Instant::now();
        let due = {
            let mut logged = self.denial_logged.lock();
            let due = logged.is_none_or(|logged| now.duration_since(logged) >= REPEATED_AFTER);
            if due {
                *logged = Some(now);
            }
            due
        };
        if due {
            telemetry::subscription_failed(fault);
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
    /// Runs also when the task's runtime ends: without the task no subscription is maintained.
    fn drop(&mut self) {
        // Before the notifications: the waiters that they wake must find that the task has to be started again.
        self.running.store(false, Ordering::Release);
        let notifications = self.shared.channels.lock().disconnected();
        notifications.send();
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
                // The link keeps connecting on its own. A login that is denied now may be allowed later.
                Err(_) => tokio::time::sleep(RECONNECT_BACKOFF.longest).await,
            }
        }
    }

    /// Subscribes and unsubscribes over one connection, until that is lost.
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
        let notifications = self.shared.channels.lock().disconnected();
        notifications.send();
    }

    /// Sends the next commands, or sleeps until there are any. If there are none until `ping_at`, sends a PING, since a
    /// silent connection may be dead. Answers whether the server has answered anything.
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
            let notifications = self.shared.channels.lock().unsubscribed(&leave);
            notifications.send();
        }
        if !join.is_empty() {
            let names: Vec<&str> = join.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.subscribe(names)).await?;
            let now = self.shared.clock.now();
            let notifications = self.shared.channels.lock().subscribed(&join, now);
            notifications.send();
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

    /// Waits for an answer, for at most the response timeout.
    async fn bounded(
        &self,
        command: impl Future<Output = redis::RedisResult<()>>,
    ) -> Result<(), Fault> {
        match timeout(self.response_timeout, command).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(reply::fault(error)),
            Err(_) => {
                let text = format!("no answer within {:?}", self.response_timeout);
                Err(Fault::Unknown(cause(text)))
            }
        }
    }

    /// A command failed: the connection is replaced, and everything is subscribed again.
    async fn failed(&self, epoch: u64, fault: &Fault) {
        if fault.is_final() {
            self.shared.log_denial(fault);
            // The server refused the command, and would refuse it again at once. The waiters are notified before the
            // pause, so that they fall back to their timers.
            let notifications = self.shared.channels.lock().disconnected();
            notifications.send();
            tokio::time::sleep(RECONNECT_BACKOFF.longest).await;
            let _was_current = self.link.replace(epoch);
        } else {
            self.link
                .broken(epoch, &format!("a subscription failed: {fault}"));
        }
    }
}
