//! Connections to one server: how each is made, checked, and replaced when it fails.

mod address;
mod connector;
mod driven;
mod endpoint;
mod epochs;
pub(super) mod handshake;
mod known_run;
mod link;
mod name_watch;
mod outage;
mod phase;
mod place;
mod probe;
mod relogin;
mod resolver;
mod run;
mod stake;
mod step;
mod stream;
mod tls;
mod together;
mod transport;
mod unanswered;
pub(crate) mod url;

pub(crate) use self::address::{Address, Locate, Located};
pub(super) use self::connector::Connector;
pub(super) use self::epochs::Epochs;
pub(super) use self::handshake::Expected;
pub(super) use self::link::{Connected, FirstCheck, Link, LinkConfig, OnPush, Pings, join};
pub(super) use self::name_watch::NameWatch;
pub(super) use self::outage::{ConnectedGauge, OutageLog, REPEATED_AFTER};
pub(super) use self::probe::probe;
pub(super) use self::stake::Stake;
pub(super) use self::together::Together;
