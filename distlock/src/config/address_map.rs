//! Where the addresses are reached that servers announce, if that is elsewhere: behind NAT, port forwards or containers.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::source::panicked;
use crate::error::Cause;
use crate::sync::foreign;

/// A host and a port.
pub(crate) type HostPort = (String, u16);

type Map = dyn Fn(&str, u16) -> Option<HostPort> + Send + Sync;

/// Where announced addresses are reached.
#[derive(Clone)]
pub(crate) enum AddressMap {
    /// A function of the user, which is asked before each connection.
    Asked(Arc<Map>),
    /// A file, which is read before each connection.
    File(PathBuf),
}

impl AddressMap {
    /// Where an announced address is reached; `None` if it is reached as it is. A panic of the function is an error of this
    /// connection.
    pub(crate) fn reached(&self, host: &str, port: u16) -> Result<Option<HostPort>, Cause> {
        let reached = match self {
            Self::Asked(map) => {
                // The function is not changed by a call.
                let asked = AssertUnwindSafe(|| foreign::call_user(|| map(host, port)));
                catch_unwind(asked).map_err(|panic| panicked(&*panic))?
            }
            Self::File(path) => in_file(path, host, port)?,
        };
        match reached {
            Some((host, port)) if host.is_empty() || port == 0 => Err(wrong(format!(
                "it is mapped to `{host}:{port}`, which is no address"
            ))),
            reached => Ok(reached),
        }
    }
}

/// What a file says about an address. All of its lines have to make sense.
fn in_file(path: &Path, host: &str, port: u16) -> Result<Option<HostPort>, Cause> {
    // Read here, and not by tokio's pool of blocking threads, which the program may have used up. The file is small.
    let text = fs::read_to_string(path).map_err(|error| {
        wrong(format!(
            "the map of addresses in {}: {error}",
            path.display()
        ))
    })?;
    find(&text, host, port).map_err(|(line, what)| {
        let path = path.display();
        wrong(format!(
            "line {line} of the map of addresses in {path}: {what}"
        ))
    })
}

/// What these lines say about an address. The error has the number of its line.
fn find(text: &str, host: &str, port: u16) -> Result<Option<HostPort>, (usize, String)> {
    let lines = read(text)?;
    let of = |port| lines.get(&(host.to_owned(), port)).cloned();
    let found = of(Some(port)).or_else(|| of(None));
    Ok(found.map(|(host, other)| (host, other.unwrap_or(port))))
}

/// A host, and a port if one is named.
type Named = (String, Option<u16>);

/// Each line has an announced address and the one at which it is reached. Of two hosts without ports, the port stays. A `#`
/// begins a comment. The error has the number of its line.
fn read(text: &str) -> Result<HashMap<Named, Named>, (usize, String)> {
    let mut lines: HashMap<Named, Named> = HashMap::new();
    let content = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    for (number, line) in (1..).zip(text.lines().map(content)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (announced, reached) = match words[..] {
            [] => continue,
            [announced, reached] => (announced, reached),
            _ => return Err((number, format!("`{line}` is not two addresses; {EXPECTED}"))),
        };
        let named = |text: &str| {
            address(text).ok_or_else(|| (number, format!("`{text}` is no address; {EXPECTED}")))
        };
        let from = named(announced)?;
        let to = named(reached)?;
        if from.1.is_some() != to.1.is_some() {
            let what =
                format!("of `{line}` one address has a port and the other has none; {EXPECTED}");
            return Err((number, what));
        }
        if lines.insert(from, to).is_some() {
            return Err((
                number,
                format!("`{announced}` is mapped by an earlier line already"),
            ));
        }
    }
    Ok(lines)
}

const EXPECTED: &str =
    "expected e.g. `10.0.0.5:6379 redis.example.org:16379`, or two hosts for all ports";

/// A host with or without a port. An IPv6 address with a port is in brackets.
fn address(text: &str) -> Option<Named> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(bracketed) => match bracketed? {
            (host, "") => (host, None),
            (host, port) => (host, Some(port.strip_prefix(':')?)),
        },
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map(|port| port.parse().ok().filter(|port| *port != 0));
    match port {
        _ if host.is_empty() => None,
        // What follows the colon is no port.
        Some(None) => None,
        port => Some((host.to_owned(), port.flatten())),
    }
}

fn wrong(what: String) -> Cause {
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(what))
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(_) => f.write_str("Asked(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

// The function is shared and never changed, as a client's other callbacks.
impl UnwindSafe for AddressMap {}
impl RefUnwindSafe for AddressMap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_map_addresses_and_hosts_and_the_one_with_a_port_counts() {
        let text = "# announced reached\n\n10.0.0.1:6379 localhost:7001 # the first\n10.0.0.1 gate\n\
                    [fd00::1]:6379\t[::1]:7002\nfd00::2 ::1\n";
        for (host, port, reached) in [
            ("10.0.0.1", 6379, Some(("localhost", 7001))),
            ("10.0.0.1", 6380, Some(("gate", 6380))),
            ("fd00::1", 6379, Some(("::1", 7002))),
            ("fd00::2", 5, Some(("::1", 5))),
            ("10.0.0.2", 6379, None),
        ] {
            let reached = reached.map(|(host, port): (&str, u16)| (host.to_owned(), port));
            assert_eq!(find(text, host, port).unwrap(), reached, "{host}:{port}");
        }
    }

    #[test]
    fn error_of_a_file_names_the_line_and_what_is_wrong() {
        for (text, number, part) in [
            ("a:1 b:2\nc:3", 2, "`c:3` is not two addresses"),
            ("a:1 b:2 c:3", 1, "is not two addresses"),
            ("#\na:1 b:0", 2, "`b:0` is no address"),
            ("a:x b:1", 1, "`a:x` is no address"),
            (":1 b:1", 1, "`:1` is no address"),
            ("a:1 [b", 1, "`[b` is no address"),
            ("a:1 [::1]x", 1, "`[::1]x` is no address"),
            ("a:1 b", 1, "one address has a port"),
            ("a:1 b:1\na:1 c:1", 2, "`a:1` is mapped by an earlier line"),
        ] {
            let (line, what) = find(text, "h", 1).unwrap_err();
            assert!(line == number && what.contains(part), "{line}: {what}");
        }
        let error = AddressMap::File("/none/such".into())
            .reached("h", 1)
            .unwrap_err();
        assert!(
            error.to_string().contains("/none/such: No such file"),
            "{error}"
        );
    }

    #[test]
    fn function_that_panics_or_names_nothing_is_an_error() {
        let panics = AddressMap::Asked(Arc::new(|host, _| panic!("no {host}")));
        let error = panics.reached("h", 1).unwrap_err().to_string();
        assert_eq!(error, "the function panicked: no h");
        let nothing = AddressMap::Asked(Arc::new(|_, _| Some((String::new(), 7))));
        let error = nothing.reached("h", 1).unwrap_err().to_string();
        assert!(error.contains("`:7`"), "{error}");
    }
}
