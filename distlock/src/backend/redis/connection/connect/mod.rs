//! How one connection is made: the socket, TLS, the login, and the questions whether this crate can use the server.

mod connector;
mod driven;
pub(crate) mod handshake;
pub(crate) mod info;
mod pause;
mod probe;
pub(crate) mod rejection;
mod server_check;
mod step;
mod stream;
pub(crate) mod tls;
mod transport;

pub(crate) use self::connector::Connector;
pub(crate) use self::driven::Driven;
pub(crate) use self::handshake::Expected;
pub(crate) use self::pause::ReconnectPause;
pub(crate) use self::probe::{NodeAnswer, ask_node_at, probe, probe_at, run_of_master_at};
pub(crate) use self::server_check::ServerCheck;
pub(crate) use self::step::Step;
