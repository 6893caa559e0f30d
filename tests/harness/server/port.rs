//! Ports for servers that must come back on the same port after a kill.
//!
//! The kernel's own choice (port 0) is wrong for them: those ports are also what it gives to
//! outgoing connections. A client that reconnects in a loop while its server is down would sooner
//! or later be given the very port, talk to itself, and keep the server from starting.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::process;

use parking_lot::{Mutex, const_mutex};

/// Below the ephemeral ports, which start at 32768 on Linux and higher elsewhere, also with the
/// 10000 added that a cluster node adds for its bus.
const PORTS: Range<u16> = 11_000..22_000;

/// How many ports a process takes at a time.
const BLOCK: u16 = 50;

/// A cluster node listens for other nodes on its port plus this.
const BUS: u16 = 10_000;

/// A loopback port on which nobody listens at this moment.
///
/// No other process of the harness is given it while this one lives. Any other program may take it
/// before the caller does: be ready to ask again.
///
/// # Panics
/// If all ports of the range are taken.
#[must_use]
pub fn free_port() -> u16 {
    static PORTS: Mutex<Ports> = const_mutex(Ports::new());
    let port = PORTS.lock().next(reserve);
    port.expect("a free port between 11000 and 22000")
}

/// The ports that one process gives out, in blocks that no other process has.
///
/// Without the blocks, another process could take the port of a server that is killed and to be
/// started again.
struct Ports {
    blocks: Vec<Block>,
    /// The position in the blocks of the port that comes next.
    next: usize,
}

/// A block of ports. The socket keeps other processes from it, and ends with the process.
struct Block {
    first: u16,
    _reserved: UdpSocket,
}

impl Ports {
    const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            next: 0,
        }
    }

    /// The next port on which nobody listens. After the last block, the first one comes again.
    fn next(&mut self, reserve: impl Fn() -> Option<Block>) -> Option<u16> {
        for _ in PORTS {
            if self.next == self.blocks.len() * usize::from(BLOCK) {
                match reserve() {
                    Some(block) => self.blocks.push(block),
                    None => self.next = 0,
                }
            }
            let (block, offset) = (
                self.next / usize::from(BLOCK),
                self.next % usize::from(BLOCK),
            );
            let offset = u16::try_from(offset).expect("less than the block");
            let port = self.blocks.get(block)?.first + offset;
            self.next += 1;
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

/// A block that no process has.
fn reserve() -> Option<Block> {
    let blocks = u32::from((PORTS.end - PORTS.start) / BLOCK);
    // Processes begin at different ones, so that few meet.
    let begin = process::id() % blocks;
    let mut order = (begin..blocks).chain(0..begin);
    order.find_map(|block| {
        let first = PORTS.start + u16::try_from(block).expect("less than the span") * BLOCK;
        // Its servers use TCP. A port of UDP is free for what a lock file would do, and is free again
        // however the process ends.
        let reserved = UdpSocket::bind(loopback(first)).ok()?;
        Some(Block {
            first,
            _reserved: reserved,
        })
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(loopback(port)).is_ok()
}

/// As [`free_port`], for a node of a cluster: the port of its bus is free, too, and beyond the ports of other servers.
pub(super) fn free_node_port() -> u16 {
    let mut ports = PORTS.map(|_| free_port());
    let port = ports.find(|port| {
        let bus = bus_port(*port);
        bus >= PORTS.end && is_free(bus)
    });
    port.expect("a free port with a free one 10000 above")
}

/// Where the node with this port listens for other nodes.
pub(super) fn bus_port(port: u16) -> u16 {
    port + BUS
}

/// The loopback address with this port.
#[must_use]
pub fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn two_processes_are_given_different_ports() {
        let (mut here, mut there) = (Ports::new(), Ports::new());
        let mut ports = || [&mut here, &mut there].map(|ports| ports.next(reserve).unwrap());
        let given: HashSet<u16> = (0..200).flat_map(|_| ports()).collect();
        assert_eq!(given.len(), 400);
        assert!(given.iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn ports_that_are_free_are_given_out_again_where_no_block_is_left() {
        let mut ports = Ports::new();
        let first = ports.next(reserve).unwrap();
        let second = ports.next(reserve).unwrap();
        let _server = TcpListener::bind(loopback(first)).unwrap();
        let again: Vec<u16> = (0..BLOCK).map(|_| ports.next(|| None).unwrap()).collect();
        assert!(
            again.contains(&second) && !again.contains(&first),
            "{again:?}"
        );
        assert_eq!(Ports::new().next(|| None), None);
    }
}
