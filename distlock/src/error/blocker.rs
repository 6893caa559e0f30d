use std::fmt;
use std::time::Duration;

use super::text::show;

/// What blocked an acquisition that timed out. For one that still waits, see [`BlockedBy`](crate::BlockedBy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blocker {
    /// Another owner holds the lock. The duration is the rest of its lease, which the owner may renew. It is `None` if
    /// the end of the hold is not known.
    Owner(Option<Duration>),
    /// Another acquisition of the same client was ahead in the queue. The duration is the rest of the holder's lease, as
    /// the first acquisition in the queue last heard of it. It is `None` if it has heard nothing, or no end is known.
    Queue(Option<Duration>),
    /// Another branch of the same scope, for example of a `join!`, had entered the lock.
    Sibling,
    /// The semaphore had no permits yet, because nobody had set them.
    PermitsNotSet,
    /// The count of a latch had not reached 0. The number is the count that was seen last.
    Count(u64),
    /// The server had not answered yet. The wait was too short to tell a slow answer from an outage, for which the client needs 500 ms
    /// without an answer, or a quarter of a [`response_timeout`](crate::Builder::response_timeout) below 2 s. Or the acquisition stood
    /// behind another one of its client, which had no answer in all that time either.
    Unanswered,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(Some(ttl)) => {
                write!(f, "its lease has {} left unless renewed", show(*ttl))
            }
            Self::Owner(None) => f.write_str("its hold has no known end"),
            Self::Queue(_) => f.write_str("behind other waiters of this client"),
            Self::Sibling => f.write_str("held by a sibling branch of the same scope"),
            Self::PermitsNotSet => f.write_str("which has no permits yet: nobody has set them"),
            Self::Count(count) => write!(f, "whose count was still {count}"),
            Self::Unanswered => f.write_str("which the server had not answered for yet"),
        }
    }
}
