//! The task that subscribes at one server, and keeps what it has subscribed to in step with the state machine in
//! [`channels`](super::channels).
//!
//! Every command goes through this task, one at a time, so that confirmations arrive in the order of the commands.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::{Instant, timeout};

use super::channels::Channel;
use super::mode::{PubSubMode, Slots};
use super::shared::{ServerSubscriptions, Shared};
use crate::backend::redis::connection::Connected;
use crate::backend::redis::reply;
use crate::backend::{Fault, cause};
use crate::config::{RECONNECT_BACKOFF, REFUSED_PAUSE, SUBSCRIPTION_PING};
use crate::error::show;
use crate::sync::foreign;
use crate::sync::on_demand::RunningTask;

/// The most channels in one command.
const BATCH: usize = 500;

/// The task of one server.
pub(super) struct Task {
    pub(super) server: Arc<ServerSubscriptions>,
    pub(super) shared: Arc<Shared>,
    pub(super) running: Option<RunningTask>,
}

impl Drop for Task {
    /// Runs also when the task's runtime ends: without the task no subscription is maintained.
    fn drop(&mut self) {
        // Before the notifications: the waiters that they wake must find that the task has to be started again.
        drop(self.running.take());
        if thread::panicking() {
            // A waker has panicked, and the server may count subscriptions that nobody unsubscribes any more. They end with the
            // connection.
            let _was_current = self.server.link.replace(self.server.link.epoch());
        }
        let notifications = self.shared.channels.lock().disconnected(self.server.number);
        // The next task may run already, and may have found that no channel is wanted.
        foreign::notify_own_task(&self.server.wake);
        notifications.send();
    }
}

