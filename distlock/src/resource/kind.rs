//! The kinds of primitives, and the properties of each kind.

use std::fmt;

/// The kind of a primitive, in a [`Snapshot`](crate::Snapshot).
///
/// As text a kind is the name that its lock has in this crate, for example `non_reentrant_lock`. Spans, metrics and the log
/// have the same names, and so has its serialized form, with the feature `serde`.
///
/// # Examples
/// ```
/// assert_eq!(distlock::Kind::NonReentrant.to_string(), "non_reentrant_lock");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Redisson's `RLock`.
    Reentrant,
    /// The same data as [`Reentrant`](Kind::Reentrant), but never entered twice.
    NonReentrant,
    /// The same data; its waiters poll and do not subscribe.
    Spin,
    /// The same data; each grant has a fencing token.
    Fenced,
    /// The same data; granted in the order of arrival among all clients.
    Fair,
    /// As [`Fair`](Kind::Fair), but never entered twice.
    NonReentrantFair,
    /// Redisson's read lock: many owners at once.
    Read,
    /// Redisson's write lock, on the same data.
    Write,
    /// Redisson's semaphore: a number of permits without leases.
    Semaphore,
    /// Redisson's permit-expirable semaphore: each permit has an id and a lease.
    ExpirableSemaphore,
    /// Redisson's count-down latch.
    CountDownLatch,
}

/// The table of the kinds of [`Lock`](crate::Lock): the sentence about a kind, its type, its name, and the guard of its
/// grants.
///
/// [`Mode`](crate::Mode) and the types in [`kinds`](crate::kinds) are made from these rows, and a test of `Mode` gives each
/// name to the attribute. The first row is the default.
macro_rules! lock_kinds {
    ($make:ident) => {
        $make! {
            /// [`Client::lock`](crate::Client::lock): one owner, which may enter again inside its scope.
            Reentrant, reentrant, Guard;
            /// [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock): one owner, which may not enter again.
            NonReentrant, non_reentrant, Guard;
            /// [`Client::spin_lock`](crate::Client::spin_lock): one owner; waiters poll and do not subscribe.
            Spin, spin, Guard;
            /// [`Client::fenced_lock`](crate::Client::fenced_lock): each grant has a fencing token. It locks a single key.
            Fenced, fenced, FencedGuard;
            /// [`Client::fair_lock`](crate::Client::fair_lock): granted in the order of arrival among all clients.
            Fair, fair, Guard;
            /// [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock): granted in the order of
            /// arrival; its owner may not enter again.
            NonReentrantFair, non_reentrant_fair, Guard;
            /// The read side of [`Client::rw_lock`](crate::Client::rw_lock): any number of readers, if there is no writer.
            Read, read, Guard;
            /// The write side of [`Client::rw_lock`](crate::Client::rw_lock): one writer, if there are no readers.
            Write, write, Guard;
        }
    };
}
pub(crate) use lock_kinds;

/// Kinds that store the same data under one key, so that they exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    /// A hash of owners.
    Lock,
    /// A hash of owners and a mode.
    ReadWrite,
    /// A number.
    Semaphore,
    /// A number, and a sorted set of permits.
    Permit,
    /// A number.
    Latch,
}

/// Where the waiters for a key are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// In this client: only the first waiter asks the server.
    Local,
    /// As [`Local`](Line::Local), but a grant does not exclude other owners. If no other acquisition waits, a new one
    /// asks the server at once.
    Shared,
    /// In the server: each waiter asks on its own.
    Server,
}

/// What an acquisition does inside a scope that holds the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// It enters the scope's hold once more.
    Again,
    /// It is a separate hold, which the server admits beside the scope's hold.
    Inside,
    /// It is independent of the scope's hold.
    Apart,
    /// It would wait for itself, for this reason.
    Never(&'static str),
}

impl Kind {
    /// How many there are: the variant named here is the last one.
    #[cfg(feature = "metrics")]
    pub(crate) const NUMBER: usize = Self::CountDownLatch as usize + 1;

