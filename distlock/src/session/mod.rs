//! What one client keeps: its id, its clock and its backend, the holds it has, and the tasks that serve them.
//!
//! A client may outlive a runtime, such as a `static` client in several `#[tokio::test]`s. All state is kept here and not
//! in the tasks. If a task ended with its runtime, the next call starts it again in the caller's runtime, and nothing is
//! lost.

mod callbacks;
mod free;
mod losses;
mod outage;
mod owners;
mod peek;
mod per_server;
mod release;
mod retirement;
mod retry;
mod seen_names;
mod seen_numbers;
mod seen_tokens;
mod tasks;
mod tracking;
mod unguarded;
mod watchdog;

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use scopeguard::defer;
use uuid::Uuid;

pub(crate) use self::callbacks::Callbacks;
use self::free::FreeWatches;
pub(crate) use self::free::{FreeAnswer, FreeWaiter, Looked, SeenHolder, look};
use self::losses::Losses;
use self::outage::Outages;
use self::owners::Owners;
use self::peek::Peeks;
pub(crate) use self::peek::{next_peek, over_at};
use self::release::Releaser;
pub(crate) use self::release::{Ending, PendingRelease, Release, release_several};
use self::retirement::Retirement;
pub(crate) use self::retry::Retry;
use self::seen_names::SeenNames;
use self::seen_numbers::SeenNumbers;
use self::seen_tokens::SeenTokens;
pub(crate) use self::tasks::HoldTask;
use self::tasks::Tasks;
use self::tracking::Tracking;
use self::unguarded::Cells;
pub(crate) use self::unguarded::{AbsentAcquisition, Unguarded};
pub(crate) use self::watchdog::Watchdog;
use crate::backend::{Backend, Peeked, Target};
use crate::clock::{Clock, Tick};
use crate::config::{COPIED_MUTEX, Config};
use crate::error::{Blocker, Error, HeldBy, Loss};
use crate::hold::{GuardClient, Hold};
use crate::resource::identity::Identity;
use crate::resource::key::Key;
use crate::resource::owner::Owner;
use crate::sync::{Flag, OnceLock, foreign};
use crate::telemetry;

/// The part of a client that its holds need.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    /// The client, as long as this is its process and it has not taken another identity.
    pub(crate) identity: Arc<Identity>,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) of_guards: Arc<GuardClient>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) watchdog: Watchdog,
    pub(crate) tracking: Tracking,
    pub(crate) releaser: Releaser,
    peeks: Peeks,
    pub(crate) free: FreeWatches,
    unguarded: Cells,
    pub(crate) losses: Losses,
    pub(crate) owners: Owners,
    pub(crate) tokens: SeenTokens,
    pub(crate) numbers: SeenNumbers,
    pub(crate) names: SeenNames,
    tasks: Tasks,
    pub(crate) outages: Outages,
    retirement: Retirement,
    /// Empty until the registry is made.
    callbacks: OnceLock<Weak<dyn Callbacks>>,
    /// Set when the client is closed, or has another identity. From then on acquisitions are refused.
    pub(crate) closed: Flag,
    /// Set when the client has another identity.
    pub(crate) given_up: Flag,
}

impl Session {
    /// The backend has the same identity.
    pub(crate) fn new(
        identity: Arc<Identity>,
        config: Config,
        clock: Clock,
        backend: Arc<dyn Backend>,
    ) -> Arc<Self> {
        let of_guards = GuardClient {
            identity: Arc::clone(&identity),
            clock: clock.clone(),
        };
        Arc::new(Self {
            id: identity.id(),
            tracking: Tracking::new(backend.tracks(), &clock),
            outages: Outages::new(&backend, &clock, &config),
            owners: Owners::new(identity.id()),
            names: SeenNames::new(identity.id(), config.name.clone()),
            retirement: Retirement::new(&identity, config.watchdog_timeout),
            identity,
            config,
            clock,
            of_guards: Arc::new(of_guards),
            backend,
            watchdog: Watchdog::default(),
            releaser: Releaser::default(),
            peeks: Peeks::default(),
            free: FreeWatches::default(),
            unguarded: Cells::default(),
            losses: Losses::default(),
            tokens: SeenTokens::default(),
            numbers: SeenNumbers::default(),
            tasks: Tasks::default(),
            callbacks: OnceLock::new(),
            closed: Flag::default(),
            given_up: Flag::default(),
        })
    }

    /// Sets what this session calls when a hold is over, and when its waiters have to be checked.
    pub(crate) fn set_callbacks(&self, callbacks: Weak<dyn Callbacks>) {
        // The session has one registry, which sets them once.
        let _first = self.callbacks.set(callbacks);
    }

