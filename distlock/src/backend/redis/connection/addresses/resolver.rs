//! The addresses that names stand for.
//!
//! # Invariants
//! 1. Of each name there is at most one look-up at a time. All who ask for the name meanwhile get its answer.
//! 2. The addresses of a good answer are kept. They are used when a later look-up fails, finds nothing, or takes long.
//! 3. An IP address and `localhost` are not looked up. They need no thread and no server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::backend::{Fault, cause};
use crate::config::look_up::LookUp;
use crate::config::{LOOK_UP_PATIENCE, MOST_NAMES_KEPT};
use crate::sync::task::boxed;
use crate::sync::{Mutex, foreign};
use crate::telemetry;

/// Looks up the names of the servers of one client.
#[derive(Debug)]
pub(crate) struct Resolver {
    look_up: LookUp,
    names: Mutex<HashMap<(Arc<str>, u16), Name>>,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Name {
    /// The addresses of the last good answer.
    last: Vec<SocketAddr>,
    pending: Option<Pending>,
}

/// A look-up. Its sender is gone once it has ended, or its runtime has.
type Pending = watch::Receiver<Option<Answer>>;

type Answer = Result<Vec<SocketAddr>, Fault>;

impl Resolver {
    pub(crate) fn new(look_up: LookUp) -> Arc<Self> {
        Arc::new(Self {
            look_up,
            names: Mutex::default(),
        })
    }

    /// The addresses of a host: those that it has now, or the last ones that are known if that does not become clear soon.
    /// Without such ones this waits for the look-up.
    pub(crate) async fn addresses(self: &Arc<Self>, host: &str, port: u16) -> Answer {
        if let Some(addresses) = without_look_up(host, port) {
            return Ok(addresses);
        }
        let last = self.last(host, port);
        if last.is_empty() {
            return self.look_up(host, port).await;
        }
        match timeout(LOOK_UP_PATIENCE, self.look_up(host, port)).await {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(fault)) => telemetry::looked_up_before(host, &fault.why()),
            Err(_) => telemetry::looked_up_before(host, &"the look-up has not finished"),
        }
        Ok(last)
    }

    /// Looks a name up, or waits for the look-up that is under way. An answer without an address is an error.
    pub(crate) async fn look_up(self: &Arc<Self>, host: &str, port: u16) -> Answer {
        let mut pending = self.pending(host, port);
        let answer = pending.wait_for(Option::is_some).await;
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| Err(not_found(host, &"the look-up has ended with its runtime")))
    }

    /// The addresses of the last good answer.
    pub(crate) fn last(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        let names = self.names.lock();
        let name = names.get(&(Arc::from(host), port));
        name.map(|name| name.last.clone()).unwrap_or_default()
    }

    /// The look-up of a name that is under way. It is begun if there is none.
    fn pending(self: &Arc<Self>, host: &str, port: u16) -> Pending {
        let host: Arc<str> = host.into();
        let mut names = self.names.lock();
        if names.len() >= MOST_NAMES_KEPT && !names.contains_key(&(Arc::clone(&host), port)) {
            names.retain(|_, name| name.is_looked_up());
        }
        let name = names.entry((Arc::clone(&host), port)).or_default();
        if let Some(pending) = name.pending.as_ref().filter(|_| name.is_looked_up()) {
            return pending.clone();
        }
        let (answered, pending) = watch::channel(None);
        name.pending = Some(pending.clone());
        // The look-up may be a function of the user's, which never runs under a mutex.
        drop(names);
        let asked = self.look_up.ask(Arc::clone(&host), port);
        let this = Arc::downgrade(self);
        // A task, so that the look-up continues when its caller gives up. The next caller waits for the same look-up.
        drop(tokio::spawn(boxed(async move {
            let answer = match asked.await {
                Ok(addresses) if addresses.is_empty() => {
                    Err(not_found(&host, &"the answer has no address"))
                }
                Ok(addresses) => Ok(addresses),
                Err(error) => Err(not_found(&host, &error)),
            };
            if let Some(this) = this.upgrade() {
                this.answered(&host, port, &answer);
            }
            foreign::send_modify(&answered, |value| *value = Some(answer));
        })));
        pending
    }

    fn answered(&self, host: &Arc<str>, port: u16, answer: &Answer) {
        let mut names = self.names.lock();
        if let Some(name) = names.get_mut(&(Arc::clone(host), port)) {
            name.pending = None;
            if let Ok(addresses) = answer {
                name.last.clone_from(addresses);
            }
        }
    }
}

impl Name {
    fn is_looked_up(&self) -> bool {
        // An error says that the sender is gone.
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.has_changed().is_ok())
    }
}

/// The addresses of a host that needs no look-up.
pub(crate) fn without_look_up(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(ip, port)]);
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let addresses = || loopback.map(|ip| SocketAddr::new(ip, port)).to_vec();
    name.eq_ignore_ascii_case("localhost").then(addresses)
}

fn not_found(host: &str, why: &dyn std::fmt::Display) -> Fault {
    Fault::NotNow(cause(format!(
        "the address of the host `{host}` was not found: {why}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_and_localhost_need_no_look_up() {
        for (host, expected) in [
            ("127.0.0.1", "[127.0.0.1:7]"),
            ("::1", "[[::1]:7]"),
            ("localhost", "[127.0.0.1:7, [::1]:7]"),
            ("LocalHost.", "[127.0.0.1:7, [::1]:7]"),
        ] {
            let addresses = without_look_up(host, 7).map(|found| format!("{found:?}"));
            assert_eq!(addresses.as_deref(), Some(expected), "{host}");
        }
        for host in [
            "redis",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "",
        ] {
            assert_eq!(without_look_up(host, 7), None, "{host}");
        }
    }
}
