//! A guard's share of one hold, and how it ends: confirmed, or in the background when it is dropped.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::registry::Registry;
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{GatePermit, Hold, HoldRef, Lease, Term};
use crate::resource::kind::{Family, Nesting};
use crate::session::{AbsentAcquisition, Ending, Release, Session, Unguarded, release_several};
use crate::sync::atomic::AtomicBool;

/// A share of a hold, from the moment of its grant. Dropping it ends it. A release that has to be sent is sent in the
/// background.
pub(crate) struct OpenShare {
    registry: Arc<Registry>,
    hold_ref: Arc<HoldRef>,
}

/// The share of a guard. Dropping it ends it, as for [`OpenShare`].
pub(crate) struct HoldShare {
    // The fields are dropped in this order: the next branch of the scope enters only after the share has ended.
    open: OpenShare,
    /// The permit from the gate of the enclosing guard. Guards that `Guard::reenter` makes share it.
    gate: Option<Arc<GatePermit>>,
}

// The gate is a semaphore of tokio's, which a panic elsewhere leaves as it was.
impl UnwindSafe for HoldShare {}
impl RefUnwindSafe for HoldShare {}

/// The shares that were granted, in the order of the request.
pub(crate) type OpenShares = SmallVec<[OpenShare; 1]>;

/// The shares of one guard.
pub(crate) type HoldShares = SmallVec<[HoldShare; 1]>;

impl Registry {
    /// Records the holds of shares that were granted to an acquisition which did not queue.
    pub(crate) fn granted_all(self: &Arc<Self>, shares: &OpenShares) {
        for share in shares {
            self.granted(share.hold());
        }
    }
}

/// Re-enters the hold of a share.
pub(crate) struct ShareRef {
    registry: Arc<Registry>,
    hold_ref: Arc<HoldRef>,
    gate: Option<Arc<GatePermit>>,
}

impl ShareRef {
    /// Whether the guard has a lease of its own.
    pub(crate) fn has_own_lease(&self) -> bool {
        self.hold_ref.term().is_fixed()
    }

    /// Whether the guard sets a part of its lease aside, because the clocks of several servers may drift.
    pub(crate) fn allows_for_drift(&self) -> bool {
        !self.hold_ref.margin().is_zero()
    }

    /// Gives the guard's own lease this length from now on, unless the lease ends later anyway. The watchdog's task asks the
    /// server for it. `drift`: the part that the guard does not count, because the clocks of several servers may drift.
    pub(crate) fn extend(&self, lease: Duration, drift: Duration) -> Result<(), Error> {
        let session = &self.registry.session;
        // The part of it that the guard has set aside already counts.
        let more = drift.saturating_sub(self.hold_ref.margin());
        let end = session.now().after(lease);
        let end = end.before(session.config.lease_margin).before(more);
        self.hold_ref.extend(end)?;
        session.schedule_check(self.hold_ref.hold());
        Ok(())
    }

    /// Whether the server has confirmed the guard's own lease.
    pub(crate) fn is_confirmed(&self) -> bool {
        let hold = self.hold_ref.hold();
        self.hold_ref.is_held() && self.hold_ref.term().end() <= hold.lease(Lease::deadline)
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.hold_ref.hold()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.registry.session
    }

    pub(crate) fn hold_ref(&self) -> &Arc<HoldRef> {
        &self.hold_ref
    }

    /// Another share of the same hold, with the same lease.
    pub(crate) fn reenter(&self) -> Result<HoldShare, Error> {
        let resource = &self.hold_ref.hold().resource;
        if let Nesting::Never(reason) = resource.kind.within(resource.kind) {
            return Err(Error::deadlock(resource.key.text(), reason));
        }
        let mut share = self.share_for(self.hold_ref.term(), self.hold_ref.margin())?;
        share.gate.clone_from(&self.gate);
        // A renewal states the new count to the server, and nobody waits for it.
        self.session().schedule_check(self.hold());
        Ok(share)
    }

