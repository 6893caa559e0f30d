//! What happens inside a process: panics, runtimes that end, nested scopes.

mod connecting;
mod ends;
mod nesting;
mod panics;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        connecting::rows(),
        ends::rows(),
        panics::rows(),
        nesting::rows(),
    ]
    .concat()
}
