//! Which replicas and disks confirm each grant.

use std::time::Duration;

use super::constants::MAX_WAIT;
use crate::error::Error;

/// How many replicas of its server confirm each grant. See [`Builder::replicas`](crate::Builder::replicas).
///
/// # Examples
/// ```
/// use distlock::Replicas;
///
/// assert_eq!(Replicas::from(2), Replicas::Count(2));
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Replicas {
    /// So many, at least 1. If fewer are connected, nothing is granted.
    Count(u32),
    /// As many as are connected to the server at that moment. If there are none, nobody has to confirm. Redisson waits for
    /// as many outside of a single server, but takes the grant if one of them confirms.
    Connected,
}

impl From<u32> for Replicas {
    fn from(count: u32) -> Self {
        Self::Count(count)
    }
}

/// What has to confirm each grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    pub(crate) replicas: Replicas,
    /// How long they may take.
    pub(crate) timeout: Duration,
    /// Whether the grant has to be on the disks where the server has an append-only file.
    pub(crate) on_disk: bool,
}

impl Confirmation {
    pub(super) fn check(self) -> Result<(), Error> {
        if let Replicas::Count(count @ 0) = self.replicas {
            return Err(Error::invalid_config("replicas", count, "1 or more"));
        }
        // WAIT counts in milliseconds, and takes 0 for no limit.
        if self.timeout < Duration::from_millis(1) || self.timeout > MAX_WAIT {
            return Err(Error::invalid_time(
                "replicas_timeout",
                self.timeout,
                "1ms to 365days",
            ));
        }
        Ok(())
    }
}
