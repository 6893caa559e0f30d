//! The master of a service, as its Sentinels name it.
//!
//! # Invariants
//! 1. All Sentinels are asked at once. The first server that one of them names, and that says itself that it is a master,
//!    counts, unless most of those that have answered by then name others. If the client has a master already, most of the Sentinels have to name another one. See [`master_name`] for a server that
//!    was left.
//! 2. Who hears of another master leaves the present one in that moment. What is answered over the old connection after that
//!    has an unknown outcome. Sentinels that have not heard of it yet bring nobody back.
//! 3. Sentinels report another master by a message. Each is also asked now and then, because messages can be missed.
//! 4. Sentinels name each other. See [`known`] for one that is gone.
//! 5. A vote is that of the Sentinel that was reached, and not of the name by which it was reached.

mod failures;
mod known;
mod listen;
mod master_name;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushInfo, cmd};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::failures::{Failures, within};
use self::known::KnownSentinels;
use self::master_name::{Claim, MasterName};
use crate::backend::redis::connection::{
    Address, Connected, ConnectedGauge, Connector, Expected, Link, LinkConfig, Locate, Located,
    NameWatch, OutageLog, Pings, Together, join, probe,
};
use crate::backend::redis::reply;
use crate::backend::redis::servers::announced::address;
use crate::backend::{Fault, cause};
use crate::config::{Config, RECONNECT_BACKOFF};
use crate::error::show;
use crate::sync::Unordered;
use crate::sync::on_demand::OnDemandTask;
use crate::sync::{Mutex, foreign};
use crate::telemetry;

pub(super) struct Sentinels {
    /// What the Sentinels call the servers.
    service: String,
    to_sentinels: Arc<Connector>,
    names: Arc<NameWatch>,
    to_servers: Arc<Connector>,
    response_timeout: Duration,
    known: Mutex<KnownSentinels<Arc<Sentinel>>>,
    /// Shows whether all Sentinels are in an outage.
    gauge: Arc<ConnectedGauge>,
    named: Mutex<MasterName>,
    /// Changes when a Sentinel names another master. A search for the master then asks all Sentinels again.
    switched: watch::Sender<()>,
    /// The connections to the master.
    followers: Mutex<Vec<Weak<Link>>>,
    /// Its sender is dropped with the client.
    client: watch::Receiver<()>,
    this: Weak<Self>,
}

struct Sentinel {
    address: Address,
    link: Arc<Link>,
    /// Where the last connection to it has led.
    at: Mutex<Option<SocketAddr>>,
    outages: Arc<OutageLog>,
    listener: OnDemandTask,
    /// Whether the client has forgotten it. Ends the task.
    is_forgotten: watch::Sender<bool>,
}

/// Locates the master for connections for messages: they follow those for commands.
pub(super) struct Following(Arc<Sentinels>);

/// What one step of the search for the master has found.
enum Found {
    /// The Sentinel does not know the service.
    NoService,
    /// The Sentinel names this server.
    Named(Address),
    /// This server says that it is a master.
    Master(Address),
    Failed(Fault),
}

