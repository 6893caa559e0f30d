//! The registry of a client, and the one that takes its place when the client has another identity.
//!
//! A copy of a process (`fork`) has the memory of the original: its ids, its sockets, and what it holds. So a client looks before
//! each operation whether it is in a copy. A client in a copy starts again, with a new id, new connections and new
//! queues, and does not touch the former registry. [`Client::renew_identity`](crate::Client::renew_identity) does the same.
//!
//! Nothing here waits for a mutex: a copy has no thread that would unlock it.

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use scopeguard::defer;

use super::Registry;
use crate::error::Error;
use crate::resource::identity::Process;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::telemetry;

/// Makes a registry with a new identity and with connections of its own.
type MakeRegistry = Box<dyn Fn() -> Result<Arc<Registry>, Error> + Send + Sync>;

/// The registry of a client, under the identity that the client has now.
pub(crate) struct Lives {
    now: ArcSwap<Registry>,
    /// The process that has made the client.
    made_by: Process,
    /// The process for which the last look has found `now` valid; 0 if there was none since a registry was made or given up.
    process: AtomicU32,
    /// Whether the program has closed the client. A registry is also closed while the client cannot be made again.
    is_closed: AtomicBool,
    make: MakeRegistry,
}

// A panic leaves nothing half-changed here: a registry is replaced as a whole.
impl RefUnwindSafe for Lives {}

impl Lives {
    /// `first` was made as `make` does it.
    pub(crate) fn new(first: Arc<Registry>, make: MakeRegistry) -> Arc<Self> {
        Arc::new(Self {
            process: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            now: ArcSwap::new(first),
            made_by: Process::here(),
            make,
        })
    }

    /// The registry of this process. Every operation of a client begins here.
    pub(crate) fn current(&self) -> Arc<Registry> {
        let now = self.latest();
        if now.session.identity.is_valid() {
            now
        } else {
            // If it fails, the former one is closed, and the next operation tries again.
            let _made = self.replace(&now);
            self.latest()
        }
    }

    /// The registry as the last check of the process has left it.
    pub(crate) fn latest(&self) -> Arc<Registry> {
        self.now.load_full()
    }

    /// The same, for a short look.
    pub(crate) fn peek(&self) -> impl Deref<Target = Arc<Registry>> {
        self.now.load()
    }

    /// Starts again if this is a copy of the process that the registry belongs to.
    pub(crate) fn look(&self) {
        let process = self.made_by.current();
        // Relaxed, here and below: it only saves the closer look, which an acquisition also takes before it fails as closed.
        if self.process.load(Ordering::Relaxed) != process
            && self.current().session.identity.is_valid()
        {
            self.process.store(process, Ordering::Relaxed);
        }
    }

    /// Gives the client another identity.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        self.replace(&self.latest())
    }

    /// Closes the client, under this identity and all later ones. Returns the registry that has what it still holds.
    pub(crate) fn close(&self) -> Arc<Registry> {
        // Here and in `replace`, the flag is read and written in one step, so one of the two steps comes first. AcqRel: either
        // this finds the new registry, or `replace` finds the client closed.
        self.is_closed.swap(true, Ordering::AcqRel);
        let registry = self.current();
        registry.close();
        registry
    }

    /// Replaces this registry by a new one, unless another thread has done that.
    fn replace(&self, former: &Arc<Registry>) -> Result<(), Error> {
        let new = match (self.make)() {
            Ok(new) => new,
            Err(error) => {
                if !former.session.identity.is_given_up() {
                    // Each look tries again. Relaxed: the flag only decides whether to try.
                    self.process.store(0, Ordering::Relaxed);
                    former.give_up();
                    telemetry::identity_failed(former.session.id, &error);
                }
                return Err(error);
            }
        };
        // If another thread was faster, the registry that was made here is dropped unused.
        let before = self.now.compare_and_swap(former, Arc::clone(&new));
        if Arc::ptr_eq(&before, former) {
            self.end(former, &new);
            // Last: a subscriber of the log may panic.
            telemetry::identity_renewed(former.session.id, new.session.id);
        }
        Ok(())
    }

    /// Ends the former registry, whose place a new one has taken, and hands on what outlives it.
    fn end(&self, former: &Registry, new: &Registry) {
        // Each of them, in the opposite order, also if foreign code panics before: nobody else does it.
        defer! { new.session.losses.take(&former.session.losses); }
        defer! { former.give_up(); }
        // A client that the program has closed stays closed under its new identity. AcqRel: see `close`.
        if self.is_closed.fetch_or(false, Ordering::AcqRel) {
            new.close();
        }
    }
}

/// Carries out an operation that may wait, and calls `look` before each of its polls.
pub(crate) fn watching<F: Future>(
    look: impl Fn(),
    mut operation: Pin<&mut F>,
) -> impl Future<Output = F::Output> {
    poll_fn(move |cx| {
        look();
        operation.as_mut().poll(cx)
    })
}

impl fmt::Debug for Lives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lives")
            .field("now", &self.latest().session.id)
            .finish_non_exhaustive()
    }
}
