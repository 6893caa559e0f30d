//! What happens inside a process: panics, runtimes that end, nested scopes.

mod ends;
mod nesting;
mod panics;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [ends::rows(), panics::rows(), nesting::rows()].concat()
}
