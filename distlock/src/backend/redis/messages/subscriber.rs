//! The tasks that subscribe: for each server one connection for all channels of one client there, kept in step with the
//! state machine in [`channels`](super::channels).
//!
//! Messages arrive in the driver's callback, which only changes signals. Every command goes through the task, one at a
//! time, so that confirmations arrive in the order of the commands.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::channels::{Channel, Channels, ServerNumber};
use super::checks::Checks;
use crate::backend::redis::connection::{Connected, Link, LinkConfig, OnPush, REPEATED_AFTER};
use crate::backend::redis::names;
use crate::backend::redis::reply::{self, Elsewhere};
use crate::backend::{Fault, Subscription, cause};
use crate::clock::Clock;
use crate::config::{RECONNECT_BACKOFF, SUBSCRIPTION_LINGER, SUBSCRIPTION_PING};
use crate::error::show;
use crate::foreign;
use crate::mutex::{Mutex, RwLock};
use crate::task::{OnDemandTask, RunningTask};
use crate::telemetry;

/// The most channels in one command.
const BATCH: usize = 500;

/// The subscriptions of one client, at all of its servers.
pub(crate) struct Subscriptions {
    shared: Arc<Shared>,
}

/// The subscriptions of one client at one server.
pub(crate) struct Subscriber {
    server: Arc<ServerSubscriptions>,
    shared: Arc<Shared>,
    /// Whether the task runs. Release at its end and Acquire elsewhere: the next task sees everything that the last
    /// did.
    running: OnDemandTask,
}

/// What the shares, the driver's callbacks and the tasks have in common.
struct Shared {
    channels: Mutex<Channels>,
    /// What is there for each server. A share wakes the task of the server at which its channel is.
    servers: RwLock<HashMap<ServerNumber, Arc<ServerSubscriptions>>>,
    clock: Clock,
    response_timeout: Duration,
    /// When the log last said that subscribing is refused.
    denial_logged: Mutex<Option<Instant>>,
}

/// What a task, the driver's callback and the shares have in common for one server.
struct ServerSubscriptions {
    number: ServerNumber,
    mode: PubSubMode,
    link: Arc<Link>,
    /// Wakes the task when there may be something to send.
    wake: Notify,
    checks: Checks,
    /// The client is gone, or needs the server no more, and the task has to end.
    closed: AtomicBool,
}

/// How a client listens.
#[derive(Clone)]
pub(crate) enum PubSubMode {
    /// By SUBSCRIBE.
    Plain,
    /// By SSUBSCRIBE, at the node that has the channel's slot.
    Sharded(Arc<dyn Slots>),
    /// Both ways.
    Both(Arc<dyn Slots>),
}

/// What a cluster's node tells about its slots while channels are subscribed there.
pub(crate) trait Slots: Send + Sync {
    /// The node with this number has sent the subscription elsewhere.
    fn sent_elsewhere(&self, number: ServerNumber, elsewhere: &Elsewhere);

    /// The node with this number has ended a subscription unasked, because it has lost a slot.
    fn lost_slot(&self, number: ServerNumber);
}

impl PubSubMode {
    fn slots(&self) -> Option<&Arc<dyn Slots>> {
        match self {
            Self::Plain => None,
            Self::Sharded(slots) | Self::Both(slots) => Some(slots),
        }
    }
}

impl Subscriptions {
    pub(crate) fn new(clock: Clock, response_timeout: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                channels: Mutex::new(Channels::new(SUBSCRIPTION_LINGER)),
                servers: RwLock::default(),
                clock,
                response_timeout,
                denial_logged: Mutex::default(),
            }),
        }
    }

    /// The subscriptions at a server, over a connection that `wiring` makes once what is called with the messages is added
    /// to it.
    pub(crate) fn at(
        &self,
        number: ServerNumber,
        mode: PubSubMode,
        config: impl FnOnce(OnPush) -> LinkConfig,
    ) -> Subscriber {
        let server = Arc::new_cyclic(|server: &Weak<ServerSubscriptions>| {
            let (receiver, server) = (Arc::clone(&self.shared), Weak::clone(server));
            let on_push = Arc::new(move |epoch, push: PushInfo| {
                if let Some(server) = server.upgrade() {
                    receiver.received(&server, epoch, &push);
                }
            });
            ServerSubscriptions {
                number,
                mode,
                link: Link::new(config(on_push)),
                wake: Notify::new(),
                checks: Checks::default(),
                closed: AtomicBool::new(false),
            }
        });
        self.shared
            .servers
            .write()
            .insert(number, Arc::clone(&server));
        Subscriber {
            server,
            shared: Arc::clone(&self.shared),
            running: OnDemandTask::default(),
        }
    }

    /// The channels, and the servers that they are subscribed at.
    pub(crate) fn servers(&self) -> Vec<(Channel, ServerNumber)> {
        self.shared.channels.lock().servers()
    }

    /// The number of channels that are subscribed, or have yet to be unsubscribed.
    #[cfg(feature = "test-util")]
    pub(crate) fn channels(&self) -> usize {
        self.shared.channels.lock().len()
    }
}

