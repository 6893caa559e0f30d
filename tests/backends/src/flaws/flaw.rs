//! The list of mistakes.

/// A mistake that a client's backend makes on purpose; set by [`flaw`](crate::Disturbed::flaw), one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A release frees the key, no matter which owner holds it.
    ReleaseWithoutOwnerTest,
    /// A renewal extends the hold of any owner, or makes one, and answers that the hold is still the caller's.
    RenewWithoutOwnerTest,
    /// A subscription counts as active before it is confirmed, and nobody tries again once it is.
    NoTryAfterSubscribe,
    /// The server keeps a hold for less time than the lease that was asked for.
    LeaseCutShort,
    /// An attempt adds 1, a release takes off what the client counted, and only 0 frees: one sent twice stays.
    DeltaInsteadOfCount,
    /// An owner whose attempt timed out or was dropped is never ended.
    NoCleanUp,
    /// After one failed renewal a hold is never renewed again.
    RenewalNotRetried,
    /// A waiter that subscribes while the channel is being left counts as subscribed, and hears nothing.
    UnsubscribeRace,
    /// Any acquisition of a key that this client holds is a re-entry.
    ReentryByKey,
    /// Holds never expire in the server.
    TtlForgotten,
    /// Waiters are not told that their subscription was dropped and is active again.
    NoTryAfterReconnect,
    /// A change of a semaphore or a latch counts each time that it is sent.
    ChangeCountsAgain,
    /// A semaphore's permits are given back each time that their release is sent.
    PermitsGivenAgain,
    /// Every other refusal is taken for a grant.
    RefusalTakenForGrant,
    /// A reader is let in beside a writer.
    ReaderBesideWriter,
    /// A waiter for a fair lock has no place in the server.
    PlaceNotKept,
    /// A fencing token counts on from what its client remembers, and not from what the server does.
    TokenFromMemory,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::ReleaseWithoutOwnerTest,
        Self::RenewWithoutOwnerTest,
        Self::NoTryAfterSubscribe,
        Self::LeaseCutShort,
        Self::DeltaInsteadOfCount,
        Self::NoCleanUp,
        Self::RenewalNotRetried,
        Self::UnsubscribeRace,
        Self::ReentryByKey,
        Self::TtlForgotten,
        Self::NoTryAfterReconnect,
        Self::ChangeCountsAgain,
        Self::PermitsGivenAgain,
        Self::RefusalTakenForGrant,
        Self::ReaderBesideWriter,
        Self::PlaceNotKept,
        Self::TokenFromMemory,
    ];

    /// Is it one of the server's scripts that is wrong? Such a flaw stands behind the decorator that loses and doubles
    /// commands, all others in front of it.
    pub(crate) fn is_in_a_script(self) -> bool {
        matches!(
            self,
            Self::ReleaseWithoutOwnerTest
                | Self::RenewWithoutOwnerTest
                | Self::LeaseCutShort
                | Self::DeltaInsteadOfCount
                | Self::TtlForgotten
                | Self::ChangeCountsAgain
                | Self::PermitsGivenAgain
                | Self::ReaderBesideWriter
        )
    }
}
