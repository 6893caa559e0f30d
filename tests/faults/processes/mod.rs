//! What happens inside a process: panics, runtimes that end, nested scopes.

mod nesting;
mod panics;
mod process;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [process::rows(), panics::rows(), nesting::rows()].concat()
}
