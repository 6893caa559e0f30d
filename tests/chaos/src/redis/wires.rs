//! The wire between the clients and the servers: a proxy in front of each server, and the connections that were silenced.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;

use super::wire_fault::WireFault;
use distlock_tests::proxy::{self, Flow, Proxy, Role, Select, Way, Which};

/// The proxies between the clients and the servers. All clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Wires(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    proxies: Vec<Arc<Proxy>>,
    silenced: Vec<Silenced>,
}

/// A connection that carries nothing until the run ends.
#[derive(Debug)]
struct Silenced {
    proxy: Arc<Proxy>,
    connection: u64,
    stall: proxy::Fault,
}

impl Silenced {
    fn new(proxy: &Arc<Proxy>, connection: u64) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            connection,
            stall: proxy.flow(Select::one(connection), Way::Both, Flow::Stall),
        }
    }
}

impl Wires {
    /// Adds the proxy of a server that the clients may connect to.
    pub(super) fn add(&self, proxy: &Arc<Proxy>) {
        self.inner(|inner| inner.proxies.push(Arc::clone(proxy)));
    }

    /// Injects a fault at one server. Returns whether it met anything. The `number` chooses one of those that clients send
    /// commands to.
    pub(super) async fn inject(&self, fault: &WireFault, length: Duration, number: u128) -> bool {
        on_wire(&self.choose(number), fault, length).await
    }

    /// Ends the connections that were silenced. What they have not carried is lost: clients believe that it arrives no more.
    pub(super) fn end_silence(&self) {
        for silenced in self.inner(|inner| std::mem::take(&mut inner.silenced)) {
            let _is_open = silenced.proxy.cut(Select::one(silenced.connection));
            silenced.stall.lift();
        }
    }

    fn choose(&self, number: u128) -> Arc<Proxy> {
        let proxies = self.inner(|inner| inner.proxies.clone());
        let serves = |proxy: &&Arc<Proxy>| {
            let connections = proxy.connections();
            connections.iter().any(|info| info.role == Role::Commands)
        };
        let serving: Vec<_> = proxies.iter().filter(serves).collect();
        let chosen = match serving.len() {
            0 => &proxies[0],
            many => serving[(number % many as u128) as usize],
        };
        Arc::clone(chosen)
    }

    /// Silences the connections of this role at one server, until the run ends. The `number` chooses the server as in
    /// [`inject`](Wires::inject). Returns whether a message was to go over one of them `within` this time.
    pub(super) async fn silence(&self, role: Role, within: Duration, number: u128) -> bool {
        let proxy = self.choose(number);
        let open = proxy.connections().into_iter();
        let silenced = open.filter(|info| info.role == role);
        let silenced: Vec<_> = silenced
            .map(|info| Silenced::new(&proxy, info.id))
            .collect();
        sleep(within).await;
        let hit = silenced.iter().any(|silenced| silenced.stall.hits() > 0);
        self.inner(|inner| inner.silenced.extend(silenced));
        hit
    }

    fn inner<T>(&self, then: impl FnOnce(&mut Inner) -> T) -> T {
        then(&mut self.0.lock().expect("nobody panicked"))
    }
}

/// Injects a fault of the wire. Returns whether it met anything.
async fn on_wire(proxy: &Proxy, fault: &WireFault, length: Duration) -> bool {
    let lasting = async |fault: proxy::Fault| {
        sleep(length).await;
        fault.lift();
        fault.hits() > 0
    };
    match fault {
        WireFault::Flow(select, way, flow) => {
            if *select == Select::NEW {
                // Otherwise there would be no new connection.
                let _open = proxy.cut(Select::SUBSCRIBERS);
            }
            lasting(proxy.flow(*select, *way, *flow)).await
        }
        WireFault::Cut(select) => proxy.cut(*select) > 0,
        WireFault::CutAfter(way, bytes) => {
            lasting(proxy.cut_after(Select::ALL, *way, *bytes)).await
        }
        WireFault::Close(way) => proxy.fin(Select::ALL, *way) > 0,
        WireFault::Refuse => {
            let fault = proxy.refuse();
            let _open = proxy.cut(Select::ALL);
            lasting(fault).await
        }
        WireFault::EatReply => lasting(proxy.eat_reply(Select::COMMANDS, Which::NEXT)).await,
        _ => {
            let held = proxy.hold(Select::COMMANDS, Which::NEXT);
            sleep(length).await;
            match held.try_caught() {
                Ok(caught) => drop(caught.deliver().await),
                Err(_trap) => return false,
            }
            true
        }
    }
}
