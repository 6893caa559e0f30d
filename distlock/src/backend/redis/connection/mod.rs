//! Connections to one server: how each is made, checked, and replaced when it fails.

mod addresses;
mod connect;
mod gauge;
mod link;

pub(crate) use self::addresses::{Address, Locate, Located, url};
pub(super) use self::connect::{
    Connector, Expected, NodeAnswer, ReconnectPause, ServerCheck, ask_node_at, handshake, probe,
};
pub(super) use self::gauge::ConnectedGauge;
pub(super) use self::link::{
    Connected, Epochs, Link, LinkConfig, Look, NameWatch, Named, OnPush, OutageLog, Pings,
    REPEATED_AFTER, Stake, Together, join,
};