impl Task {
    pub(super) async fn run(self) {
        while !self.is_closed() {
            // Without channels a lost connection is not replaced until somebody subscribes.
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

    /// Pauses until there is a connection, or channels may have moved to another server, but not after the end.
    async fn pause(&self, pause: Duration) {
        let woken = async {
            loop {
                self.server.wake.notified().await;
                if self.server.mode.slots().is_some() || self.is_closed() {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.server.link.pause_until_up(pause) => {}
            () = woken => {}
        }
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the store in the drop of `Subscriber`.
        self.server.closed.load(Ordering::Acquire)
    }

    /// Subscribes and unsubscribes over one connection, until that is lost.
    async fn serve(&self, mut connected: Connected) {
        let epoch = connected.epoch;
        let mut answered = Instant::now();
        while !self.is_closed() {
            let done = tokio::select! {
                // In this order: nothing more is sent over a connection that was lost.
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
        let is_idle = leave.is_empty() && join.is_empty();
        if !leave.is_empty() {
            self.unsubscribe(connected, &leave).await?;
            let notifications = self.shared.channels.lock().unsubscribed(number, &leave);
            notifications.send();
        }
        if !join.is_empty() {
            let joined = self.subscribe(connected, join).await?;
            let now = self.shared.clock.now();
            let notifications = self.shared.channels.lock().subscribed(number, &joined, now);
            notifications.send();
        }
        if !is_idle {
            return Ok(true);
        }
        // Only now: a server may end the connection in the middle of many subscriptions, each time again.
        self.server.link.serves(connected.epoch);
        if let Some(number) = self.server.checks.open() {
            if self.ping(connected).await? {
                self.server.checks.answered(number);
            }
            return Ok(true);
        }
        tokio::select! {
            // Nothing is lost by those that do not come first: a wake-up stays in `wake`, and the times are read again.
            () = self.server.wake.notified() => Ok(false),
            () = self.shared.clock.sleep_until(next_end) => Ok(false),
            () = tokio::time::sleep_until(ping_at) => self.ping(connected).await.map(|_| true),
        }
    }

    /// Sends a PING. Returns whether the answer is the one to it; see [`sharded_ended`](Shared::sharded_ended).
    async fn ping(&self, connected: &mut Connected) -> Result<bool, Fault> {
        let ping = redis::cmd("PING");
        let answer = self.bounded(ping.query_async::<Value>(&mut connected.connection));
        match answer.await {
            Ok(answer) => Ok(matches!(answer, Value::SimpleString(pong) if pong == "PONG")),
            // A sign of life as well, from a server that is busy or loads its data. A question that is open is asked again.
            Err(Fault::NotNow(_)) => {
                tokio::time::sleep(REFUSED_PAUSE).await;
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
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
                answer.map_err(|error| match reply::elsewhere(&error) {
                    Some(_) => Fault::NotNow(Arc::new(error)),
                    None => reply::fault(error),
                })?;
            }
        }
        Ok(())
    }

    /// Subscribes. Returns the channels that are subscribed now. What is refused is wanted again later.
    async fn subscribe(
        &self,
        connected: &mut Connected,
        mut join: Vec<Channel>,
    ) -> Result<Vec<Channel>, Fault> {
        if let PubSubMode::Plain | PubSubMode::Both(_) = self.server.mode {
            join = self.subscribe_plain(connected, join).await?;
        }
        if join.is_empty() {
            return Ok(join);
        }
        match self.server.mode.slots() {
            Some(slots) => self.subscribe_sharded(connected, join, slots).await,
            None => Ok(join),
        }
    }

    async fn subscribe_plain(
        &self,
        connected: &mut Connected,
        join: Vec<Channel>,
    ) -> Result<Vec<Channel>, Fault> {
        let names: Vec<&str> = join.iter().map(AsRef::as_ref).collect();
        let subscribed = self.bounded(connected.connection.subscribe(names)).await;
        let denial = match subscribed {
            Ok(()) => return Ok(join),
            Err(Fault::NotNow(_)) => {
                for channel in &join {
                    self.refused(channel, REFUSED_PAUSE);
                }
                return Ok(Vec::new());
            }
            Err(fault) if reply::is_denial_of_this(&fault) => fault,
            Err(fault) => return Err(fault),
        };
        if join.len() == 1 || reply::is_about_the_command(&denial) {
            for channel in &join {
                self.denied(channel, &denial);
            }
            return Ok(Vec::new());
        }
        // The server refuses all channels of a command because of one of them.
        let answers = self.each(connected, "SUBSCRIBE", &join).await?;
        let mut joined = Vec::with_capacity(join.len());
        for (channel, answer) in join.into_iter().zip(answers) {
            match answer.map_err(reply::fault) {
                Ok(_) => joined.push(channel),
                Err(Fault::NotNow(_)) => self.refused(&channel, REFUSED_PAUSE),
                Err(fault) if reply::is_denial_of_this(&fault) => self.denied(&channel, &fault),
                Err(fault) => return Err(fault),
            }
        }
        Ok(joined)
    }

    /// A node sends those channels elsewhere whose slot it does not have.
    async fn subscribe_sharded(
        &self,
        connected: &mut Connected,
        join: Vec<Channel>,
        slots: &Arc<dyn Slots>,
    ) -> Result<Vec<Channel>, Fault> {
        let answers = self.each(connected, "SSUBSCRIBE", &join).await?;
        let mut joined = Vec::with_capacity(join.len());
        let mut unjoined = Vec::new();
        let (mut sent_elsewhere, mut redirects) = (Vec::new(), Vec::new());
        for (channel, answer) in join.into_iter().zip(answers) {
            let Err(error) = answer else {
                joined.push(channel);
                continue;
            };
            match reply::elsewhere(&error) {
                Some(elsewhere) => {
                    redirects.push(elsewhere);
                    sent_elsewhere.push(Arc::clone(&channel));
                }
                None => match reply::fault(error) {
                    Fault::NotNow(_) => self.refused(&channel, REFUSED_PAUSE),
                    fault if reply::is_denial_of_this(&fault) => self.denied(&channel, &fault),
                    fault => return Err(fault),
                },
            }
            unjoined.push(channel);
        }
        if !redirects.is_empty() {
            slots.sent_elsewhere(self.server.number, &redirects);
        }
        for channel in &sent_elsewhere {
            // Unless it has moved: the node to which it is sent may not know yet that it has the slot.
            self.refused(channel, RECONNECT_BACKOFF.first);
        }
        // A channel counts as subscribed only if it is in both ways.
        if let (PubSubMode::Both(_), false) = (&self.server.mode, unjoined.is_empty()) {
            let names: Vec<&str> = unjoined.iter().map(AsRef::as_ref).collect();
            self.bounded(connected.connection.unsubscribe(names))
                .await?;
        }
        if !redirects.is_empty() {
            // Two nodes may send a channel to each other until the move of its slot has ended.
            tokio::time::sleep(RECONNECT_BACKOFF.first).await;
        }
        Ok(joined)
    }

    /// The user may not subscribe to this channel. The waiters of other channels need the connection, so it stays.
    fn denied(&self, channel: &Channel, fault: &Fault) {
        self.shared.log_denial(channel, fault);
        self.refused(channel, RECONNECT_BACKOFF.longest);
    }

    /// A channel is not subscribed. Its waiters are notified, and the server is asked again after a pause.
    fn refused(&self, channel: &Channel, pause: Duration) {
        let until = self.shared.clock.now().after(pause);
        let number = self.server.number;
        let notifications = self.shared.channels.lock().refused(number, channel, until);
        notifications.send();
    }

    /// Sends a command for each channel, because the channels of one command must have one slot, and are refused together.
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
            self.shared.log_denial("any channel", fault);
            // The server refused the command, and would refuse it again at once. The waiters are notified before the
            // pause, so that they fall back to their timers.
            let notifications = self.shared.channels.lock().disconnected(self.server.number);
            notifications.send();
            tokio::time::sleep(RECONNECT_BACKOFF.longest).await;
            // After the pause: the link connects at once, and the channels are subscribed again then.
            let _was_current = self.server.link.replace(epoch);
        } else {
            if let Fault::NotNow(_) = fault {
                // The server may refuse the next command as well.
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
            self.server
                .link
                .broken(epoch, &format!("a subscription failed: {}", fault.why()));
        }
    }
}
