//! Why a command has no result, and what an error of a server means.

use std::sync::Arc;

use redis::RedisError;

use crate::backend::redis::connection::Link;
use crate::backend::redis::reply::{self, Elsewhere};
use crate::backend::{Fault, cause};
use crate::config::LOADING_LEFT_AFTER;
use crate::error::Cause;

/// Why a command has no result.
pub(crate) enum Failed {
    /// The server does not know the script, so the command was not executed.
    NoScript,
    /// The node does not have the keys, or not all of them, so the command was not executed.
    Elsewhere(Elsewhere),
    With(Fault),
}

/// The fault of an answer, or of none, with the name of its server: there are several.
pub(crate) fn of_server(name: &str, fault: Fault) -> Fault {
    let with_name = |why: Cause| cause(format!("{name}: {why}"));
    match fault {
        Fault::Unknown(why) => Fault::Unknown(with_name(why)),
        Fault::NotNow(why) => Fault::NotNow(with_name(why)),
        Fault::Denied(key, why) => Fault::Denied(key, with_name(why)),
        Fault::LoginDenied(why) => Fault::LoginDenied(with_name(why)),
        Fault::Protocol(why) => Fault::Protocol(with_name(why)),
        // It has the name, or is about the key.
        other => other,
    }
}

/// The node has only a part of the keys, because their slot moves to another node.
pub(crate) fn moving() -> Fault {
    Fault::NotNow(cause("the slot of the key moves between nodes"))
}

/// What an error over connection `epoch` means.
pub(crate) fn read_error(link: &Arc<Link>, epoch: u64, error: RedisError) -> Failed {
    if reply::is_noscript(&error) {
        return Failed::NoScript;
    }
    if let Some(elsewhere) = reply::elsewhere(&error) {
        return Failed::Elsewhere(elsewhere);
    }
    if reply::breaks_connection(&error) {
        link.broken(epoch, &error.to_string());
    } else if reply::is_loading(&error) {
        // It may be a former server that was started again, and grants beside the present one once it has loaded.
        link.replace_if_older(epoch, LOADING_LEFT_AFTER);
    }
    Failed::With(reply::fault(error))
}

/// Why one of several nodes cannot be used.
pub(crate) struct NodeFault {
    /// The name of the node.
    pub(crate) node: String,
    pub(crate) fault: Fault,
}

/// Why none of several nodes can be used.
#[derive(Default)]
pub(crate) struct NodeFaults {
    refused: Option<NodeFault>,
    last: Option<NodeFault>,
}

impl NodeFaults {
    pub(crate) fn add(&mut self, failed: NodeFault) {
        if failed.fault.is_refusal() {
            self.refused.get_or_insert(failed);
        } else {
            self.last = Some(failed);
        }
    }

    /// The first refusal, which says more than that another node does not answer, or the last failure. `None` if there was none.
    pub(crate) fn fault(self) -> Option<NodeFault> {
        self.refused.or(self.last)
    }
}
