//! The subscriptions of one client: for each server one connection for all channels there, which a
//! [task](super::task) serves.
//!
//! Messages arrive in the driver's callback, which [delivers](super::deliver) them.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::PushInfo;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::channels::{Channel, Channels, ServerNumber};
use super::checks::Checks;
use super::mode::PubSubMode;
use super::shared::{ServerSubscriptions, Shared};
use super::task::Task;
use crate::backend::Subscription;
use crate::backend::redis::connection::{Link, LinkConfig, OnPush};
use crate::clock::Clock;
use crate::config::SUBSCRIPTION_LINGER;
use crate::sync::on_demand::OnDemandTask;
use crate::sync::task::boxed;
use crate::sync::{Mutex, RwLock, foreign};

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

    /// The subscriptions at a server, over a separate connection. `config` gets the function that is called with the
    /// messages.
    pub(crate) fn at(
        &self,
        number: ServerNumber,
        mode: PubSubMode,
        config: impl FnOnce(OnPush) -> LinkConfig,
    ) -> Subscriber {
        let server = Arc::new_cyclic(|server: &Weak<ServerSubscriptions>| {
            let receiver = Arc::clone(&self.shared);
            // Weak: the function belongs to the connection, which is a field of the server.
            let server = Weak::clone(server);
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
            // Each message is published in both ways, and the script adds up what both have reached.
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
        // Detached: the task ends with its subscriber, and notes its end by the drop of `running`.
        drop(runtime.spawn(boxed(task.run())));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut servers = self.shared.servers.write();
        servers.remove(&self.server.number);
        // Before the wake-up: foreign code never runs under this lock.
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
        let number = self.shared.channels.lock().leave(&self.channel, now);
        let server = number.and_then(|number| self.shared.servers.read().get(&number).cloned());
        if let Some(server) = server {
            foreign::notify_own_task(&server.wake);
        }
    }
}
