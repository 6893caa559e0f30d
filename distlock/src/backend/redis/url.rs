//! Which server a URL names, and the options of its sockets.

use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::backend::{Fault, cause};
use crate::error::Error;

/// Idle time, interval and number of probes: a peer that vanished without closing the connection is noticed after some
/// ten seconds.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);

/// How long sent bytes may stay unacknowledged before the connection counts as lost.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that a URL names.
pub(super) struct Server {
    info: ConnectionInfo,
}

pub(super) fn parse(url: &str) -> Result<Server, Error> {
    let scheme = url.split("://").next().unwrap_or_default();
    match scheme {
        "redis" | "valkey" | "redis+unix" | "unix" => {}
        "rediss" | "valkeys" | "redis+sentinel" | "redis+cluster" => {
            return Err(invalid(format!(
                "this version has no `{scheme}`; use `redis://` with the address of one server"
            )));
        }
        _ => {
            return Err(invalid(
                "expected `redis://[user:password@]host[:port][/db]`",
            ));
        }
    }
    check_parts(url)?;
    let info = url
        .into_connection_info()
        .map_err(|error| invalid(error.to_string()))?;
    // Protocol 3: the driver reports a lost connection at once, and a connection with subscriptions still answers PING.
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    Ok(Server {
        info: info.set_redis_settings(redis),
    })
}

/// Says what to write where the driver's errors do not: several servers, and a path that is not a database.
fn check_parts(url: &str) -> Result<(), Error> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Ok(());
    };
    if scheme.ends_with("unix") {
        return Ok(());
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // The password may contain a comma.
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    if hosts.contains(',') {
        return Err(invalid(
            "expected the address of one server, and found several; for a Redlock make a client for each",
        ));
    }
    if !path.is_empty() && path.parse::<u32>().is_err() {
        return Err(invalid(
            "expected the number of a database after the `/`, as in `redis://host:6379/3`",
        ));
    }
    Ok(())
}

impl Server {
    /// The driver's client, with the options of its sockets.
    pub(super) fn client(&self, nodelay: bool) -> Result<redis::Client, Error> {
        let (idle, every, probes) = KEEPALIVE;
        let keepalive = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(every)
            .with_retries(probes);
        let tcp = TcpSettings::default()
            .set_nodelay(nodelay)
            .set_keepalive(keepalive);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        let info = self.info.clone().set_tcp_settings(tcp);
        redis::Client::open(info).map_err(|error| invalid(error.to_string()))
    }

    /// The address, without user and password.
    pub(super) fn address(&self) -> String {
        self.info.addr().to_string()
    }

    pub(super) fn unreachable(&self, fault: Fault, after: Duration) -> Error {
        let server = self.address();
        let cause = match fault {
            Fault::Denied(cause) | Fault::LoginDenied(cause) => {
                return Error::LoginDenied { server, cause };
            }
            Fault::Unsupported { server, reason } => {
                return Error::UnsupportedServer { server, reason };
            }
            Fault::Unknown(cause) | Fault::NotNow(cause) | Fault::Protocol(cause) => cause,
            // Faults of keys. Nothing was asked of a key yet.
            fault @ (Fault::WrongType | Fault::NumberGone) => cause(fault.to_string()),
        };
        Error::Unreachable {
            server,
            after,
            cause,
        }
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidUrl {
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_one_server_pass_and_others_say_what_to_write() {
        for url in [
            "redis://127.0.0.1",
            "redis://u:p@host:7000/3",
            "redis://u:a,b@host/3?protocol=resp3",
            "unix:///run/redis.sock",
        ] {
            assert!(parse(url).is_ok(), "{url}");
        }
        for (url, says) in [
            ("127.0.0.1:6379", "expected `redis://"),
            ("http://host", "expected `redis://"),
            (
                "redis+cluster://host",
                "this version has no `redis+cluster`",
            ),
            ("redis://host:seven", ""),
            ("redis://one:1,two:2", "one server, and found several"),
            ("redis://u:p@one,two/3", "one server, and found several"),
            ("redis://host/abc", "number of a database"),
        ] {
            let error = parse(url)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(!error.is_empty() && error.contains(says), "{url}: {error}");
        }
    }

    #[test]
    fn passwords_stay_out_of_errors() {
        let error = parse("redis://u:secret@host:seven")
            .err()
            .map(|error| error.to_string());
        assert!(error.is_some_and(|error| !error.contains("secret")));
    }
}
