use std::fmt;

/// How a hold was lost.
///
/// As text it is a sentence for people, which may change. Programs that read the serialized form of a
/// [`LossSnapshot`](crate::LossSnapshot) compare its [`name`](Loss::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// [`ExpirableSemaphore`](crate::ExpirableSemaphore), and its number is gone from the server: it was deleted, it
    /// [expired](crate::CountDownLatch::expire_after), or the server lost its data. Nothing is held.
    NumberGone,
    /// The same for a [`CountDownLatch`](crate::CountDownLatch), which may also have reached 0: another library counted while
    /// this client was not connected, and the client may not ask whether the server is the same as before. The user needs
    /// the right `+info` for that.
    NumberGoneUnseen,
    /// The client has another identity than the one that acquired the hold: its process was copied (`fork`), or
    /// [`Client::renew_identity`](crate::Client::renew_identity) was called. The hold is left to the original process, and
    /// nothing is sent for it.
    NewIdentity,
}

impl Loss {
    /// Returns the name of the variant in snake case: `"held_too_long"`, for example. Names do not change. The metric
    /// `distlock_losses_total` and the serialized form of a [`LossSnapshot`](crate::LossSnapshot) have them too.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(distlock::Loss::HeldTooLong.name(), "held_too_long");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::HeldTooLong => "held_too_long",
            Self::NumberGone => "number_gone",
            Self::NumberGoneUnseen => "number_gone_unseen",
            Self::NewIdentity => "new_identity",
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Loss {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
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
            Self::NumberGoneUnseen => {
                "its number is gone from the server, and whether the latch was opened or lost cannot be told: messages were \
                 missed, and the server does not say whether it was restarted (the user needs the right `+info`)"
            }
        })
    }
}
