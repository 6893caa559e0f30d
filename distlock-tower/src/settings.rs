//! What a layer, its services and their requests share.

use std::fmt;
use std::time::Duration;

use distlock::Client;

use crate::key::ErasedKey;

/// What a layer was set to.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) client: Client,
    pub(crate) key: ErasedKey,
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
}

impl Settings {
    pub(crate) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("client", &self.client)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
