//! Which primitive a hold is of, and how the mechanism treats it, as data.

/// A primitive, as the mechanism and the backends tell it apart.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only tests name it")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Redisson's `RLock`.
    Reentrant,
    /// The same data, never entered twice.
    NonReentrant,
    /// The same data, waited for without messages.
    Spin,
    /// The same data, and a fencing token with each grant.
    Fenced,
    /// The same data, granted in the order of arrival among all clients.
    Fair,
    /// The same data and order, never entered twice.
    NonReentrantFair,
    /// Redisson's read lock: many owners at once.
    Read,
    /// Redisson's write lock, on the same data.
    Write,
    /// Redisson's semaphore: a number of permits, without a lease.
    Semaphore,
    /// Redisson's permit-expirable semaphore: each permit has an id and a lease.
    Permit,
    /// Redisson's count-down latch.
    Latch,
}

/// Kinds that keep the same data under one key, and so stand in each other's way.
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

/// Where those stand in line who wait for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// In this client, one behind the other: only the first asks the server.
    Local,
    /// As [`Local`](Line::Local), but a grant does not keep others out: while nobody stands in line, whoever comes asks.
    Shared,
    /// In the server, each by itself.
    Server,
}

/// What acquiring a key within a scope that holds the same key comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// It enters the hold of the scope again.
    Again,
    /// It is a hold of its own, which the scope's lets in.
    Inside,
    /// It has nothing to do with the scope's hold.
    Apart,
    /// It would wait for itself: why.
    Never(&'static str),
}

impl Kind {
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
            Self::Permit => Family::Permit,
            Self::Latch => Family::Latch,
        }
    }

    pub(crate) fn line(self) -> Line {
        match self {
            Self::Reentrant | Self::NonReentrant | Self::Spin | Self::Fenced | Self::Write => {
                Line::Local
            }
            Self::Read | Self::Semaphore | Self::Permit | Self::Latch => Line::Shared,
            Self::Fair | Self::NonReentrantFair => Line::Server,
        }
    }

    /// Is it granted in the order of arrival, as the server's own queue has it?
    pub(crate) fn is_fair(self) -> bool {
        self.line() == Line::Server
    }

    /// May a release give the hold to the next local waiter, without the backend?
    ///
    /// Not where arrival order is global, nor where each grant needs a token of its own, nor where a grant does not keep
    /// the next one out.
    pub(crate) fn hands_over(self) -> bool {
        matches!(
            self,
            Self::Reentrant | Self::NonReentrant | Self::Spin | Self::Write
        )
    }

    /// Is it a hash of owners and nothing else, so that several go in one command?
    pub(crate) fn is_plain_lock(self) -> bool {
        matches!(self, Self::Reentrant | Self::NonReentrant | Self::Spin)
    }

    /// Does a hold of it end by itself? Permits of a plain semaphore have no lease.
    pub(crate) fn has_lease(self) -> bool {
        self != Self::Semaphore
    }

    /// Do its waiters listen for messages?
    pub(crate) fn listens(self) -> bool {
        self != Self::Spin
    }

    /// Does the server know of those who wait? Then it must be told of each that gives up, and hear from each now and
    /// then.
    pub(crate) fn has_places(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair | Self::Write)
    }

    /// Can branches of one scope have it at once, and so all who wait in line, too?
    pub(crate) fn is_shared(self) -> bool {
        self == Self::Read
    }

    /// What acquiring this kind comes to inside a scope that holds the same key as `outer`.
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
                Nesting::Never("the scope around holds this key as another kind of lock")
            }
            _ => Nesting::Apart,
        }
    }

    /// Can its key stay taken for a while though its hold has ended?
    pub(crate) fn supports_hold_at_least(self) -> bool {
        self.is_plain_lock() || self == Self::Fenced
    }

    /// Is it kept in a hash of owners?
    fn is_lock(self) -> bool {
        matches!(self.family(), Family::Lock | Family::ReadWrite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
