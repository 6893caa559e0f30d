//! What one client keeps: its id, its clock and its backend, the holds it has, and the tasks that serve them.
//!
//! A client may outlive a runtime, such as a `static` client in several `#[tokio::test]`s. All state is kept here and not
//! in the tasks. If a task ended with its runtime, the next call starts it again in the caller's runtime, and nothing is
//! lost.

mod callbacks;
mod free;
mod losses;
mod outage;
mod peek;
mod per_server;
mod release;
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

use scopeguard::defer;
use uuid::Uuid;

pub(crate) use self::callbacks::Callbacks;
use self::callbacks::Inspection;
use self::free::FreeWatches;
pub(crate) use self::free::{FreeAnswer, FreeWaiter, SeenHolder};
use self::losses::{Losses, LostHold};
use self::outage::UnansweredAttempts;
use self::peek::Peeks;
pub(crate) use self::peek::over_at;
use self::per_server::PerServer;
use self::release::Releaser;
pub(crate) use self::release::{PendingRelease, Release, confirm_all};
pub(crate) use self::retry::Retry;
use self::seen_names::SeenNames;
use self::seen_numbers::SeenNumbers;
use self::seen_tokens::SeenTokens;
use self::tasks::Tasks;
use self::tracking::Tracking;
use self::unguarded::Cells;
pub(crate) use self::unguarded::Unguarded;
use self::watchdog::Watchdog;
use crate::backend::reports::client_id;
use crate::backend::{Backend, Peeked, Target};
use crate::clock::{Clock, Tick};
use crate::config::{COPIED_MUTEX, Config};
use crate::error::{HeldBy, Loss};
use crate::foreign;
use crate::hold::{Flag, GuardClient, Hold, Lease, Origin};
use crate::mutex::Mutex;
use crate::resource::identity::Identity;
use crate::resource::key::{Key, Resource};
use crate::resource::owner::Owner;
use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::telemetry;

