use std::fmt;

/// How a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ended by this process's clock, and no renewal was confirmed before.
    Expired,
    /// The server answered that the hold no longer exists: it expired, it was force-released, or the server lost its
    /// data.
    Gone,
    /// The watchdog stopped renewing the hold because its [`max_hold`](crate::Acquire::max_hold) was over.
    HeldTooLong,
    /// The caller waited for a [`CountDownLatch`](crate::CountDownLatch), a [`Semaphore`](crate::Semaphore) or an
    /// [`ExpirableSemaphore`](crate::ExpirableSemaphore), and its number is gone from the server: it was deleted, or the
    /// server lost its data. Nothing is held. A latch may also have reached 0 while this client was not connected.
    NumberGone,
    /// The client has another identity than the one that acquired the hold: its process was copied (`fork`), or
    /// [`Client::renew_identity`](crate::Client::renew_identity) was called. The hold is left to the original process, and
    /// nothing is sent for it.
    NewIdentity,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ended before it was released",
            Self::Gone => "the server no longer knows the hold",
            Self::HeldTooLong => "it was held for longer than its `max_hold`",
            Self::NumberGone => "its number is gone from the server",
            Self::NewIdentity => {
                "it belongs to the process that this one is a copy of, or to a former identity of the client"
            }
        })
    }
}
