//! What the holds and guards of a client know of it.

use std::sync::Arc;

use crate::clock::Clock;
use crate::resource::identity::Identity;

/// What the holds and guards of a client share. It does not keep the client alive.
#[derive(Debug)]
pub(crate) struct GuardClient {
    pub(crate) identity: Arc<Identity>,
    pub(crate) clock: Clock,
}
