//! Looks again, every few seconds, where the names of connected servers lead. A name may be pointed at another server while
//! the old one stays up, and then clients that were started before and after would lock on different servers.
//!
//! One task for all names of a client, so that there is one look-up at a time. One that has not ended after
//! [`LOOK_UP_PATIENCE`] goes on beside the others, and its name is not looked up again before it has ended.

use std::collections::HashSet;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::other_masters::look_for_other_masters;
use super::together::{Member, Together};
use crate::backend::redis::connection::addresses::{
    Address, Endpoint, Next, in_common_order, without_look_up,
};
use crate::backend::redis::connection::connect::{Connector, Expected, probe_at};
use crate::config::LOOK_UP_PATIENCE;
use crate::sync::Mutex;
use crate::sync::Unordered;
use crate::sync::on_demand::{OnDemandTask, RunningTask};
use crate::sync::random::random_range;
use crate::sync::task::boxed;
use crate::telemetry;

/// A look at a name, which is under way.
pub(crate) type Look<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What has a name, or several that lead to the same servers.
pub(crate) trait Named: Send + Sync {
    /// Looks where they lead, and goes there if that is elsewhere now.
    fn look<'a>(&'a self, connector: &'a Connector) -> Look<'a>;
}

/// The names that are looked up at intervals.
pub(crate) struct NameWatch {
    /// How the servers are connected to.
    connector: Arc<Connector>,
    /// Zero if no name is looked up again.
    interval: Duration,
    watched: Mutex<Vec<Weak<dyn Named>>>,
    task: OnDemandTask,
    /// Dropped with the client. Ends the task.
    lives: watch::Sender<()>,
}

impl NameWatch {
    pub(crate) fn new(connector: &Arc<Connector>, interval: Duration) -> Arc<Self> {
        Arc::new(Self {
            connector: Arc::clone(connector),
            interval,
            watched: Mutex::default(),
            task: OnDemandTask::default(),
            lives: watch::Sender::new(()),
        })
    }

    /// A connection to this server was made: its name is looked up again from now on, if it has one.
    pub(crate) fn watch(self: &Arc<Self>, server: &Arc<Together>, endpoint: &Endpoint) {
        if is_name(endpoint.reached()) {
            let server = Arc::downgrade(server);
            self.watch_names(server);
        }
    }

    /// A connection for commands was made to this server. If its name stands for several addresses, the others are looked at.
    pub(crate) fn look_for_other_masters(&self, server: &Arc<Together>, present: &Endpoint) {
        let addresses = self.connector.last_addresses(present.reached());
        if addresses.len() < 2 || !is_name(present.reached()) {
            return;
        }
        let connector = Arc::clone(&self.connector);
        // For a task: the caller has a connection to hand out, and the look asks other servers.
        let (server, present) = (Arc::clone(server), present.clone());
        let mut lives = self.lives.subscribe();
        drop(tokio::spawn(boxed(async move {
            tokio::select! {
                () = look_for_other_masters(&connector, &server, &present, &addresses) => {}
                // The sender lives as long as the client, and sends nothing: only its drop completes this.
                _gone = lives.changed() => {}
            }
        })));
    }

    /// These names are looked up again from now on.
    pub(crate) fn watch_names(self: &Arc<Self>, names: Weak<dyn Named>) {
        if self.interval.is_zero() {
            return;
        }
        let mut watched = self.watched.lock();
        watched.retain(|other| other.strong_count() > 0);
        if !watched.iter().any(|other| Weak::ptr_eq(other, &names)) {
            watched.push(names);
        }
        // Not held while the task starts: it locks the list itself.
        drop(watched);
        if let Some(running) = self.task.begin() {
            let this = Arc::downgrade(self);
            let lives = self.lives.subscribe();
            let looking = look_again_and_again(this, self.interval, lives, running);
            drop(tokio::spawn(boxed(looking)));
        }
    }

    fn watched(&self) -> Vec<Weak<dyn Named>> {
        self.watched.lock().clone()
    }
}

/// Whether an address has a name that may lead elsewhere later.
fn is_name(address: &Address) -> bool {
    match address {
        Address::Tcp { host, port } => without_look_up(host, *port).is_none(),
        Address::Unix(_) => false,
    }
}