    /// The name in logs and metrics: that of the method which makes it, or of the side of a read/write lock.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reentrant => "lock",
            Self::NonReentrant => "non_reentrant_lock",
            Self::Spin => "spin_lock",
            Self::Fenced => "fenced_lock",
            Self::Fair => "fair_lock",
            Self::NonReentrantFair => "non_reentrant_fair_lock",
            Self::Read => "read_lock",
            Self::Write => "write_lock",
            Self::Semaphore => "semaphore",
            Self::ExpirableSemaphore => "expirable_semaphore",
            Self::CountDownLatch => "count_down_latch",
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Reentrant
            | Self::NonReentrant
            | Self::Spin
            | Self::Fenced
            | Self::Fair
            | Self::NonReentrantFair => Family::Lock,
            Self::Read | Self::Write => Family::ReadWrite,
            Self::Semaphore => Family::Semaphore,
            Self::ExpirableSemaphore => Family::Permit,
            Self::CountDownLatch => Family::Latch,
        }
    }

    /// The kinds that store the same data under one key, this one included.
    pub(crate) fn same_data(self) -> &'static [Self] {
        match self.family() {
            Family::Lock => &[
                Self::Reentrant,
                Self::NonReentrant,
                Self::Spin,
                Self::Fenced,
                Self::Fair,
                Self::NonReentrantFair,
            ],
            Family::ReadWrite => &[Self::Read, Self::Write],
            Family::Semaphore => &[Self::Semaphore],
            Family::Permit => &[Self::ExpirableSemaphore],
            Family::Latch => &[Self::CountDownLatch],
        }
    }

    pub(crate) fn line(self) -> Line {
        match self {
            Self::Reentrant | Self::NonReentrant | Self::Spin | Self::Fenced | Self::Write => {
                Line::Local
            }
            Self::Read | Self::Semaphore | Self::ExpirableSemaphore | Self::CountDownLatch => {
                Line::Shared
            }
            Self::Fair | Self::NonReentrantFair => Line::Server,
        }
    }

    /// Whether the server grants it in the order of its own queue.
    pub(crate) fn is_fair(self) -> bool {
        self.line() == Line::Server
    }

    /// Whether a release may hand the hold over to the next local waiter without asking the server.
    ///
    /// It may not if the order of arrival is global, if each grant needs its own fencing token, or if grants do not
    /// exclude each other.
    pub(crate) fn hands_over(self) -> bool {
        matches!(
            self,
            Self::Reentrant | Self::NonReentrant | Self::Spin | Self::Write
        )
    }

    /// Whether its data is only a hash of owners, so that one command can acquire several keys.
    pub(crate) fn is_plain_lock(self) -> bool {
        matches!(self, Self::Reentrant | Self::NonReentrant | Self::Spin)
    }

    /// Whether a release that meets a value of another type has met it under the key of its owners.
    pub(crate) fn is_one_value(self) -> bool {
        match self.family() {
            Family::Lock => !self.is_fair(),
            Family::ReadWrite => true,
            Family::Semaphore | Family::Permit | Family::Latch => false,
        }
    }

    /// Whether its holds have a lease and end by themselves. Permits of a plain semaphore do not.
    pub(crate) fn has_lease(self) -> bool {
        self != Self::Semaphore
    }

    /// Whether its waiters subscribe to messages.
    pub(crate) fn listens(self) -> bool {
        self != Self::Spin
    }

    /// Whether the server keeps a record of each waiter. A waiter then has to report at intervals, and has to tell the
    /// server when it gives up.
    pub(crate) fn queues_in_server(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair | Self::Write)
    }

    /// Whether several branches of one scope, and so all local waiters, can hold it at the same time.
    pub(crate) fn is_shared(self) -> bool {
        self == Self::Read
    }

    /// What acquiring this kind does inside a scope that holds the same key as the kind `outer`.
    pub(crate) fn within(self, outer: Self) -> Nesting {
        use Kind::{Fair, Fenced, NonReentrant, NonReentrantFair, Read, Reentrant, Spin, Write};
        match (self, outer) {
            (Reentrant, Reentrant)
            | (Spin, Spin)
            | (Fenced, Fenced)
            | (Fair, Fair)
            | (Read, Read)
            | (Write, Write) => Nesting::Again,
            (Read, Write) => Nesting::Inside,
            (Write, Read) => {
                Nesting::Never("a write lock cannot be taken inside a read of the same key")
            }
            (NonReentrant, NonReentrant) | (NonReentrantFair, NonReentrantFair) => {
                Nesting::Never("a non-reentrant lock cannot be entered again inside its own scope")
            }
            _ if self.is_lock() && outer.is_lock() => {
                Nesting::Never("an enclosing scope holds this key as another kind of lock")
            }
            _ => Nesting::Apart,
        }
    }

    /// Whether its key can stay locked for a while after its hold has ended.
    pub(crate) fn supports_hold_at_least(self) -> bool {
        self.is_plain_lock() || self == Self::Fenced
    }

    /// Whether its data is a hash of owners.
    fn is_lock(self) -> bool {
        matches!(self.family(), Family::Lock | Family::ReadWrite)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::mode::Mode;

    #[test]
    fn names_of_kinds_and_modes_fill_a_width() {
        assert_eq!(format!("{:<6}|", Kind::Reentrant), "lock  |");
        assert_eq!(format!("{:>6}", Mode::Fair), "  fair");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn kind_is_serialized_as_its_text() {
        let json = serde_json::to_string(&Kind::Read).unwrap();
        assert_eq!(json, format!("\"{}\"", Kind::Read));
    }

    #[test]
    fn nesting_is_again_inside_apart_or_never() {
        for (inner, outer, nesting) in [
            (Kind::Reentrant, Kind::Reentrant, Nesting::Again),
            (Kind::Read, Kind::Write, Nesting::Inside),
            (Kind::Semaphore, Kind::Semaphore, Nesting::Apart),
            (Kind::Semaphore, Kind::Reentrant, Nesting::Apart),
        ] {
            assert_eq!(inner.within(outer), nesting, "{inner:?} in {outer:?}");
        }
        for (inner, outer) in [
            (Kind::Write, Kind::Read),
            (Kind::NonReentrant, Kind::NonReentrant),
            (Kind::Fair, Kind::Reentrant),
            (Kind::Read, Kind::Reentrant),
        ] {
            let nesting = inner.within(outer);
            assert!(
                matches!(nesting, Nesting::Never(_)),
                "{inner:?} in {outer:?}"
            );
        }
    }
}
