//! Entry points of `tests/gates/fuzz`: each takes bytes that a user or a server may send, and panics if a promise is broken.

mod cluster;
mod reply;
mod url;
mod values;

pub use self::cluster::cluster;
pub use self::reply::reply;
pub use self::url::url;