/// The part of a client that its holds need.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    /// The client, as long as this is its process and it has not taken another identity.
    pub(crate) identity: Arc<Identity>,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    of_guards: Arc<GuardClient>,
    pub(crate) backend: Arc<dyn Backend>,
    watchdog: Watchdog,
    tracking: Tracking,
    releaser: Releaser,
    inspection: Inspection,
    peeks: Peeks,
    free: FreeWatches,
    unguarded: Cells,
    losses: Losses,
    owners: AtomicU64,
    tokens: Mutex<SeenTokens>,
    numbers: Mutex<SeenNumbers>,
    names: Mutex<SeenNames>,
    tasks: Tasks,
    outages: PerServer<UnansweredAttempts>,
    /// Since when no handle of the client is left, or the client has had another identity. The watchdog ends then. The
    /// releaser ends when no release is pending, or after one lease of the watchdog.
    retired: OnceLock<Tick>,
    /// Set when the client is closed, or has another identity.
    closed: Flag,
    /// Set when the client has another identity.
    given_up: Flag,
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
            identity,
            config,
            clock,
            tracking: Tracking::new(backend.tracks()),
            of_guards: Arc::new(of_guards),
            backend,
            watchdog: Watchdog::default(),
            releaser: Releaser::default(),
            inspection: Inspection::default(),
            peeks: Peeks::default(),
            free: FreeWatches::default(),
            unguarded: Cells::default(),
            losses: Losses::default(),
            // 0 is nobody: what needs no owner, such as a subscription to the channel of a key, has that number.
            owners: AtomicU64::new(1),
            tokens: Mutex::default(),
            numbers: Mutex::default(),
            names: Mutex::default(),
            tasks: Tasks::default(),
            outages: PerServer::default(),
            retired: OnceLock::new(),
            closed: Flag::default(),
            given_up: Flag::default(),
        })
    }

    /// The origin of a guard of this client, with a margin before its deadline.
    pub(crate) fn origin(&self, margin: Duration) -> Origin {
        let client = Arc::clone(&self.of_guards);
        Origin { client, margin }
    }

    /// An owner that was never used before.
    pub(crate) fn new_owner(&self) -> Owner {
        // A rule of tests/model: owner_is_not_used_again.
        // Relaxed: the number only has to be different each time.
        Owner::new(self.id, self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// A server has reported the name of a client.
    pub(crate) fn saw_name(&self, client: Uuid, name: &str) {
        self.names.lock().saw(client, name);
    }

    /// Adds to a holder what its client is called, if that is known without asking.
    pub(crate) fn name_client_of(&self, holder: &mut HeldBy) {
        let owner = holder.owner.as_deref();
        let Some(client) = owner.and_then(|owner| client_id(owner.as_bytes())) else {
            return;
        };
        if client == self.id {
            holder.name_client(self.config.name.text().into_owned(), true);
        } else if let Some(name) = self.names.lock().of(client) {
            holder.name_client(name, false);
        }
    }

    /// The highest fencing token that this client has seen for a key; 0 if it has seen none, or has forgotten it since.
    pub(crate) fn highest_token(&self, key: &Key) -> u64 {
        self.tokens.lock().highest(key)
    }

    pub(crate) fn saw_token(&self, key: &Key, token: u64) {
        self.tokens.lock().saw(key, token);
    }

    /// Records that a semaphore exists whose permits are waited for.
    pub(crate) fn saw_number(&self, key: &Key) {
        let now = self.now();
        self.numbers.lock().saw(key, now);
    }

    /// Records that a semaphore that existed is gone.
    pub(crate) fn number_is_gone(&self, key: &Key) {
        let now = self.now();
        self.numbers.lock().is_gone(key, now);
    }

    /// Whether a semaphore existed after this time, as far as this client knows.
    pub(crate) fn has_seen_number_after(&self, key: &Key, since: Tick) -> bool {
        self.numbers.lock().was_there_after(key, since)
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Sets who looks at the waiters.
    pub(crate) fn set_callbacks(&self, callbacks: Weak<dyn Callbacks>) {
        self.inspection.set(callbacks);
    }

    /// Plans a look for long waits, by the watchdog's task, at `due`.
    pub(crate) fn inspect_waits_by(&self, due: Tick) {
        if due != Tick::NEVER && self.inspection.look_by(due) {
            self.watchdog.wake();
        }
    }

    /// Has the watchdog's task check the first waiters after [`INSPECTION_PAUSE`](crate::config::INSPECTION_PAUSE).
    pub(crate) fn inspect_soon(&self) {
        if self.inspection.want_check() {
            self.watchdog.wake();
        }
    }

    /// Gives a granted hold to the watchdog.
    pub(crate) fn watch(self: &Arc<Self>, hold: &Arc<Hold>) {
        // A rule of tests/model: connection_is_compared_once_the_hold_is_watched.
        if self.watchdog.watch(hold, hold.next_check()) {
            hold.meter.hold_began();
            telemetry::granted(&hold.resource, hold.owner, hold.token);
            self.tracking.began(&hold.resource, || self.now());
        }
        // Compared after the hold is watched: `reconnected` finds it if the connection is replaced later.
        self.doubt_of_other_connection(hold);
        self.tend_tasks();
    }

    /// The server has answered a command that may have changed the key, other than a grant.
    pub(crate) fn wrote(&self, resource: &Resource) {
        self.tracking.wrote(resource, || self.now());
    }

    /// This client has freed a key by force, or has changed the number under it.
    pub(crate) fn changed_by_force(&self, resource: &Resource) {
        self.tracking.freed(resource, || self.now());
    }

    /// There is a guard for a hold that waited for others. From now on it is renewed.
    pub(crate) fn guarded(self: &Arc<Self>, hold: &Arc<Hold>) {
        if hold.with_lease(Lease::has_guard) {
            self.schedule_check(hold);
        }
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
            self.look_again(hold);
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

    /// Completes with the number of the connection to the server of a key when that is not `epoch` any more.
    async fn epoch_after(&self, key: &Key, epoch: u64) -> u64 {
        loop {
            // In this order: a change after the first line ends the wait.
            let changes = self.backend.epoch_changes();
            let current = self.backend.epoch(key);
            if current != epoch {
                return current;
            }
            self.backend.epoch_changes_after(changes).await;
        }
    }

    /// Makes the watchdog look at a hold again, after a change that may have to be stated to the server at once.
    pub(crate) fn schedule_check(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.look_again(hold);
        self.tend_tasks();
    }

    /// Plans the watchdog's next look at a hold.
    fn look_again(&self, hold: &Hold) {
        self.watchdog.schedule_check(hold.owner, hold.next_check());
    }

    /// Removes a hold from the watchdog.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        if self.watchdog.unwatch(hold.owner) {
            self.no_longer_watched(hold);
        }
    }

    fn no_longer_watched(&self, hold: &Hold) {
        defer! { self.tell_close(); }
        hold.meter.hold_ended();
    }

    /// The holds of this client that are neither released nor lost.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.watchdog.holds()
    }

    /// The holds that this client has lost last, the newest first.
    pub(crate) fn losses(&self) -> Vec<LostHold> {
        self.losses.all()
    }

    /// The hold of this client's owner with this number.
    pub(crate) fn hold_of(&self, number: u64) -> Option<Arc<Hold>> {
        self.watchdog.find(number)
    }

    pub(crate) fn is_watched(&self, number: u64) -> bool {
        self.watchdog.has(number)
    }

    /// The number of guards of the hold of this client's owner with this number.
    pub(crate) fn count_of(&self, number: u64) -> Option<u32> {
        self.hold_of(number).map(|hold| hold.count())
    }

    /// Looks at the key that a waiter wants, together with the other waiters of this client. Returns `None` if the server
    /// did not answer.
    pub(crate) async fn peek(self: &Arc<Self>, target: &Target) -> Option<Peeked> {
        let looked = self.peeks.ask(target.clone());
        self.start_tasks();
        looked.await.ok()
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
        if self.is_closed() {
            self.releaser.ask_again();
        }
    }

    /// How many releases are not confirmed, with those that their callers send.
    pub(crate) fn pending_releases(&self) -> usize {
        self.releaser.open() + self.releaser.ending()
    }

    /// How many holds the watchdog takes care of.
    #[cfg(any(feature = "redis", feature = "test-util"))]
    pub(crate) fn watched(&self) -> usize {
        self.watchdog.len()
    }

    /// Refuses acquisitions from now on.
    pub(crate) fn close(&self) {
        self.closed.set();
    }

    /// Completes when the client is closed.
    pub(crate) async fn closing(&self) {
        self.closed.wait().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_set()
    }

    /// The client has another identity from now on: reports all holds as lost, ends its waits and its tasks, and sends nothing.
    /// What the server has of this one is left to the process that has it, or to the leases.
    ///
    /// Returns whether the client was closed before.
    pub(crate) fn give_up(&self) -> bool {
        self.identity.give_up();
        // A thread that the copy of a process does not have may have had the mutex. Then the guards find the loss alone.
        foreign::each(self.watchdog.holds_within(COPIED_MUTEX), |hold| {
            if self.watchdog.unwatch(hold.owner) {
                defer! { hold.over.set(); }
                self.tell_lost(&hold, Loss::NewIdentity);
            }
        });
        self.releaser.abandon();
        let was_closed = self.closed.is_set();
        self.closed.set();
        self.given_up.set();
        self.retire();
        was_closed
    }

    /// Completes when the client has another identity.
    pub(crate) async fn given_up(&self) {
        self.given_up.wait().await;
    }

    /// What a former identity of the client has lost is shown with the losses of this one.
    pub(crate) fn take_losses_of(&self, former: &Self) {
        self.losses.take(&former.losses);
    }

    /// Records that the last handle of the client was dropped.
    pub(crate) fn retire(&self) {
        // A client that has taken another identity was retired then.
        let _first = self.retired.set(self.now());
        // Each of them, whatever the wakers of the others do.
        defer! { self.peeks.wake(); }
        defer! { self.free.wake(); }
        defer! { self.releaser.wake(); }
        self.watchdog.wake();
    }

    fn is_retired(&self) -> bool {
        self.retired.get().is_some() || !self.identity.is_of_this_process()
    }

    /// When a retired client abandons its pending releases: by then the leases that the watchdog kept have ended.
    fn last_moment(&self) -> Tick {
        let lease = self.config.watchdog_timeout;
        self.retired
            .get()
            .map_or(Tick::NEVER, |since| since.after(lease))
    }
}