    /// A share of the same hold for a guard with this term and margin. The watchdog's task has to look at the hold after that.
    pub(crate) fn share_for(&self, term: Term, margin: Duration) -> Result<HoldShare, Error> {
        // The guard itself asks, and not a scope that could have ended.
        let open = AtomicBool::new(false);
        match self.hold_ref.nest(&open, term, margin) {
            Ok(nested) => {
                let open = OpenShare::new(&self.registry, nested);
                Ok(HoldShare::new(open, None))
            }
            Err(error) => {
                let key = self.hold_ref.hold().resource.key.text();
                let ended = || Error::lost(key, Loss::Expired);
                Err(error.into_error(key).unwrap_or_else(ended))
            }
        }
    }
}

impl HoldShare {
    /// A share that was just granted, behind the gate of an enclosing guard.
    pub(crate) fn new(open: OpenShare, gate: Option<Arc<GatePermit>>) -> Self {
        Self { open, gate }
    }

    /// Keeps the gate of the enclosing guard closed until the share has ended.
    pub(crate) fn keep_gate(&mut self, permit: Arc<GatePermit>) {
        self.gate = Some(permit);
    }

    /// Keeps the gate closed that this share keeps closed.
    pub(crate) fn keep_gate_of(&mut self, old: &Self) {
        self.gate.clone_from(&old.gate);
    }

    pub(crate) fn hold_ref(&self) -> &Arc<HoldRef> {
        &self.open.hold_ref
    }

    /// What its client has in common.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.open.registry.session
    }

    /// All that its guard needs is there.
    pub(crate) fn has_guard(&self) {
        self.open.has_guard();
    }

    pub(crate) fn key(&self) -> &str {
        self.open.key()
    }

    /// Another share of the same hold, with the same lease.
    pub(crate) fn reenter(&self) -> Result<Self, Error> {
        self.to_ref().reenter()
    }

    /// What re-enters the hold later, as long as this share has not ended.
    pub(crate) fn to_ref(&self) -> ShareRef {
        ShareRef {
            registry: Arc::clone(&self.open.registry),
            hold_ref: Arc::clone(&self.open.hold_ref),
            gate: self.gate.clone(),
        }
    }

    /// Decreases the count, and returns the release that has to be sent to the server, if there is one.
    ///
    /// # Errors
    /// [`Error::Lost`]
    pub(crate) fn end(mut self) -> Result<Option<Release>, Error> {
        let release = self.open.end();
        // By name: it wakes the next branch, and what a function returns is not dropped if its end panics.
        drop(self.gate.take());
        release
    }

    /// Ends the share without giving permits back.
    pub(crate) fn forget(self) {
        let _ending = Ending::new(&self.open.registry.session);
        if let Ok(Some(release)) = self.open.end_now(false) {
            // Only the owner is ended: the permits stay taken until somebody adds them.
            release.leave_permits();
        }
    }

    /// Ends the share, and leaves the hold in the server until its lease ends. It is no longer renewed.
    pub(crate) fn leave_to_its_lease(self) -> Result<(), Error> {
        if let Some(release) = self.end_unsent()? {
            release.abandon();
        }
        Ok(())
    }

    /// The same for a hold that somebody else may end before its lease does. Returns whether an attempt of its owner may still be
    /// carried out; `None` if other guards have the hold, which goes on.
    pub(crate) fn detach(self) -> Result<Option<bool>, Error> {
        Ok(self.end_unsent()?.map(Release::detach))
    }

    /// A share whose own lease is over has no hold that it could leave to others: it is released in the background.
    fn end_unsent(&self) -> Result<Option<Release>, Error> {
        let lost = |loss| Error::lost(self.key(), loss);
        let now = self.open.hold_ref.now();
        let late = self.open.late(now);
        let release = self.open.end_at(now, false).map_err(lost)?;
        late.map_or(Ok(release), |loss| Err(lost(loss)))
    }
}

impl OpenShare {
    /// Call it at once when the hold is granted, handed over or nested: from now on the drop ends it.
    pub(crate) fn new(registry: &Arc<Registry>, hold_ref: Arc<HoldRef>) -> Self {
        Self {
            registry: Arc::clone(registry),
            hold_ref,
        }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.hold_ref.hold()
    }

