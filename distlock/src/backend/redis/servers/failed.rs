//! Why a command has no result, and what an error of a server means.

use std::sync::Arc;

use redis::RedisError;

use crate::backend::Fault;
use crate::backend::redis::connection::Link;
use crate::backend::redis::reply::{self, Elsewhere};

/// Why a command has no result.
pub(super) enum Failed {
    /// The server does not know the script, so the command was not executed.
    NoScript,
    /// The node does not have the keys, or not all of them, so the command was not executed.
    Elsewhere(Elsewhere),
    With(Fault),
}

/// What an error over connection `epoch` means.
pub(super) fn read_error(link: &Arc<Link>, epoch: u64, error: RedisError) -> Failed {
    if reply::is_noscript(&error) {
        return Failed::NoScript;
    }
    if let Some(elsewhere) = reply::elsewhere(&error) {
        return Failed::Elsewhere(elsewhere);
    }
    if reply::breaks_connection(&error) {
        link.broken(epoch, &error.to_string());
    }
    Failed::With(reply::fault(error))
}