impl Subscriber {
    /// The connection for messages.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.server.link
    }

    /// A share in the subscription to a channel. If other shares in it are subscribed at another server, this one is as well.
    pub(crate) fn subscribe(&self, channel: String) -> Subscription {
        let channel: Channel = channel.into();
        let number = self.server.number;
        let (signal, send) = self.shared.channels.lock().join(&channel, number);
        self.start();
        if send {
            foreign::notify_own_task(&self.server.wake);
        }
        let share = Share {
            shared: Arc::clone(&self.shared),
            channel,
        };
        Subscription::new(signal, share)
    }

    /// Subscribes to a channel here, and no more where it is now.
    pub(crate) fn take_over(&self, channel: &Channel) {
        let moved = self
            .shared
            .channels
            .lock()
            .move_to(self.server.number, channel);
        moved.send();
        self.start();
        foreign::notify_own_task(&self.server.wake);
    }

    /// How many of this client's subscriptions the server counts for a channel.
    pub(crate) fn subscribers(&self, channel: &str) -> i64 {
        let here = self
            .shared
            .channels
            .lock()
            .subscribers(self.server.number, channel);
        match self.server.mode {
            PubSubMode::Plain | PubSubMode::Sharded(_) => here,
            PubSubMode::Both(_) => here * 2,
        }
    }

    /// Completes with true when all messages on a channel have arrived that were published before this was called. If the
    /// subscription is dropped meanwhile, that is for the caller to see. With false if there is no subscription.
    pub(crate) fn has_heard_all(
        &self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let number = self.shared.channels.lock().server(channel);
        let server = number.and_then(|number| self.shared.servers.read().get(&number).cloned());
        // Before the future is polled: the caller has seen the key by now.
        let asked = server.map(|server| {
            let number = server.checks.ask();
            foreign::notify_one(&server.wake);
            (server, number)
        });
        Box::pin(async move {
            match asked {
                Some((server, number)) => {
                    server.checks.is_answered(number).await;
                    true
                }
                None => false,
            }
        })
    }

    /// Starts the task again, in the caller's runtime, if it ended with its own runtime and there are shares left.
    pub(crate) fn revive(&self) {
        if !self.running.is_running() && !self.shared.channels.lock().is_empty(self.server.number) {
            self.start();
        }
    }

    /// Starts the task unless it runs. Without a runtime nothing happens; a later caller has one.
    fn start(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let Some(running) = self.running.begin() else {
            return;
        };
        let task = Task {
            server: Arc::clone(&self.server),
            shared: Arc::clone(&self.shared),
            running: Some(running),
        };
        drop(runtime.spawn(task.run()));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut servers = self.shared.servers.write();
        servers.remove(&self.server.number);
        drop(servers);
        // Release, before the wake-up: the task that is woken by it sees the flag.
        self.server.closed.store(true, Ordering::Release);
        foreign::notify_own_task(&self.server.wake);
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
        let (number, notifications) = self.shared.channels.lock().leave(&self.channel, now);
        notifications.send();
        let server = number.and_then(|number| self.shared.servers.read().get(&number).cloned());
        if let Some(server) = server {
            foreign::notify_own_task(&server.wake);
        }
    }
}

