//! The list of mistakes.

/// A mistake that a client's backend makes on purpose. A client has at most one, set by
/// [`flaw`](crate::Disturbed::flaw).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A release frees the key, no matter which owner holds it.
    ReleaseWithoutOwnerTest,
    /// A renewal extends the hold of any owner, or creates one, and answers that the caller still holds the key.
    RenewWithoutOwnerTest,
    /// A subscription counts as active before it is confirmed, and no attempt is repeated once it is.
    NoTryAfterSubscribe,
    /// The server keeps a hold for less time than the requested lease.
    LeaseCutShort,
    /// An attempt adds 1 to the count, a release subtracts what the client counted, and only 0 frees the key: after an
    /// attempt that was sent twice, the key stays locked.
    DeltaInsteadOfCount,
    /// An owner whose attempt timed out or was dropped is never released.
    NoCleanUp,
    /// After one failed renewal, a hold is never renewed again.
    RenewalNotRetried,
    /// A waiter that subscribes while the channel is being unsubscribed counts as subscribed, but receives nothing.
    UnsubscribeRace,
    /// Every acquisition of a key that this client holds counts as a re-entry.
    ReentryByKey,
    /// Holds never expire in the server.
    TtlForgotten,
    /// Waiters are not notified when their subscription is dropped and becomes active again.
    NoTryAfterReconnect,
    /// A change of a semaphore or a latch takes effect each time it is sent.
    ChangeCountsAgain,
    /// A change of a semaphore or a latch is forgotten as soon as it is answered, though it may be sent again.
    RequestForgotten,
    /// A semaphore's permits are given back each time their release is sent.
    PermitsGivenAgain,
    /// An owner of permits that has ended is not remembered, so a late attempt of it takes them.
    EndForgotten,
    /// Every second refusal is reported as a grant.
    RefusalTakenForGrant,
    /// A reader is granted while a writer holds the lock.
    ReaderBesideWriter,
    /// A waiter for a fair lock gets no place in the server's queue.
    PlaceNotKept,
    /// A hold that is handed over is not confirmed: until a third of the lease has passed since the last renewal, an answer
    /// that the server does not have the hold is ignored.
    HandOverNotConfirmed,
    /// The client does not learn that the connection for commands was replaced.
    ReconnectUntold,
    /// When a waiter without messages looks at its key, it never sees a change.
    LookSeesNothing,
    /// A release that was answered is not sent again over another connection.
    ReleaseNotRepeated,
    /// The client stops withdrawing an attempt of unknown outcome when its lease is over. The server may carry it out later.
    DoubtEndsWithLease,
    /// An inspection shows no holder, so that a hold of a Redlock does not come back to a server that lost it.
    HoldersUnseen,
    /// A waiter for several keys stands in no line, and tries again and again whether all of them are free. A backend does
    /// not see this mistake: [`by_tries`](Self::by_tries) makes it.
    SeveralKeysByTries,
    /// A waiter that is not polled keeps its place, and a hold that reaches it. A backend does not see this mistake:
    /// [`around_waiter`](Self::around_waiter) makes it.
    UnpolledKeepsPlace,
    /// A fencing token is the client's highest one plus 1, instead of the server's.
    TokenFromMemory,
    /// A lease that is extended is not extended in the server.
    ExtensionForgotten,
    /// A detached hold that is gone can be attached all the same.
    AttachedAgain,
    /// The client has no margin, although it was given one. A backend does not see this mistake: the runs make it.
    MarginForgotten,
    /// What the server tells of tracked keys is not heard. It shows on Redis alone.
    LossUntold,
    /// Of attempts that travel together, each gets the answer of the one before it.
    AnswerOfAnother,
    /// Of operations that travel together, the first one is carried out, and all are answered as if they were.
    BatchCutInTheMiddle,
}

impl Flaw {
    /// All mistakes.
    pub const ALL: [Self; 33] = [
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
        Self::RequestForgotten,
        Self::PermitsGivenAgain,
        Self::EndForgotten,
        Self::RefusalTakenForGrant,
        Self::ReaderBesideWriter,
        Self::PlaceNotKept,
        Self::HandOverNotConfirmed,
        Self::ReconnectUntold,
        Self::LookSeesNothing,
        Self::ReleaseNotRepeated,
        Self::DoubtEndsWithLease,
        Self::HoldersUnseen,
        Self::SeveralKeysByTries,
        Self::UnpolledKeepsPlace,
        Self::TokenFromMemory,
        Self::ExtensionForgotten,
        Self::AttachedAgain,
        Self::MarginForgotten,
        Self::LossUntold,
        Self::AnswerOfAnother,
        Self::BatchCutInTheMiddle,
    ];

    /// The mistakes that the memory server does not show.
    pub const ON_REDIS: [Self; 1] = [Self::LossUntold];

    /// Whether it is a mistake of the server's scripts. Such a flaw is placed behind the decorator that injects faults,
    /// so that it sees a command that is executed twice; all others are placed in front of it.
    pub(crate) fn is_in_a_script(self) -> bool {
        matches!(
            self,
            Self::ReleaseWithoutOwnerTest
                | Self::RenewWithoutOwnerTest
                | Self::LeaseCutShort
                | Self::DeltaInsteadOfCount
                | Self::TtlForgotten
                | Self::ChangeCountsAgain
                | Self::RequestForgotten
                | Self::PermitsGivenAgain
                | Self::EndForgotten
                | Self::ReaderBesideWriter
        )
    }
}
