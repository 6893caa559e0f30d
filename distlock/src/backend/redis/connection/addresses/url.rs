//! What a URL says: which servers there are, how they are arranged, and how to log in to them.
//!
//! ```text
//! url    = scheme "://" [user [":" password] "@"] host [":" port] *("," host [":" port]) path ["?" query] ["#insecure"]
//! scheme = ("redis" | "rediss" | "valkey" | "valkeys") [("+" | "-") ("cluster" | "sentinel")]
//!        | "redis+unix" | "valkey+unix" | "unix"
//! path   = one server and cluster: ["/" db] ["/"]   Sentinel: "/" service ["/" db] ["/"]   socket: the path of its file
//! query  = protocol=resp3 or 3, family=0, db, and the settings   Sentinel: sentinel_user, sentinel_password, sentinel_tls
//!          socket: user, pass
//! ```
//!
//! White space around the URL does not count. Schemes, the words of the query and `insecure` may have capital
//! letters.
//!
//! Several hosts are not allowed in a URL as others parse it, so this parser is our own. An error names the part that is
//! wrong. It never quotes a text that may be a part of a password, also if the URL is so wrong that the password stands in
//! another place.

mod foreign;
#[cfg(test)]
mod generated;
mod hosts;
mod login;
mod looks_like;
mod query;
mod settings;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;
use std::path::PathBuf;

use self::hosts::{address, addresses};
pub(crate) use self::login::Login;
use self::looks_like::looks_like;
use self::query::Query;
use self::text::{decoded, invalid, not_encoded, number};
use super::address::Address;
use crate::config::Settings;
use crate::error::Error;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) target: Target,
    pub(crate) login: Option<Login>,
    /// How to connect to the servers.
    pub(crate) tls: Tls,
    pub(crate) settings: Settings,
}

impl Url {
    /// Reads a URL. Nothing is looked up or sent.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        // A file or a variable often ends with a line end, and some editors begin a file with a mark.
        let is_around = |c: char| c.is_whitespace() || c == '\u{feff}';
        let mut parts = Parts::of(url.trim_matches(is_around))?;
        let mut login = parts
            .user_info
            .map(Login::of_user_info)
            .transpose()?
            .flatten();
        if let Some(protocol) = parts.query.take("protocol")?
            && !["resp3", "3"].contains(&protocol.to_ascii_lowercase().as_str())
        {
            return Err(invalid("the only `protocol` is `resp3`, or `3`"));
        }
        if let Some(family) = parts.query.take("family")?
            && family != "0"
        {
            return Err(invalid(
                "the only `family` is `0`: a name may have addresses of IPv4 and of IPv6",
            ));
        }
        let tls = parts.tls(parts.has_tls);
        let target = parts.target(&mut login)?;
        if parts.is_insecure && tls == Tls::Off && !target.has_tls() {
            return Err(invalid(
                "`#insecure` is for TLS; write `rediss`, or leave it out",
            ));
        }
        let settings = settings::settings(&mut parts.query)?;
        parts.query.is_read()?;
        Ok(Self {
            target,
            login,
            tls,
            settings,
        })
    }
}

/// The servers that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server {
        address: Address,
        db: u32,
    },
    Cluster {
        /// Some of the nodes, at least one.
        seeds: Vec<Address>,
        /// Valkey has others than 0 in clusters since version 9.
        db: u32,
    },
    Sentinel {
        /// Some of the Sentinels, at least one.
        sentinels: Vec<Address>,
        /// What the Sentinels call the servers.
        service: String,
        db: u32,
        /// For the Sentinels, not for the servers.
        login: Option<Login>,
        /// How to connect to the Sentinels.
        tls: Tls,
    },
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    /// The server must have a valid certificate.
    Verified,
    /// The server may have any certificate.
    Insecure,
}

enum Arrangement {
    Server,
    Socket,
    Cluster,
    Sentinel,
}

/// The parts of a URL, as they are written.
struct Parts<'a> {
    arrangement: Arrangement,
    has_tls: bool,
    user_info: Option<&'a str>,
    hosts: &'a str,
    /// Without the first `/`.
    path: &'a str,
    query: Query<'a>,
    is_insecure: bool,
}

/// What errors call the servers before it is known where they are.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = match self {
            Self::Server { address, .. } => return address.fmt(f),
            Self::Cluster { seeds, .. } => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        };
        for (at, address) in addresses.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

impl Target {
    fn has_tls(&self) -> bool {
        matches!(self, Self::Sentinel { tls, .. } if *tls != Tls::Off)
    }
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, Error> {
        let (arrangement, has_tls, rest) = url
            .split_once("://")
            .and_then(|(scheme, rest)| {
                let (arrangement, has_tls) = arrangement(scheme)?;
                Some((arrangement, has_tls, rest))
            })
            .ok_or_else(|| unknown_scheme(url))?;
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if [path, query, fragment]
            .iter()
            .any(|part| part.contains('@'))
        {
            return Err(not_encoded());
        }
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        let is_insecure = fragment.eq_ignore_ascii_case("insecure");
        if !is_insecure && !fragment.is_empty() {
            return Err(invalid("the only word after a `#` is `insecure`"));
        }
        Ok(Self {
            arrangement,
            has_tls,
            user_info,
            hosts,
            path,
            query: Query::of(query, user_info.is_some()),
            is_insecure,
        })
    }

