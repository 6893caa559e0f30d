//! Leases that end, renewals that fail, and fencing tokens.

mod fencing;
mod lease;
mod watchdog;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [lease::rows(), watchdog::rows(), fencing::rows()].concat()
}
