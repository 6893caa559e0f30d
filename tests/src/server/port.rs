//! Ports for servers that must come back on the same port after a kill.
//!
//! The kernel's own choice (port 0) is wrong for them: those ports are also what it gives to
//! outgoing connections. A client that reconnects in a loop while its server is down would sooner
//! or later be given the very port, talk to itself, and keep the server from starting.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral ports, which start at 32768 on Linux and higher elsewhere, also with the
/// 10000 added that a cluster node adds for its bus.
const PORTS: Range<u16> = 11_000..22_000;

/// How far apart two test processes with neighbouring pids begin.
const STRIDE: u32 = 37;

/// A loopback port on which nobody listens at this moment.
///
/// Somebody else may take it before the caller does: be ready to ask again.
///
/// # Panics
/// If all ports of the range are taken.
#[must_use]
pub fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    (0..span)
        .map(|_| u32::from(GIVEN.fetch_add(1, Ordering::Relaxed)))
        .map(|given| (process::id().wrapping_mul(STRIDE).wrapping_add(given)) % span)
        .map(|offset| PORTS.start + u16::try_from(offset).expect("less than the span"))
        .find(|port| TcpListener::bind(loopback(*port)).is_ok())
        .expect("a free port between 11000 and 22000")
}

/// The loopback address with this port.
#[must_use]
pub fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
