//! Connections, servers, refusals, rights and keys: what a real server does.

mod connection;
mod keys;
mod outage;
mod refusals;
pub(crate) mod rights;
mod rights_by_kind;
mod scripts;
mod servers;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        connection::rows(),
        servers::rows(),
        outage::rows(),
        refusals::rows(),
        rights::rows(),
        rights_by_kind::rows(),
        scripts::rows(),
        keys::rows(),
    ]
    .concat()
}