impl Shared {
    /// Called by the driver, whose other work waits meanwhile: changes a signal and returns. A payload that is never
    /// published on such a channel is ignored.
    fn received(&self, server: &ServerSubscriptions, epoch: u64, push: &PushInfo) {
        let (channel, payload) = match (&push.kind, push.data.as_slice()) {
            (
                PushKind::Message | PushKind::SMessage,
                [Value::BulkString(channel), Value::BulkString(payload)],
            ) => (channel, payload),
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
                return self.sharded_ended(server, epoch, channel);
            }
            _ => return,
        };
        match (std::str::from_utf8(channel), payload.as_slice()) {
            (Ok(channel), payload) if names::is_message(channel, payload) => {
                let notifications = self.channels.lock().message(channel);
                notifications.send();
            }
            _ => telemetry::odd_message(channel, payload.len()),
        }
    }

    /// A subscription to a channel of a slot has ended. If that was not asked for, the node has lost the slot, and the driver
    /// takes the message for the answer to the oldest command under way: nothing that it says about this connection from
    /// here on is true, and the connection is replaced.
    fn sharded_ended(&self, server: &ServerSubscriptions, epoch: u64, channel: &[u8]) {
        let channel = String::from_utf8_lossy(channel);
        if !self.channels.lock().is_leaving(server.number, &channel) {
            let _was_current = server.link.replace(epoch);
            if let Some(slots) = server.mode.slots() {
                slots.lost_slot(server.number);
            }
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
}

struct Task {
    server: Arc<ServerSubscriptions>,
    shared: Arc<Shared>,
    running: Option<RunningTask>,
}

impl Drop for Task {
    /// Runs also when the task's runtime ends: without the task no subscription is maintained.
    fn drop(&mut self) {
        // Before the notifications: the waiters that they wake must find that the task has to be started again.
        drop(self.running.take());
        let notifications = self.shared.channels.lock().disconnected(self.server.number);
        notifications.send();
    }
}

impl Task {
    async fn run(self) {
        while !self.is_closed() {
            if self.shared.channels.lock().is_empty(self.server.number) {
                self.server.wake.notified().await;
                continue;
            }
            let patience = self.shared.response_timeout;
            match self.server.link.connected(patience).await {
                Ok(connected) => self.serve(connected).await,
                // The link keeps connecting on its own. A login that is denied now may be allowed later. Meanwhile the
                // channels may move to another server.
                Err(_) => self.pause(RECONNECT_BACKOFF.longest).await,
            }
        }
    }

    /// Pauses, but not after the end.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.server.wake.notified(), if self.server.mode.slots().is_some() => {}
        }
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the store in the drop of `Subscriber`.
        self.server.closed.load(Ordering::Acquire)
    }

    /// Subscribes and unsubscribes over one connection, until that is lost.
    async fn serve(&self, mut connected: Connected) {
        let (epoch, mut answered) = (connected.epoch, Instant::now());
        while !self.is_closed() {
            let done = tokio::select! {
                biased;
                () = self.server.link.down(epoch) => break,
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
        let notifications = self.shared.channels.lock().disconnected(self.server.number);
        notifications.send();
    }

    /// Sends the next commands, or sleeps until there are any. If there are none until `ping_at`, sends a PING, since a
    /// silent connection may be dead. Answers whether the server has answered anything.
    async fn next_command(
        &self,
        connected: &mut Connected,
        ping_at: Instant,
    ) -> Result<bool, Fault> {
        let number = self.server.number;
        let (leave, join, next_end) = {
            let mut channels = self.shared.channels.lock();
            let leave = channels.take_lingered(number, self.shared.clock.now(), BATCH);
            let join = channels.take_wanted(number, BATCH);
            (leave, join, channels.next_end(number))
        };
        if !leave.is_empty() {
            self.unsubscribe(connected, &leave).await?;
            let notifications = self.shared.channels.lock().unsubscribed(number, &leave);
            notifications.send();
        }
        if !join.is_empty() {
            let joined = self.subscribe(connected, join.clone()).await?;
            let now = self.shared.clock.now();
            let notifications = self.shared.channels.lock().subscribed(number, &joined, now);
            notifications.send();
            if joined.len() < join.len() {
                // They are wanted again, here or at the node that has the slot. This one may not know it yet.
                tokio::time::sleep(RECONNECT_BACKOFF.first).await;
            }
        }
        if !(leave.is_empty() && join.is_empty()) {
            return Ok(true);
        }
        if let Some(number) = self.server.checks.open() {
            if self.ping(connected).await? {
                self.server.checks.answered(number);
            }
            return Ok(true);
        }
        tokio::select! {
            () = self.server.wake.notified() => Ok(false),
            () = self.shared.clock.sleep_until(next_end) => Ok(false),
            () = tokio::time::sleep_until(ping_at) => self.ping(connected).await.map(|_| true),
        }
    }

    /// Sends a PING. Returns whether the answer is the one to it; see [`sharded_ended`](Shared::sharded_ended).
    async fn ping(&self, connected: &mut Connected) -> Result<bool, Fault> {
        let ping = redis::cmd("PING");
        let answer = self.bounded(ping.query_async::<Value>(&mut connected.connection));
        Ok(matches!(answer.await?, Value::SimpleString(pong) if pong == "PONG"))
    }

    /// Unsubscribes. A node that refuses it has lost the slot, so the connection is to be replaced.
    async fn unsubscribe(&self, connected: &mut Connected, leave: &[Channel]) -> Result<(), Fault> {
        if let PubSubMode::Plain | PubSubMode::Both(_) = self.server.mode {
            let names: Vec<&str> = leave.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.unsubscribe(names))
                .await?;
        }
        if let PubSubMode::Sharded(_) | PubSubMode::Both(_) = self.server.mode {
            for answer in self.each(connected, "SUNSUBSCRIBE", leave).await? {
                answer.map_err(reply::fault)?;
            }
        }
        Ok(())
    }

    /// Subscribes. Returns the channels that are subscribed now; a node sends those elsewhere whose slot it does not have.
    async fn subscribe(
        &self,
        connected: &mut Connected,
        join: Vec<Channel>,
    ) -> Result<Vec<Channel>, Fault> {
        if let PubSubMode::Plain | PubSubMode::Both(_) = self.server.mode {
            let names: Vec<&str> = join.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.subscribe(names)).await?;
        }
        let Some(slots) = self.server.mode.slots() else {
            return Ok(join);
        };
        let answers = self.each(connected, "SSUBSCRIBE", &join).await?;
        let (mut joined, mut unjoined) = (Vec::with_capacity(join.len()), Vec::new());
        for (channel, answer) in join.into_iter().zip(answers) {
            let Err(error) = answer else {
                joined.push(channel);
                continue;
            };
            match reply::elsewhere(&error) {
                Some(elsewhere) => slots.sent_elsewhere(self.server.number, &elsewhere),
                None => match reply::fault(error) {
                    Fault::NotNow(_) => {}
                    fault => return Err(fault),
                },
            }
            let refused = self
                .shared
                .channels
                .lock()
                .refused(self.server.number, &channel);
            refused.send();
            unjoined.push(channel);
        }
        if let (PubSubMode::Both(_), false) = (&self.server.mode, unjoined.is_empty()) {
            let names: Vec<&str> = unjoined.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.unsubscribe(names))
                .await?;
        }
        Ok(joined)
    }

    /// Sends a command for each channel, because the channels of one command must have one slot.
    async fn each(
        &self,
        connected: &mut Connected,
        command: &str,
        channels: &[Channel],
    ) -> Result<Vec<RedisResult<Value>>, Fault> {
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for channel in channels {
            pipeline.cmd(command).arg(&**channel);
        }
        self.bounded(pipeline.query_async(&mut connected.connection))
            .await
    }

    /// Waits for an answer, for at most the response timeout.
    async fn bounded<T>(&self, command: impl Future<Output = RedisResult<T>>) -> Result<T, Fault> {
        match timeout(self.shared.response_timeout, command).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(reply::fault(error)),
            Err(_) => {
                let text = format!("no answer within {}", show(self.shared.response_timeout));
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
            let notifications = self.shared.channels.lock().disconnected(self.server.number);
            notifications.send();
            tokio::time::sleep(RECONNECT_BACKOFF.longest).await;
            let _was_current = self.server.link.replace(epoch);
        } else {
            self.server
                .link
                .broken(epoch, &format!("a subscription failed: {fault}"));
        }
    }
}
