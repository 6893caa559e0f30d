//! Where a single try to connect leads. A name may stand for several addresses, which are tried one after the other.

use std::fmt;
use std::net::SocketAddr;

use tokio::time::sleep;

use super::address::Address;
use crate::backend::{Fault, cause};
use crate::config::NEXT_ADDRESS_AFTER;
use crate::sync::Unordered;

/// Where a single try to connect leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    /// The server, as the URL or another server names it.
    pub(crate) address: Address,
    /// The address to connect to instead, if the user has mapped that of the server.
    pub(crate) mapped: Option<Address>,
    /// One of the addresses that its name stands for. A socket has none.
    pub(crate) at: Option<SocketAddr>,
}

impl Endpoint {
    /// The address to connect to. With TLS, the server's certificate has to be for its host.
    pub(crate) fn reached(&self) -> &Address {
        self.mapped.as_ref().unwrap_or(&self.address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if let Some(mapped) = &self.mapped {
            write!(f, ", mapped to {mapped}")?;
        }
        match (self.reached(), self.at) {
            (Address::Tcp { host, .. }, Some(at)) if at.ip().to_string() != *host => {
                write!(f, " ({at})")
            }
            _ => Ok(()),
        }
    }
}

/// The endpoints of a name in an order that all programs have: resolvers give addresses in turns. Those of the family that the
/// system has put first stay first, because no other may work here.
pub(crate) fn in_common_order(mut endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
    let is_v4 = |endpoint: &Endpoint| endpoint.at.is_some_and(|at| at.is_ipv4());
    let prefers_v4 = endpoints.first().is_some_and(is_v4);
    endpoints.sort_by_key(|endpoint| (is_v4(endpoint) != prefers_v4, endpoint.at));
    endpoints
}

/// Tries the endpoints of one server: each a moment after the one before it, or as soon as that has failed. The first one
/// that succeeds counts.
pub(crate) async fn first_of<T, F>(
    endpoints: Vec<Endpoint>,
    connect: impl Fn(Endpoint) -> F,
) -> Result<T, Fault>
where
    T: Send,
    F: Future<Output = Result<T, Fault>> + Send,
{
    let mut endpoints = endpoints.into_iter();
    let mut tries = Unordered::default();
    let mut failures = Vec::new();
    loop {
        if let Some(endpoint) = endpoints.next() {
            let connecting = connect(endpoint.clone());
            tries.push(async move { (endpoint, connecting.await) });
        }
        let outcome = tokio::select! {
            outcome = tries.next() => outcome,
            // The next address is tried beside the earlier ones, which may only be slow.
            () = sleep(NEXT_ADDRESS_AFTER), if endpoints.len() > 0 => continue,
        };
        match outcome {
            Some((_, Ok(connected))) => return Ok(connected),
            Some((endpoint, Err(fault))) => {
                let fault = mapped(&endpoint, fault);
                failures.push((endpoint, fault));
            }
            None => return Err(failure(failures)),
        }
    }
}

/// The fault of an address that the user has mapped says so.
fn mapped(endpoint: &Endpoint, fault: Fault) -> Fault {
    match (&endpoint.mapped, fault) {
        (Some(mapped), Fault::NotNow(why)) => {
            Fault::NotNow(cause(format!("mapped to {mapped}: {why}")))
        }
        (_, fault) => fault,
    }
}

/// What the failures of all endpoints of a server mean together. A refusal says more than that nobody answers elsewhere.
fn failure(mut failures: Vec<(Endpoint, Fault)>) -> Fault {
    let is_refusal = |(_, fault): &(_, Fault)| fault.is_refusal();
    if let Some(at) = failures.iter().position(is_refusal) {
        return failures.swap_remove(at).1;
    }
    if failures.len() == 1
        && let Some((_, fault)) = failures.pop()
    {
        return fault;
    }
    let texts: Vec<String> = failures
        .iter()
        .map(|(endpoint, fault)| match endpoint.at {
            Some(at) => format!("{at}: {}", fault),
            None => fault.to_string(),
        })
        .collect();
    Fault::NotNow(cause(texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_common_within_the_family_that_the_system_prefers() {
        let order = |of: [&str; 3]| {
            let endpoint = |at: &str| Endpoint {
                address: Address::Unix("name".into()),
                mapped: None,
                at: at.parse().ok(),
            };
            let order = in_common_order(of.map(endpoint).to_vec());
            let shown = order.iter().filter_map(|one| Some(one.at?.to_string()));
            shown.collect::<Vec<_>>()
        };
        let (one, two, six) = ("10.0.0.1:6379", "10.0.0.2:6379", "[::1]:6379");
        for v4_first in [[one, two, six], [two, one, six], [two, six, one]] {
            assert_eq!(order(v4_first), [one, two, six]);
        }
        for v6_first in [[six, two, one], [six, one, two]] {
            assert_eq!(order(v6_first), [six, one, two]);
        }
    }
}