/// Looks all names up, one after the other, until the client is gone.
async fn look_again_and_again(
    this: Weak<NameWatch>,
    interval: Duration,
    mut lives: watch::Receiver<()>,
    _running: RunningTask,
) {
    let mut looks = Looks::default();
    loop {
        // Jitter: many clients that were started together do not ask together.
        let pause = interval.mul_f64(random_range(0.8..1.0));
        tokio::select! {
            () = looks.go_on_during(sleep(pause)) => {}
            _gone = lives.changed() => return,
        }
        let Some((connector, watched)) = this
            .upgrade()
            // Copied, so that the looks keep neither the client alive nor the list locked.
            .map(|this| (Arc::clone(&this.connector), this.watched()))
        else {
            return;
        };
        for names in watched.iter().filter_map(Weak::upgrade) {
            tokio::select! {
                () = looks.begin(Arc::clone(&connector), names) => {}
                _gone = lives.changed() => return,
            }
        }
    }
}

/// The looks that are under way. Usually that is one.
#[derive(Default)]
struct Looks {
    /// What is looked at, by its address in memory, which stays as long as the look.
    under_way: HashSet<usize>,
    looks: Unordered<'static, usize>,
}

impl Looks {
    /// Begins a look, unless the last one at the same names has not ended. Waits for its end, but only for a while.
    async fn begin(&mut self, connector: Arc<Connector>, names: Arc<dyn Named>) {
        let number = Arc::as_ptr(&names).addr();
        // Its last look still runs, as when a name server does not answer. Another one would wait for the same answer.
        if !self.under_way.insert(number) {
            return;
        }
        self.looks.push(async move {
            names.look(&connector).await;
            number
        });
        let mut patience = pin!(sleep(LOOK_UP_PATIENCE));
        while self.under_way.contains(&number) {
            tokio::select! {
                Some(ended) = self.looks.next() => { let _was_there = self.under_way.remove(&ended); }
                () = &mut patience => return,
            }
        }
    }

    /// Continues those that are under way, for this time.
    async fn go_on_during(&mut self, pause: impl Future<Output = ()>) {
        let mut pause = pin!(pause);
        loop {
            tokio::select! {
                Some(ended) = self.looks.next() => { let _was_there = self.under_way.remove(&ended); }
                () = &mut pause => return,
            }
        }
    }
}

/// The connections to one server.
impl Named for Together {
    fn look<'a>(&'a self, connector: &'a Connector) -> Look<'a> {
        Box::pin(look_again(connector, self))
    }
}

/// Looks at the name of one server, and leaves that server if the name leads elsewhere.
async fn look_again(connector: &Connector, server: &Together) {
    // Without a connection, the next try looks the name up.
    let connected = |leader: Arc<dyn Member>| leader.endpoint().filter(|_| leader.is_up());
    let Some(present) = server.leader().and_then(connected) else {
        return;
    };
    let Address::Tcp { host, port } = present.reached() else {
        return;
    };
    let answer = match connector.resolver().look_up(host, *port).await {
        Ok(answer) => answer,
        Err(fault) => return telemetry::name_not_found(host, &fault.why()),
    };
    let next = {
        let mut destination = server.destination.lock();
        // It was replaced meanwhile, after a look-up of its own.
        if destination.at() != Some(&present) {
            return;
        }
        destination.answered(&answer, Instant::now())
    };
    match next {
        // Not of an answer without the present address: the name may be about to move.
        Next::Stay if is_single(server) && present.at.is_some_and(|at| answer.contains(&at)) => {
            look_for_other_masters(connector, server, &present, &answer).await;
        }
        Next::Stay | Next::Rotates { is_new: false } => {}
        Next::Rotates { is_new: true } => telemetry::name_rotates(&present),
        Next::Leave => {
            let new = answer.into_iter().map(|at| Endpoint {
                at: Some(at),
                ..present.clone()
            });
            let new = in_common_order(new.collect());
            if let Some(new) = first_that_answers(connector, server, new).await {
                telemetry::name_moved(&present, &new);
                server.move_to(new);
            }
        }
    }
}

/// The first of these addresses with a server that is what the present one has to be.
async fn first_that_answers(
    connector: &Connector,
    server: &Together,
    new: Vec<Endpoint>,
) -> Option<Endpoint> {
    let expected = server.leader()?.expected();
    let patience = connector.timeout() / 2;
    for endpoint in new {
        let probed = probe_at(connector, endpoint.clone(), expected, patience);
        match tokio::time::timeout(patience, probed).await {
            Ok(Ok(())) => return Some(endpoint),
            Ok(Err(fault)) => telemetry::name_leads_nowhere(&endpoint, &fault.why()),
            Err(_) => telemetry::name_leads_nowhere(&endpoint, &"no answer"),
        }
    }
    None
}

/// Whether it is a single server. The names of Sentinels may stand for several.
fn is_single(server: &Together) -> bool {
    let leader = server.leader();
    leader.is_some_and(|leader| leader.expected() == Expected::Server)
}
