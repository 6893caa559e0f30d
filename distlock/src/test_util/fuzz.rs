//! Entry points of `tests/fuzz`: each takes bytes from outside, and panics if a promise is broken.

use crate::backend::redis::fuzz;

/// The URL of a client.
pub fn url(bytes: &[u8]) {
    fuzz::url(bytes);
}

/// What the nodes of a cluster answer, in RESP: their maps, and where they send commands.
pub fn cluster(bytes: &[u8]) {
    fuzz::cluster(bytes);
}

/// What a server replies to scripts, in RESP.
pub fn reply(bytes: &[u8]) {
    fuzz::reply(bytes);
}
