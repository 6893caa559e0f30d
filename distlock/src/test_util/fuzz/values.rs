//! The replies in the bytes of a server.

use redis::{Parser, Value};

/// The values that a server sends one after the other, as the driver reads them from the wire. Ends with the first one that
/// it does not understand.
pub(super) fn values(mut wire: &[u8]) -> impl Iterator<Item = Value> {
    let mut parser = Parser::new();
    std::iter::from_fn(move || parser.parse_value(&mut wire).ok())
}
