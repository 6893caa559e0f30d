//! Mistakes that a lock like this can have, to be made on purpose: what looks for them must find each.
//!
//! Most are decorators around the backend. The few that lie above it are switches in the core, each one line, that cost
//! nothing without the feature `test-util`: [`Config::has`](crate::config::Config::has) is constant there.

/// A mistake that a client makes on purpose; set by the builder's `flaw`, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(feature = "test-util"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "nobody makes mistakes on purpose there"
    )
)]
pub enum Flaw {
    /// A release frees the key, whoever holds it.
    ReleaseWithoutOwnerTest,
    /// A renewal extends whatever hold there is, or makes one, and says that it is still ours.
    RenewWithoutOwnerTest,
    /// A subscription counts as standing while it is still on its way, and nobody tries again once it stands.
    NoTryAfterSubscribe,
    /// A deadline counts from the answer, for grants and renewals.
    DeadlineFromReply,
    /// An attempt adds 1, a release takes off what the client counted, and only 0 frees: one sent twice stays.
    DeltaInsteadOfCount,
    /// The waiter at the head of the queue leaves with its wake-up, or with the hold that was handed to it.
    WakeUpNotPassedOn,
    /// The watchdog files holds by key: the end of a lost hold takes the entry of the next one on its key away.
    WatchdogByKey,
    /// An owner whose attempt timed out or was dropped is never ended.
    NoCleanUp,
    /// After one failed renewal a hold is never renewed again.
    RenewalNotRetried,
    /// Who subscribes while the last share is just being given up counts as subscribed, and hears nothing.
    UnsubscribeRace,
    /// Any acquisition of a key that this client holds is a re-entry.
    ReentryByKey,
    /// Holds have no end in the server.
    TtlForgotten,
    /// Whoever waits is not told that its subscription fell and stands again.
    NoTryAfterReconnect,
    /// A hold is handed over however little of its lease is left, one with a fixed lease too.
    HandOverOfExpiringHold,
    /// A guard whose hold was handed over releases it in the server all the same.
    FormerOwnerReleases,
    /// A change of a semaphore or a latch counts each time that it is sent.
    ChangeCountsAgain,
    /// A semaphore's permits are given back each time that their release is sent.
    PermitsGivenAgain,
    /// A Redlock is granted by one server less than a majority.
    MinorityIsEnough,
    /// A reader is let in beside a writer.
    ReaderBesideWriter,
    /// Whoever waits for a fair lock has no place in the server.
    PlaceNotKept,
    /// A fencing token counts on from what its client remembers, and not from what the server does.
    TokenFromMemory,
}

impl Flaw {
    /// All of them.
    #[cfg(feature = "test-util")]
    pub const ALL: [Self; 21] = [
        Self::ReleaseWithoutOwnerTest,
        Self::RenewWithoutOwnerTest,
        Self::NoTryAfterSubscribe,
        Self::DeadlineFromReply,
        Self::DeltaInsteadOfCount,
        Self::WakeUpNotPassedOn,
        Self::WatchdogByKey,
        Self::NoCleanUp,
        Self::RenewalNotRetried,
        Self::UnsubscribeRace,
        Self::ReentryByKey,
        Self::TtlForgotten,
        Self::NoTryAfterReconnect,
        Self::HandOverOfExpiringHold,
        Self::FormerOwnerReleases,
        Self::ChangeCountsAgain,
        Self::PermitsGivenAgain,
        Self::MinorityIsEnough,
        Self::ReaderBesideWriter,
        Self::PlaceNotKept,
        Self::TokenFromMemory,
    ];

    /// Is it one of the server's scripts that is wrong? What loses and doubles commands stands before those.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_in_a_script(self) -> bool {
        matches!(
            self,
            Self::ReleaseWithoutOwnerTest
                | Self::RenewWithoutOwnerTest
                | Self::DeltaInsteadOfCount
                | Self::TtlForgotten
                | Self::ChangeCountsAgain
                | Self::PermitsGivenAgain
                | Self::ReaderBesideWriter
        )
    }
}