    /// What the log says of its acquisition if that is not polled any more.
    pub(crate) fn absent(&self) -> AbsentAcquisition {
        let hold = self.hold();
        AbsentAcquisition {
            key: hold.resource.key.clone(),
            call_site: hold.latest_guard().call_site,
        }
    }

    fn key(&self) -> &str {
        self.hold().resource.key.text()
    }

    /// There is a guard, also if this hold had to wait for others. From now on it is renewed.
    pub(crate) fn has_guard(&self) {
        if self.hold().with_lease(|lease| lease.guards.has_one()) {
            // It waited for the other keys. From now on it is renewed.
            self.registry.session.schedule_check(self.hold());
        }
    }

    fn end(&self) -> Result<Option<Release>, Error> {
        let now = self.hold_ref.now();
        let late = self.late(now);
        // Declared before: if the end of the block panics, the release is dropped, and continues in the background.
        let release;
        {
            let _ending = Ending::new(&self.registry.session);
            release = self.end_at(now, false);
        }
        let lost = |loss| Error::lost(self.key(), loss);
        let release = release.map_err(lost)?;
        match (release, late) {
            (Some(release), late) => Ok(Some(release.after_its_term(late))),
            (None, Some(loss)) => Err(lost(loss)),
            (None, None) => Ok(None),
        }
    }

    /// The loss of a guard whose own lease is over.
    fn late(&self, now: Tick) -> Option<Loss> {
        let term = self.hold_ref.term();
        term.has_ended(now).then(|| term.loss())
    }

    fn end_now(&self, was_dropped: bool) -> Result<Option<Release>, Loss> {
        self.end_at(self.hold_ref.now(), was_dropped)
    }

    fn end_at(&self, now: Tick, was_dropped: bool) -> Result<Option<Release>, Loss> {
        // Before the registry, whose mutex may have been locked by a thread that this copy of the process does not have.
        if self.hold_ref.is_left_alone() {
            self.hold_ref.end_alone();
            return Err(Loss::NewIdentity);
        }
        let release = self.registry.end(&self.hold_ref, was_dropped, now)?;
        let at = self.quiet_until(now);
        match release {
            // Its caller hears of the loss, and waits for nothing.
            Some(release) if at > now => {
                release.at(at);
                Ok(None)
            }
            release => Ok(release),
        }
    }

    /// Until when the key stays with a guard whose own lease is over, although the hold is not: by the margin of its client. Also with
    /// a part of a Redlock of a read/write lock whose majority was lost: the release of such a lock keeps nobody out.
    fn quiet_until(&self, now: Tick) -> Tick {
        let margin = self.registry.session.config.lease_margin;
        let of_term = match self.hold_ref.term() {
            Term::Until(end) if end <= now => end.after(margin),
            _ => Tick::default(),
        };
        match self.hold().resource.kind.family() {
            Family::ReadWrite => of_term.max(self.hold().at_release().taken_until),
            _ => of_term,
        }
    }
}

/// Ends all shares, and waits until as many releases as are needed are confirmed.
pub(crate) async fn end_all(shares: HoldShares, needs: usize) -> Result<(), Error> {
    release_several(shares.into_iter().map(HoldShare::end), needs).await
}

/// Shares that have no guard yet, since others are missing.
impl Unguarded for HoldShares {
    fn end(self, _session: &Arc<Session>) -> Option<AbsentAcquisition> {
        let first = self.first()?;
        // The drop of the shares ends them.
        Some(first.open.absent())
    }
}

impl fmt::Debug for OpenShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenShare").field(self.hold()).finish()
    }
}

impl Drop for OpenShare {
    /// Decreases the count at once. A release that has to be sent is sent in the background.
    fn drop(&mut self) {
        // A share that ended by name is dropped as well.
        if !self.hold_ref.has_ended() {
            let _ending = Ending::new(&self.registry.session);
            // Nobody hears of a loss here, and a release that is dropped is sent in the background.
            drop(self.end_now(true));
        }
    }
}
