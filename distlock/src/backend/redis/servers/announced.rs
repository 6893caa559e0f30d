//! The addresses of nodes, as other nodes name them.
//!
//! They are input from outside. One that nobody can be reached at is read as none.

use crate::backend::redis::connection::Address;

/// The longest host name that DNS allows.
const LONGEST_HOST: usize = 253;

/// The address that a node announces. If the host is left out, which an empty one or a `?` says, it is that of the node
/// `asked`.
pub(super) fn announced(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match (host, asked) {
        ("" | "?", Address::Tcp { host, .. }) => address(host, port),
        (host, _) => address(host, port),
    }
}

/// An address that somebody else names.
pub(super) fn address(host: &str, port: u16) -> Option<Address> {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    // `%` begins the zone of a link-local address. Host names outside of ASCII are written in Punycode.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    if port == 0 || host.is_empty() || host.len() > LONGEST_HOST || !host.bytes().all(fits) {
        return None;
    }
    Some(Address::Tcp {
        host: host.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_hosts_are_taken_and_missing_ones_are_those_of_the_node_that_was_asked() {
        let asked = announced("10.0.0.1", 7000, &Address::Unix("unused".into())).unwrap();
        let longest = "h".repeat(LONGEST_HOST);
        for (host, port, expected) in [
            ("10.0.0.2", 7001, Some("10.0.0.2:7001")),
            ("::1", 7001, Some("[::1]:7001")),
            ("[fe80::1%eth0]", 7001, Some("[fe80::1%eth0]:7001")),
            ("node-1.example.org", 7001, Some("node-1.example.org:7001")),
            (&longest, 1, Some(&*format!("{longest}:1"))),
            ("", 7001, Some("10.0.0.1:7001")),
            ("?", 7001, Some("10.0.0.1:7001")),
            ("10.0.0.2", 0, None),
            ("", 0, None),
            ("a b", 7001, None),
            ("a/b", 7001, None),
            ("user@host", 7001, None),
            ("[]", 7001, None),
            ("line\nbreak", 7001, None),
            (&format!("{longest}h"), 1, None),
        ] {
            let address = announced(host, port, &asked).map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{host:?}:{port}");
        }
    }
}
