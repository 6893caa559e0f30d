//! Who a client is: a random id, and the process to which the id belongs.
//!
//! A copy of a process (`fork`) has the same memory, so it would have the same id. The copy takes another id and leaves everything
//! of the first one alone. The C library tells a copy that it is one, unless a bare system call made it. So the operating system is
//! asked for the number of the process before anything is sent, and wherever that is not too slow.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forkguard::Guard as ForkGuard;
use uuid::{Builder, Uuid};

/// The process that has made something.
#[derive(Debug)]
pub(crate) struct Process {
    number: u32,
    forks: ForkGuard,
}

impl Process {
    /// The process that calls.
    ///
    /// # Panics
    /// If the C library has no memory to remember that it has to tell a copy.
    pub(crate) fn here() -> Self {
        Self {
            number: process::id(),
            forks: ForkGuard::default(),
        }
    }

    /// The number of the process that calls. Asks the operating system in a copy only.
    pub(crate) fn current(&self) -> u32 {
        // A clone: the guard itself goes on telling that this is a copy.
        if self.forks.clone().detected_fork() {
            process::id()
        } else {
            self.number
        }
    }

    /// Whether this process calls. Asks the operating system each time.
    fn is_here(&self) -> bool {
        self.number == process::id()
    }
}

/// An id, and the process that has it.
#[derive(Debug)]
pub(crate) struct Identity {
    id: Uuid,
    process: Process,
    is_given_up: AtomicBool,
}

impl Identity {
    /// A new identity of this process.
    ///
    /// # Panics
    /// If the operating system has no random bytes. Without them no id is unique.
    pub(crate) fn new() -> Arc<Self> {
        Self::of(random_id())
    }

    /// This process under a given id.
    pub(crate) fn of(id: Uuid) -> Arc<Self> {
        Arc::new(Self {
            id,
            process: Process::here(),
            is_given_up: AtomicBool::new(false),
        })
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Whether the client may act under this identity: it was not given up, and this is not a copy of its process.
    pub(crate) fn is_valid(&self) -> bool {
        !self.is_given_up() && self.is_of_this_process()
    }

    /// Whether this process has made it. Asks the operating system each time.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_here()
    }

    /// Whether nothing may be done under this identity, as far as this process knows without asking the operating system.
    pub(crate) fn is_known_invalid(&self) -> bool {
        self.is_given_up() || self.is_known_copy()
    }

    /// Whether this process knows that it is a copy of the one that has made it.
    pub(crate) fn is_known_copy(&self) -> bool {
        self.process.current() != self.process.number
    }

    pub(crate) fn is_given_up(&self) -> bool {
        // Acquire: pairs with `give_up`.
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Nothing is sent under this identity from now on.
    pub(crate) fn give_up(&self) {
        // Release: a thread that finds the identity given up also finds what was done before.
        self.is_given_up.store(true, Ordering::Release);
    }
}

/// A random id. Its version is 8, which is for ids of one's own kind. Those of Redisson have version 4.
///
/// The bytes are the operating system's own: a generator in this process is copied with the process, and both copies go on
/// with the same numbers.
pub(crate) fn random_id() -> Uuid {
    let mut bytes = [0; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system has no random bytes for an id: {error}");
    }
    Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_none_of_redisson() {
        let one = Identity::new();
        let two = Identity::new();
        assert_ne!(one.id(), two.id());
        let version = one.id().get_version_num();
        assert_eq!(
            (version, one.id().get_variant()),
            (8, uuid::Variant::RFC4122)
        );
    }

    #[test]
    fn identity_is_valid_until_it_is_given_up() {
        let identity = Identity::new();
        assert!(identity.is_valid());
        identity.give_up();
        assert!(!identity.is_valid() && identity.is_of_this_process());
    }

    #[test]
    fn identity_of_another_process_is_not_valid() {
        let identity = Identity {
            id: random_id(),
            process: Process {
                number: process::id() + 1,
                ..Process::here()
            },
            is_given_up: AtomicBool::new(false),
        };
        assert!(!identity.is_valid());
    }
}