    fn callbacks(&self) -> Option<Arc<dyn Callbacks>> {
        self.callbacks.get().and_then(Weak::upgrade)
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// The error for a wait for this key that has lasted for its time, with the name of the client that has the key.
    pub(crate) fn timed_out(
        &self,
        key: &Key,
        waited: Duration,
        blocker: Blocker,
        mut holder: Option<Box<HeldBy>>,
    ) -> Error {
        if let Some(holder) = &mut holder {
            self.names.add_to(holder);
        }
        Error::Timeout {
            key: key.text().to_owned(),
            waited,
            blocker,
            holder,
        }
    }

    /// Gives a granted hold to the watchdog.
    pub(crate) fn watch(self: &Arc<Self>, hold: &Arc<Hold>) {
        // A rule of tests/model: connection_is_compared_once_the_hold_is_watched.
        if self.watchdog.watch(hold, hold.next_check()) {
            hold.meter.hold_began();
            telemetry::granted(&hold.resource, hold.owner(), hold.token());
            self.tracking.began(&hold.resource);
        }
        // Compared after the hold is watched: `reconnected` finds it if the connection is replaced later.
        self.doubt_of_other_connection(hold);
        self.tend_tasks();
    }

    /// Asks the server for a hold at once, because something shows that the server may have lost it.
    pub(crate) fn verify(self: &Arc<Self>, hold: &Arc<Hold>) {
        hold.verify(self.now());
        self.schedule_check(hold);
    }

    /// Asks the server for a hold at once if it was granted, or asked for last, over another connection than the present
    /// one.
    fn doubt_of_other_connection(&self, hold: &Hold) {
        // A rule of tests/model: holds_are_asked_for_again.
        if hold
            .asked_over
            .is_new(self.backend.epoch(&hold.resource.key))
        {
            hold.verify(self.now());
            self.watchdog.schedule_next_check(hold);
        }
    }

    /// A connection was re-established. The server behind it may have lost what it had granted, and may have again what was
    /// released. The client renews all holds of that server and repeats its recent releases.
    fn reconnected(self: &Arc<Self>) {
        // A rule of tests/model: releases_are_said_again.
        for hold in self.watchdog.holds() {
            self.doubt_of_other_connection(&hold);
        }
        let epoch = |key: &Key| self.backend.epoch(key);
        for pending in self.releaser.remembered.take_of_others(epoch, self.now()) {
            self.release_later(pending);
        }
    }

    /// How many guards the hold of this owner has, if the owner is of this client. The server may not have heard of it yet.
    pub(crate) fn own_count(&self, owner: &str) -> Option<u32> {
        let owner: Owner = owner.parse().ok()?;
        let number = (owner.client_id() == self.id).then(|| owner.number())?;
        self.watchdog.find(number).map(|hold| hold.count())
    }

    /// Makes the watchdog check a hold again, after a change that may have to be stated to the server at once.
    pub(crate) fn schedule_check(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.watchdog.schedule_next_check(hold);
        self.tend_tasks();
    }

    /// Removes a hold from the watchdog.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        if self.watchdog.unwatch(hold.number()) {
            self.no_longer_watched(hold);
        }
    }

    fn no_longer_watched(&self, hold: &Hold) {
        // Also if the metrics panic: a close would wait for a hold that is gone.
        defer! { self.tell_close(); }
        hold.meter.hold_ended();
    }

    /// Peeks at the key that a waiter wants, together with the other waiters of this client. The peek is asked for by this call,
    /// before the first poll. The result is `None` if the server did not answer.
    pub(crate) fn peek(
        self: &Arc<Self>,
        target: Target,
    ) -> impl Future<Output = Option<Peeked>> + use<> {
        let peeked = self.peeks.ask(target);
        self.start_tasks();
        // The task of a retired client has ended, or does not begin. Asked after the peek was added: otherwise `retire` has found it.
        if self.retirement.has_begun() {
            self.peeks.forget();
        }
        peeked.map(Result::ok)
    }

    /// Completes when the closed client holds nothing and no release is pending.
    pub(crate) async fn holds_nothing(self: &Arc<Self>) {
        self.start_tasks();
        // In the order in which a hold goes from one list to the next, so that none is missed on its way.
        let is_done =
            || self.watchdog.is_empty() && self.releaser.ending() == 0 && self.releaser.open() == 0;
        self.releaser.until(is_done).await;
    }

    /// A hold or the end of one has gone, which a close may wait for.
    fn tell_close(&self) {
        if self.closed.is_set() {
            self.releaser.ask_again();
        }
    }

    /// The client has another identity from now on: reports all holds as lost, ends its waits and its tasks, and sends nothing.
    /// What the server has of this one is left to the process that has it, or to the leases.
    pub(crate) fn give_up(&self) {
        self.identity.give_up();
        // In the opposite order, and each of them also if foreign code panics: nobody else does it. The tasks that the last one
        // wakes have to find all the others.
        defer! { self.retire(); }
        // A task that learns of the other identity finds this one closed.
        defer! { self.given_up.set(); }
        defer! { self.closed.set(); }
        defer! { self.releaser.abandon(); }
        // A thread that the copy of a process does not have may have had the mutex. Then the guards find the loss alone.
        foreign::each(self.watchdog.holds_within(COPIED_MUTEX), |hold| {
            if self.watchdog.unwatch(hold.number()) {
                // Also if the log or the metrics panic: the hold is not watched any more, so nobody else does it.
                defer! { hold.over.set(); }
                self.tell_lost(&hold, Loss::NewIdentity);
            }
        });
    }

    /// Records that the last handle of the client was dropped.
    pub(crate) fn retire(&self) {
        self.retirement.begin(self.now());
        // Each of them, whatever the wakers of the others do.
        defer! { self.peeks.wake(); }
        // Their waiters keep the session, and no task answers them any more.
        defer! { self.peeks.forget(); }
        defer! { self.free.wake(); }
        defer! { self.releaser.wake(); }
        self.watchdog.wake();
    }
}
