//! The task that connects a link, and what watches over the connection that it has made.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use redis::PushKind;
use scopeguard::{defer, guard};
use tokio::time::Instant;

use super::opening::For;
use super::relogin::keep_logged_in;
use super::{Connected, Link, OnPush, is_current};
use crate::backend::Fault;
use crate::backend::redis::connection::addresses::Endpoint;
use crate::backend::redis::connection::connect::ReconnectPause;
use crate::sync::foreign;
use crate::sync::task::boxed;
use crate::telemetry;

impl Link {
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
                // This is the first time that a connection is asked for. The time before is no outage.
                *self.down_since.lock() = Instant::now();
            }
            // Nobody waits for the beginning.
            false
        });
        if is_needed {
            let connecting = Connecting(Arc::downgrade(self));
            // Detached: the task ends when there is a connection, or no link. The drop of `connecting` tells the link.
            drop(runtime.spawn(boxed(connect_until_established(
                Arc::downgrade(self),
                connecting,
            ))));
        }
    }

    /// Tries to connect once.
    async fn connect_once(self: &Arc<Self>) -> Result<(Connected, Endpoint), Fault> {
        let link = Arc::downgrade(self);
        let on_push = Arc::clone(&self.config.on_push);
        // Weak: the link owns the connection, which owns this function.
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
            elsewhere: &self.elsewhere,
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
                // would never be that of an answer. Release: pairs with the loads in `epoch` and `replaced`.
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
            // The last one is written first. Each is done also if one before it panics: these call wakers and the log.
            defer! { self.settled.announce(); }
            defer! { self.config.outages.established(self.config.what); }
            defer! { telemetry::connected(self.config.what, epoch); }
            self.tend(epoch);
            self.config.epochs.changed();
        }
    }

    /// Called when a connection is handed out, which leads to this endpoint: of a change after this, `leave` tells the link.
    fn check_where_it_leads(self: &Arc<Self>, endpoint: &Endpoint) {
        let config = &self.config;
        let is_with_others = config.together.connected(&**self, endpoint);
        config.watch_name(endpoint);
        if !is_with_others || !config.server.is_current(&endpoint.address) {
            self.leave();
        }
    }

    /// Keeps the connection with this number logged in and asks for signs of life over it, in a task that ends with it.
    fn tend(self: &Arc<Self>, epoch: u64) {
        // Reports the loss of the connection when its runtime ends. The driver does not, so a task in the same runtime holds this.
        let runtime_ends = guard(Arc::downgrade(self), move |link| {
            if let Some(link) = link.upgrade() {
                // If another connection has replaced it meanwhile, the link needs nothing.
                let _was_current = link.replace(epoch);
            }
        });
        let mut phase = self.phase.subscribe();
        let connector = Arc::clone(&self.config.connector);
        let what = self.config.what;
        let server = self.config.outages.server().to_owned();
        let link = Arc::downgrade(self);
        let pings = self.config.pings;
        drop(tokio::spawn(boxed(async move {
            // Moved in here, so that it is dropped with the task: when the connection has ended, or the runtime.
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
        })));
    }
}

/// Tries to connect, with growing pauses, until a connection is established or the link is dropped. The pauses go on growing from one
/// connection to the next, as long as the server ends them before they are of use.
async fn connect_until_established(link: Weak<Link>, connecting: Connecting) {
    // Relaxed: it changes before the task begins.
    let before = |link: Arc<Link>| {
        let useless = link.useless.load(Ordering::Relaxed);
        let pause = ReconnectPause::after(useless, link.config.longest_pause);
        let outages = Arc::clone(&link.config.outages);
        let (wanted, no_pause) = (Arc::clone(&link.wanted), Arc::clone(&link.no_pause));
        (useless, pause, outages, wanted, no_pause)
    };
    let Some((useless, mut pause, outages, wanted, no_pause)) = link.upgrade().map(before) else {
        return;
    };
    if useless > 0 {
        // A server that ends each connection at its first command would be connected to in a loop.
        pause.sleep(false, &wanted).await;
    }
    loop {
        let Some(link) = link.upgrade() else {
            // The client was dropped in an outage, which nobody sees the end of.
            outages.forget();
            return;
        };
        // Before the try: a server that is back in its last moment is not waited for.
        let no_pause = no_pause.next();
        let mut unneeded = link.is_unneeded.subscribe();
        let connected = tokio::select! {
            connected = link.connect_once() => connected,
            _ = unneeded.wait_for(|is_unneeded| *is_unneeded) => {
                outages.forget();
                return;
            }
        };
        let was_refused = match connected {
            Ok((connected, endpoint)) => {
                // Also if a waker or the log panics.
                defer! { link.check_where_it_leads(&endpoint); }
                link.established(connected, &endpoint, connecting);
                return;
            }
            Err(fault) => {
                // A waker and the log may panic, and nobody else connects until somebody asks for a connection.
                foreign::contain(|| {
                    defer! { link.note_failed(&fault); }
                    telemetry::connect_failed(link.config.what, &fault.why(), pause.next());
                });
                fault.is_refusal()
            }
        };
        // Not held during the pause, so that the link can be dropped.
        drop(link);
        tokio::select! {
            () = pause.sleep(was_refused, &wanted) => {}
            () = no_pause => pause.begin_again(),
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