    fn tls(&self, is_on: bool) -> Tls {
        match (is_on, self.is_insecure) {
            (false, _) => Tls::Off,
            (true, false) => Tls::Verified,
            (true, true) => Tls::Insecure,
        }
    }

    /// The servers, and where they are. The user and the password of a socket are in the query.
    fn target(&mut self, login: &mut Option<Login>) -> Result<Target, Error> {
        Ok(match self.arrangement {
            Arrangement::Server => Target::Server {
                address: self.one_address()?,
                db: self.database(self.path)?,
            },
            Arrangement::Socket => {
                self.login_of_socket(login)?;
                Target::Server {
                    address: self.socket()?,
                    db: self.database("")?,
                }
            }
            Arrangement::Cluster => {
                let db = self.database(self.path)?;
                Target::Cluster {
                    seeds: addresses(self.hosts, PORT)?,
                    db,
                }
            }
            Arrangement::Sentinel => self.sentinel()?,
        })
    }

    /// Reads the user and the password of a socket from the query. A user alone has its password from elsewhere.
    fn login_of_socket(&mut self, login: &mut Option<Login>) -> Result<(), Error> {
        let (name, password) = (self.query.take("user")?, self.query.take("pass")?);
        if name.is_none() && password.is_none() {
            return Ok(());
        }
        if login.is_some() {
            return Err(invalid(
                "there is a user before the `@`, and another one in the query",
            ));
        }
        *login = Login::of_words(name, password)?;
        Ok(())
    }

    /// The number of the database after a `/`, or by the word `db`.
    fn database(&mut self, path: &str) -> Result<u32, Error> {
        let path = path.strip_suffix('/').unwrap_or(path);
        match (path, self.query.take("db")?) {
            (path, None) => database(path),
            ("", Some(db)) => database(&db),
            (path, Some(db)) if path == db => database(path),
            (_, Some(_)) => Err(invalid(
                "there is a database after the `/`, and another one by the word `db`",
            )),
        }
    }

    fn one_address(&self) -> Result<Address, Error> {
        if self.hosts.contains(',') {
            return Err(invalid(
                "expected the address of one server, and found several; write `redis+cluster://` for a cluster and \
                 `redis+sentinel://` for Sentinel; for a Redlock make a client for each server",
            ));
        }
        address("the host", self.hosts, PORT)
    }

    fn socket(&self) -> Result<Address, Error> {
        if !self.hosts.is_empty() || self.path.is_empty() {
            return Err(invalid(
                "expected the path of a socket and no host, as in `unix:///run/redis.sock`",
            ));
        }
        let path = decoded(self.path, "the path")?;
        Ok(Address::Unix(PathBuf::from(format!("/{path}"))))
    }

    fn sentinel(&mut self) -> Result<Target, Error> {
        let (service, db) = self.path.split_once('/').unwrap_or((self.path, ""));
        if service.is_empty() {
            return Err(invalid(
                "expected the name of a service after the hosts of the Sentinels, as in `redis+sentinel://h1,h2,h3/mymaster`",
            ));
        }
        let has_tls = self.query.take("sentinel_tls")?;
        let has_tls = match has_tls.map(|text| text.to_ascii_lowercase()).as_deref() {
            None => self.has_tls,
            Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(invalid("`sentinel_tls` is neither `true` nor `false`")),
        };
        let user = self.query.take("sentinel_user")?;
        let password = self.query.take("sentinel_password")?;
        let login = Login::of_words(user, password)?;
        Ok(Target::Sentinel {
            sentinels: addresses(self.hosts, SENTINEL_PORT)?,
            service: decoded(service, "the name of the service")?,
            db: self.database(db)?,
            login,
            tls: self.tls(has_tls),
        })
    }
}

/// How the servers are arranged, and whether they have TLS; none for a scheme of something else.
fn arrangement(scheme: &str) -> Option<(Arrangement, bool)> {
    let scheme = scheme.to_ascii_lowercase();
    if ["unix", "redis+unix", "valkey+unix"].contains(&scheme.as_str()) {
        return Some((Arrangement::Socket, false));
    }
    let (protocol, arrangement) = match scheme.split_once(['+', '-']) {
        None => (scheme.as_str(), Arrangement::Server),
        Some((protocol, "cluster")) => (protocol, Arrangement::Cluster),
        Some((protocol, "sentinel")) => (protocol, Arrangement::Sentinel),
        Some(_) => return None,
    };
    match protocol {
        "redis" | "valkey" => Some((arrangement, false)),
        "rediss" | "valkeys" => Some((arrangement, true)),
        _ => None,
    }
}

fn database(text: &str) -> Result<u32, Error> {
    let text = if text.is_empty() { "0" } else { text };
    // The driver's type for it is signed.
    number::<i32>(text)
        .and_then(|db| u32::try_from(db).ok())
        .ok_or_else(|| {
            invalid("expected the number of a database after the `/`, as in `redis://host:6379/3`")
        })
}

/// The error for a text that is not the URL of a server. It says what the text looks like, and quotes nothing of it.
fn unknown_scheme(text: &str) -> Error {
    let looks = looks_like(text).map_or(String::new(), |looks| format!("{looks}; "));
    invalid(format!(
        "{looks}expected `redis://[user:password@]host[:port][/db]`; instead of `redis` there may be `rediss` (TLS), \
         `redis+sentinel`, `rediss+sentinel`, `redis+cluster`, `rediss+cluster`, the same of `valkey`, or `unix`",
    ))
}
