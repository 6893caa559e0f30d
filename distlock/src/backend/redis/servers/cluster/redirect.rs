//! Where a node sends a command that it did not carry out.
//!
//! A redirect is input from outside. One that makes no sense is read as no redirect.

use crate::backend::redis::connection::Address;
use crate::backend::redis::servers::announced::announced;
use crate::backend::redis::slot::SLOTS;

/// A slot, and the node to ask about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    pub(crate) node: Address,
}

impl Redirect {
    /// Reads `3999 127.0.0.1:6381`, which follows `MOVED` or `ASK`, as the node `asked` says it. If the host is missing it is
    /// that of the node that was asked.
    pub(crate) fn parse(text: &str, asked: &Address) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let slot = words.next()?;
        let node = words.next()?;
        if words.next().is_some() {
            return None;
        }
        let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
        // The address of IPv6 contains colons as well, and has no brackets here.
        let (host, port) = node.rsplit_once(':')?;
        let node = announced(host, port.parse().ok()?, asked)?;
        Some(Self { slot, node })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: &str) -> Address {
        Address::Tcp {
            host: host.to_owned(),
            port: 7000,
        }
    }

    fn parse(text: &str) -> Option<(u16, String)> {
        let asked = tcp("10.0.0.1");
        let redirect = Redirect::parse(text, &asked)?;
        Some((redirect.slot, redirect.node.to_string()))
    }

    #[test]
    fn redirects_name_a_slot_and_a_node() {
        for (text, slot, node) in [
            ("3999 127.0.0.1:6381", 3_999, "127.0.0.1:6381"),
            ("0 :6381", 0, "10.0.0.1:6381"),
            ("16383 ?:6381", 16_383, "10.0.0.1:6381"),
            ("7 ::1:6381", 7, "[::1]:6381"),
            ("7 [::1]:6381", 7, "[::1]:6381"),
            ("7 node.example.org:6381", 7, "node.example.org:6381"),
        ] {
            assert_eq!(parse(text), Some((slot, node.to_owned())), "{text}");
        }
    }

    #[test]
    fn redirects_that_make_no_sense_are_none() {
        for text in [
            "",
            "3999",
            "99999 :0",
            "16384 127.0.0.1:6381",
            "-1 127.0.0.1:6381",
            "7 127.0.0.1",
            "7 127.0.0.1:",
            "7 127.0.0.1:0",
            "7 127.0.0.1:70000",
            "7 127.0.0.1:-6381",
            "7 a host:6381",
            "7 user@host:6381",
            "7 127.0.0.1:6381 more",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_a_node_writes_is_read(slot in 0..SLOTS, host in "[a-z0-9.-]{1,30}", port in 1..=u16::MAX) {
            let expected = Some((slot, format!("{host}:{port}")));
            prop_assert_eq!(parse(&format!("{slot} {host}:{port}")), expected);
        }
    }
}
