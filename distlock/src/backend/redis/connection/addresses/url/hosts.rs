//! The hosts of a URL.

use std::net::Ipv6Addr;

use super::text::{invalid, number};
use crate::backend::redis::connection::addresses::address::Address;
use crate::error::Error;

/// All hosts of a list. Those without a port have this one.
pub(super) fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, Error> {
    let count = hosts.split(',').count();
    let hosts = hosts.split(',').enumerate();
    let address = |(at, host)| match count {
        1 => address("the host", host, port),
        _ => address(&format!("host {} of {count}", at + 1), host, port),
    };
    hosts.map(address).collect()
}

/// A host with its port, or with this one. Errors have `name` and quote nothing: with an `@` in the wrong place, a piece of
/// a password may be taken for a host.
pub(super) fn address(name: &str, text: &str, default_port: u16) -> Result<Address, Error> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => ipv6(name, rest)?,
        None => named(name, text)?,
    };
    let port = match port {
        None => default_port,
        Some(port) => number(port).filter(|port| *port != 0).ok_or_else(|| {
            invalid(format!(
                "the port of {name} is not a number from 1 to 65535"
            ))
        })?,
    };
    Ok(Address::Tcp {
        host: host.to_owned(),
        port,
    })
}

/// An address that began with a `[`, and the text of its port.
fn ipv6<'a>(name: &str, rest: &'a str) -> Result<(&'a str, Option<&'a str>), Error> {
    let (host, after) = rest
        .split_once(']')
        .filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())
        .ok_or_else(|| {
            invalid(format!(
                "{name} begins with `[` and is not an IPv6 address, as in `[::1]:6379`"
            ))
        })?;
    match after.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if after.is_empty() => Ok((host, None)),
        None => Err(invalid(format!(
            "{name} has neither a `:` nor its end after the `]`"
        ))),
    }
}

/// A name or an IPv4 address, and the text of its port.
fn named<'a>(name: &str, text: &'a str) -> Result<(&'a str, Option<&'a str>), Error> {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    if port.is_some_and(|port| port.contains(':')) {
        return Err(invalid(format!(
            "{name} has several `:`; write an IPv6 address in brackets, as in `[::1]:6379`"
        )));
    }
    if host.is_empty() {
        return Err(invalid(format!(
            "{name} is missing: expected `host[:port]`"
        )));
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !host.chars().all(is_of_name) {
        return Err(invalid(format!(
            "{name} has a character that is not a letter, a digit, `-`, `.` or `_`"
        )));
    }
    Ok((host, port))
}
