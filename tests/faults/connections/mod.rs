//! Connections that break, fall silent or are closed, names that lead elsewhere, and handshakes of TLS.

mod broken;
mod idle;
mod names;
mod tls;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [broken::rows(), idle::rows(), names::rows(), tls::rows()].concat()
}