impl Sentinels {
    /// The Sentinels at these addresses. What listens to them ends when the sender of `client` is dropped.
    pub(super) fn new(
        service: String,
        addresses: Vec<Address>,
        to_sentinels: Connector,
        to_servers: Arc<Connector>,
        client: watch::Receiver<()>,
        config: &Config,
    ) -> Arc<Self> {
        let to_sentinels = Arc::new(to_sentinels);
        let names = NameWatch::new(&to_sentinels, config.look_up_interval);
        let gauge = ConnectedGauge::of_any(format!("Sentinels of `{service}`"));
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            service,
            known: Mutex::new(KnownSentinels::new(addresses, |address| {
                let connector = Arc::clone(&to_sentinels);
                let names = Arc::clone(&names);
                Sentinel::new(
                    address,
                    connector,
                    names,
                    Arc::clone(&gauge),
                    Weak::clone(this),
                )
            })),
            gauge: Arc::clone(&gauge),
            to_sentinels,
            names,
            to_servers,
            response_timeout: config.response_timeout,
            named: Mutex::default(),
            switched: watch::Sender::new(()),
            followers: Mutex::default(),
            client,
            this: Weak::clone(this),
        })
    }

    /// Connections to the master that are left when another server is the master.
    pub(super) fn follow(&self, links: impl IntoIterator<Item = Weak<Link>>) {
        self.followers.lock().extend(links);
    }

    /// Locates the master for connections for messages.
    pub(super) fn following(self: &Arc<Self>) -> Following {
        Following(Arc::clone(self))
    }

    /// A Sentinel has named the others: listens to those that are new, and forgets those that are gone.
    fn learn(&self, by: &Address, others: Vec<Address>) {
        let forgotten = self.known.lock().named(by, others, |address| {
            let connector = Arc::clone(&self.to_sentinels);
            let names = Arc::clone(&self.names);
            let gauge = Arc::clone(&self.gauge);
            Sentinel::new(address, connector, names, gauge, Weak::clone(&self.this))
        });
        self.forget(forgotten);
        self.listen();
    }

    /// A Sentinel was connected to. If its name leads elsewhere by now, it may be one of another set, and those that were learned
    /// may name the former one. One that the former one has named is of the same set.
    fn connected_to(&self, sentinel: &Sentinel) {
        let now = sentinel.link.reached_at();
        let before = std::mem::replace(&mut *sentinel.at.lock(), now);
        if before.is_none() || before == now {
            return;
        }
        let forgotten = {
            let mut known = self.known.lock();
            let mut named = known.named_by(&sentinel.address);
            if named.any(|other| *other.at.lock() == now) {
                return;
            }
            drop(named);
            known.forget_learned()
        };
        for sentinel in forgotten {
            self.end_listener(&sentinel);
            let now = Instant::now();
            self.named.lock().stop_asking(&sentinel.address, now);
        }
    }

    /// Forgets Sentinels that do not answer for the service and that nobody names.
    fn forget(&self, forgotten: Vec<Arc<Sentinel>>) {
        for sentinel in forgotten {
            self.end_listener(&sentinel);
            self.named.lock().forget(&sentinel.address);
        }
    }

    /// A Sentinel is not known any more. What it names is not noted from now on, so it is removed after that.
    fn end_listener(&self, sentinel: &Sentinel) {
        sentinel.outages.forget();
        telemetry::sentinel_forgotten(&sentinel.address, &self.service);
        foreign::send_modify(&sentinel.is_forgotten, |value| *value = true);
    }

    /// The address of the master.
    async fn find(&self) -> Result<Address, Fault> {
        // The listeners may have ended with their runtime.
        self.listen();
        let mut switched = self.switched.subscribe();
        let sentinels: Vec<_> = self.known.lock().all().cloned().collect();
        let mut asked: Unordered<'_, _> = sentinels
            .iter()
            .map(|sentinel| self.ask(sentinel))
            .collect();
        let mut probed = Unordered::default();
        let mut candidates = HashSet::new();
        let mut failures = Failures::default();
        loop {
            let found = tokio::select! {
                Some(found) = asked.next() => found,
                Some(found) = probed.next() => found,
                // The server that was named before may never answer.
                Ok(()) = switched.changed(), if !(asked.is_empty() && probed.is_empty()) => {
                    asked.extend(sentinels.iter().map(|sentinel| self.ask(sentinel)));
                    // What they said of themselves before counts no more.
                    candidates.clear();
                    continue;
                }
                else => return Err(failures.fault(&self.service)),
            };
            match found {
                Found::Named(server) => {
                    let may_be_master = self.named.lock().may_be_master(&server, Instant::now());
                    // Several Sentinels name the same server, which is asked once.
                    if may_be_master && candidates.insert(server.clone()) {
                        probed.push(self.probe(server));
                    }
                }
                Found::Master(server) => {
                    let claim = self.named.lock().found(&server, Instant::now());
                    if let Claim::Accepted { left } = claim {
                        if let Some(left) = left {
                            self.leave(&left, &server);
                        }
                        return Ok(server);
                    }
                }
                Found::NoService => failures.without_service += 1,
                Found::Failed(fault) => failures.faults.push(fault),
            }
        }
    }

    /// Asks a Sentinel for the master.
    async fn ask(&self, sentinel: &Sentinel) -> Found {
        // Before the time of the connection that waits for this is over, so that it can say why.
        let patience = self.to_sentinels.timeout() / 2;
        let asked = async {
            let mut connected = sentinel.link.connected(patience).await?;
            self.ask_over(sentinel, &mut connected).await
        };
        match asked.await {
            Ok(Some(server)) => Found::Named(server),
            Ok(None) => Found::NoService,
            Err(fault) => Found::Failed(within(&format!("Sentinel {}", sentinel.address), fault)),
        }
    }

    async fn ask_over(
        &self,
        sentinel: &Sentinel,
        connected: &mut Connected,
    ) -> Result<Option<Address>, Fault> {
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let messages = self.named.lock().messages(&sentinel.address);
        let answer = question.query_async::<Option<(String, u16)>>(&mut connected.connection);
        let server = match timeout(self.response_timeout, answer).await {
            Ok(Ok(server)) => {
                sentinel.link.answered(connected.epoch);
                server
                    .map(|(host, port)| named_server(&host, port))
                    .transpose()?
            }
            Ok(Err(error)) => return Err(reply::fault(error)),
            Err(_) => {
                sentinel.link.timed_out(connected.epoch);
                let text = format!("no answer within {}", show(self.response_timeout));
                return Err(Fault::NotNow(cause(text)));
            }
        };
        let mut named = self.named.lock();
        match &server {
            // What a Sentinel said last does not count once it is forgotten. What it has named is removed under the same lock
            // after that.
            Some(_) if *sentinel.is_forgotten.borrow() => {}
            // This name may have led to another Sentinel meanwhile, whose word it is not.
            _ if sentinel.link.epoch() != connected.epoch => {}
            Some(server) => {
                named.reached(&sentinel.address, sentinel.link.reached_at());
                named.answered(&sentinel.address, server, messages, Instant::now());
            }
            // It watches the service no more.
            None => named.forget(&sentinel.address),
        }
        drop(named);
        Ok(server)
    }

    /// Asks a server whether it is a master.
    async fn probe(&self, server: Address) -> Found {
        match probe(&self.to_servers, &server, Expected::Master).await {
            Ok(()) => Found::Master(server),
            Err(fault) => Found::Failed(within(&format!("server {server}"), fault)),
        }
    }

    /// Another server is the master, `instead_of` this one: leaves the present one.
    fn switch_to(&self, server: &Address, instead_of: Option<&Address>) {
        let now = Instant::now();
        let left = self.named.lock().switch_to(server, instead_of, now);
        foreign::send_modify(&self.switched, |()| ());
        if let Some(left) = left {
            self.leave(&left, server);
        }
    }

    /// Leaves the connections to the former master.
    fn leave(&self, former: &Address, master: &Address) {
        telemetry::master_switched(&self.service, former, master);
        // After the change: a connection that was just made to the old one finds that it is not the master.
        let links: Vec<_> = {
            let mut followers = self.followers.lock();
            followers.retain(|link| link.strong_count() > 0);
            followers.iter().filter_map(Weak::upgrade).collect()
        };
        for link in links {
            link.leave();
        }
    }
}

