//! Which requests may free a lock: the hosts by which the console is called, and the origins of the pages that call it.

use std::net::IpAddr;

use http::Uri;
use http::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a program allows beside the names of its own machine and beside its own origin.
#[derive(Debug, Default)]
pub(super) struct Senders {
    /// Each with a port, or for all ports.
    pub(super) hosts: Vec<String>,
    pub(super) origins: Vec<String>,
}

impl Senders {
    /// Refuses a request, and says why.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), String> {
        let host = host(parts);
        self.check_host(host)?;
        self.check_origin(&parts.headers, host)
    }

    /// A page of another site can let its own name point to this machine. Its requests then come from the same origin, and
    /// only the name tells them apart.
    fn check_host(&self, host: &str) -> Result<(), String> {
        let is_listed = |listed: &String| {
            listed.eq_ignore_ascii_case(host) || listed.eq_ignore_ascii_case(without_port(host))
        };
        if is_loopback(host) || self.hosts.iter().any(is_listed) {
            return Ok(());
        }
        let listed = self.hosts.join(", ");
        Err(format!(
            "the request was sent to the host {host:?}, which may not free locks; Console::hosts allows the names of the \
            loopback interface and [{listed}]"
        ))
    }

    /// Refuses a request that was not sent by a page of this server, nor by a program that is no browser.
    ///
    /// Browsers say by `Sec-Fetch-Site` where a request comes from, unless the page is served without TLS, and by `Origin`
    /// whenever a request may change something.
    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), String> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let site = text(SEC_FETCH_SITE);
        let origin = text(ORIGIN);
        let is_trusted = origin.is_some_and(|origin| {
            let mut trusted = self.origins.iter();
            trusted.any(|trusted| trusted.eq_ignore_ascii_case(origin))
        });
        let is_allowed = match (site, origin) {
            _ if is_trusted => true,
            (Some(site), _) => site == "same-origin",
            (None, Some(origin)) => is_origin_of(origin, host),
            (None, None) => true,
        };
        if is_allowed {
            return Ok(());
        }
        let site = site.map(|site| format!(" (Sec-Fetch-Site: {site})"));
        Err(format!(
            "the request comes from another origin{}: Origin is {:?}, and Host is {host:?}; Console::trusted_origins allows \
            further origins",
            site.unwrap_or_default(),
            origin.unwrap_or_default(),
        ))
    }
}

/// The host with its port, as the client calls it. HTTP/2 has it in the URI.
fn host(parts: &Parts) -> &str {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(Authority::as_str));
    host.unwrap_or_default()
}

fn is_origin_of(origin: &str, host: &str) -> bool {
    let origin = origin.parse::<Uri>().ok();
    let authority = origin.as_ref().and_then(Uri::authority);
    authority.is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host))
}

/// Names that lead to this machine, whatever a name server says.
fn is_loopback(host: &str) -> bool {
    let name = without_port(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => {
            let name = name.to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// An IPv6 address stays in its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    }
}
