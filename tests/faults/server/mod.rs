//! Connections, servers, refusals, rights and keys: what a real server does.

pub(crate) mod changed_rights;
mod connected_replicas;
mod connection;
mod grace;
mod idle;
mod keys;
mod names;
mod needed_rights;
mod outage;
mod promoted;
mod refusals;
mod replicas;
pub(crate) mod rights;
mod rights_by_kind;
mod scripts;
mod sentinel;
mod servers;
mod tls;
mod untold;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        connection::rows(),
        servers::rows(),
        outage::rows(),
        idle::rows(),
        refusals::rows(),
        replicas::rows(),
        grace::rows(),
        connected_replicas::rows(),
        rights::rows(),
        changed_rights::rows(),
        rights_by_kind::rows(),
        needed_rights::rows(),
        needed_rights::hosted::rows(),
        needed_rights::sentinel::rows(),
        scripts::rows(),
        sentinel::rows(),
        promoted::rows(),
        keys::rows(),
        names::rows(),
        tls::rows(),
        untold::rows(),
    ]
    .concat()
}