impl Sentinel {
    fn new(
        address: &Address,
        connector: Arc<Connector>,
        names: Arc<NameWatch>,
        gauge: Arc<ConnectedGauge>,
        all: Weak<Sentinels>,
    ) -> Arc<Self> {
        let teller = address.clone();
        let is_forgotten = watch::Sender::new(false);
        let forgotten = is_forgotten.subscribe();
        let together = Arc::new(Together::default());
        let name = format!("Sentinel {address}");
        let outages = Arc::new(OutageLog::new(name, gauge, Arc::default()));
        let link = Link::new(LinkConfig {
            what: "Sentinel",
            server: Arc::new(address.clone()),
            together: Arc::clone(&together),
            connector,
            names,
            expected: Expected::Sentinel,
            nodelay: true,
            // It is asked more often than that.
            pings: Pings {
                every: Duration::ZERO,
                patience: Duration::ZERO,
            },
            longest_pause: RECONNECT_BACKOFF.longest,
            outages: Arc::clone(&outages),
            epochs: Arc::default(),
            restart_grace: Duration::ZERO,
            check: None,
            on_push: Arc::new(move |_, push: PushInfo| {
                if let Some(sentinels) = all.upgrade() {
                    sentinels.heard(&teller, &forgotten, &push);
                }
            }),
        });
        join(&together, [&link]);
        Arc::new(Self {
            address: address.clone(),
            link,
            at: Mutex::default(),
            outages,
            listener: OnDemandTask::default(),
            is_forgotten,
        })
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.link.end();
    }
}

impl Locate for Sentinels {
    fn locate(&self) -> Located<'_> {
        Box::pin(self.find())
    }

    fn is_current(&self, server: &Address) -> bool {
        self.named.lock().master() == Some(server)
    }

    fn name(&self) -> String {
        format!("the master of `{}`", self.service)
    }
}

impl Locate for Following {
    fn locate(&self) -> Located<'_> {
        let master = self.0.named.lock().master().cloned();
        match master {
            Some(master) => Box::pin(async { Ok(master) }),
            None => self.0.locate(),
        }
    }

    fn is_current(&self, server: &Address) -> bool {
        self.0.is_current(server)
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

fn named_server(host: &str, port: u16) -> Result<Address, Fault> {
    let nowhere = || Fault::NotNow(cause(format!("names no server: {host:?}, port {port}")));
    address(host, port).ok_or_else(nowhere)
}
