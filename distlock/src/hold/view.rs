//! A view of the holds of a guard: one hold, or several holds of which it needs a number.
//!
//! A lock has one hold. A multi-lock has one for each key and needs them all. A Redlock has one for each server and
//! needs a quorum of them. `lost()`, `is_held()` and sections look at a view. A view does not keep the lock held.

use std::any::Any;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::SmallVec;
use uuid::Uuid;

use super::HoldRef;
use super::quorum_members::{QuorumMembers, enough_are_held, sorted};
#[cfg(feature = "test-util")]
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::sync::atomic::Ordering;

/// The holds of a guard. The cost of a clone does not depend on their number.
#[derive(Clone, Debug)]
pub(crate) struct HoldView(View);

/// Two words, since the futures of scopes and of the attribute contain several views.
#[derive(Clone, Debug)]
enum View {
    /// Most guards have one hold.
    One(Arc<HoldRef>),
    Several(Arc<Several>),
}

/// Several holds, of which a guard needs a number.
#[derive(Debug)]
struct Several {
    members: Members,
    needs: usize,
}

#[derive(Debug)]
enum Members {
    Fixed(Box<[Arc<HoldRef>]>),
    Changing(Arc<QuorumMembers>),
}

/// The members of a view at one moment.
pub(crate) enum MembersNow<'a> {
    Fixed(&'a [Arc<HoldRef>]),
    Changing(Arc<[Arc<HoldRef>]>),
}

impl Deref for MembersNow<'_> {
    type Target = [Arc<HoldRef>];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Fixed(members) => members,
            Self::Changing(members) => members,
        }
    }
}

impl HoldView {
    pub(crate) fn one(member: Arc<HoldRef>) -> Self {
        Self(View::One(member))
    }

    /// A view of several holds, of which `needs` have to be held.
    pub(crate) fn of(members: impl IntoIterator<Item = Arc<HoldRef>>, needs: usize) -> Self {
        Self::several(Members::Fixed(members.into_iter().collect()), needs)
    }

    /// A view of holds that change.
    pub(crate) fn of_changing(members: &Arc<QuorumMembers>, needs: usize) -> Self {
        Self::several(Members::Changing(Arc::clone(members)), needs)
    }

    fn several(members: Members, needs: usize) -> Self {
        Self(View::Several(Arc::new(Several { members, needs })))
    }

    /// The holds, if they change.
    fn changing(&self) -> Option<&QuorumMembers> {
        match &self.0 {
            View::Several(several) => match &several.members {
                Members::Changing(members) => Some(members),
                Members::Fixed(_) => None,
            },
            View::One(_) => None,
        }
    }

    /// What the guards of the Redlock have in common, if it is one on exactly the servers of these clients.
    pub(crate) fn quorum_parts(
        &self,
        clients: impl IntoIterator<Item = Uuid>,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let members = self.changing()?;
        let is_same = members.clients == sorted(clients);
        is_same.then(|| members.parts.upgrade()).flatten()
    }

    /// The holds. There is at least one.
    pub(crate) fn members(&self) -> MembersNow<'_> {
        match &self.0 {
            View::One(member) => MembersNow::Fixed(slice::from_ref(member)),
            View::Several(several) => match &several.members {
                Members::Fixed(members) => MembersNow::Fixed(members),
                Members::Changing(members) => MembersNow::Changing(members.now()),
            },
        }
    }

    /// How many members have to be held.
    pub(crate) fn needs(&self) -> usize {
        match &self.0 {
            View::One(_) => 1,
            View::Several(several) => several.needs,
        }
    }

    /// Whether enough members are held, by this process's clock.
    pub(crate) fn is_held(&self) -> bool {
        if let View::One(member) = &self.0 {
            return member.is_held();
        }
        enough_are_held(&self.members(), self.needs())
    }

    /// Whether the guard has ended. This does not say whether the hold is lost.
    pub(crate) fn has_ended(&self) -> bool {
        match self.changing() {
            // Acquire: pairs with the store in `end`.
            Some(members) => members.ended.load(Ordering::Acquire),
            None => self.members().iter().any(|member| member.has_ended()),
        }
    }

    /// Completes when the members are others than `members`.
    async fn changed(&self, members: &[Arc<HoldRef>]) {
        let Some(changing) = self.changing() else {
            return std::future::pending().await;
        };
        loop {
            // The future is made before the look. It completes at each change after that, even if it was not polled yet.
            let next = changing.changes.next();
            // The members are replaced as a whole, so other members are at another address.
            if !std::ptr::eq(changing.now().as_ptr(), members.as_ptr()) {
                return;
            }
            next.await;
        }
    }

    /// The first loss, if too few members are held.
    pub(crate) fn loss(&self) -> Option<Error> {
        if self.is_held() {
            return None;
        }
        let first = self.members().iter().find_map(|member| member.loss());
        // A renewal may have been confirmed between the two looks: then nothing is lost.
        first.filter(|_| !self.is_held())
    }

    /// How long ago too few members were held for the first time; `None` if enough are held, or if that was not for their leases.
    pub(crate) fn expired_for(&self) -> Option<Duration> {
        let members = self.members();
        let mut ended: SmallVec<[_; 8]> =
            members.iter().map(|member| member.expired_for()).collect();
        // Those that are held, and then those that have ended last.
        ended.sort_unstable();
        let last_needed = ended.get(self.needs().checked_sub(1)?)?;
        last_needed.filter(|ago| *ago < Duration::MAX)
    }

    /// Completes when too few members are held: they were released, handed over or lost, or their leases are over by
    /// the clock.
    pub(crate) async fn over(self) {
        // The usual guard needs no list of ends, and no loop.
        if let [only] = &*self.members()
            && only.margin().is_zero()
        {
            return Arc::clone(only).over().await;
        }
        while self.is_held() && self.until_over_or_changed().await {}
    }

    /// Completes when the members have changed, and otherwise when too few of them are held. Returns whether they have
    /// changed.
    async fn until_over_or_changed(&self) -> bool {
        let members = self.members();
        let over = |member: &Arc<HoldRef>| Arc::clone(member).over();
        let mut ends: FuturesUnordered<_> = members.iter().map(over).collect();
        let Some(first) = members.first() else {
            return false;
        };
        while self.is_held() {
            crate::sync::select! {
                // Each of them only says that something has changed: the loop asks whether it holds.
                _ = ends.next(), if !ends.is_empty() => {}
                () = first.ended() => {}
                () = first.sleep(self.remaining()) => {}
                () = self.changed(&members) => return true,
            }
        }
        false
    }

    /// How long the guard still holds its keys, unless they are renewed. Zero once it does not.
    pub(crate) fn remaining(&self) -> Duration {
        self.last_needed(|member| member.left())
    }

    /// When too few members are held, unless they are renewed, by the clock of the first member. A time in the past is
    /// returned as well, because a history needs it.
    #[cfg(feature = "test-util")]
    pub(crate) fn deadline(&self) -> Tick {
        let first = self.members().first().map(|first| first.now());
        let here = first.unwrap_or_default();
        // Each clock has its own start.
        self.last_needed(|member| match (member.end_at(), member.now()) {
            (Tick::NEVER, _) => Tick::NEVER,
            (end, now) if end < now => here.before(now.since(end)),
            (end, now) => here.after(end.since(now)),
        })
    }

    /// The value of the member whose end is also the end of the guard.
    fn last_needed<T: Copy + Ord + Default>(&self, of: impl Fn(&HoldRef) -> T) -> T {
        let members = self.members();
        let mut ends: SmallVec<[T; 1]> = members.iter().map(|member| of(member)).collect();
        ends.sort_unstable();
        // The latest ones are the last: as many as are needed last until the first of these ends.
        let last_needed = ends.len().saturating_sub(self.needs());
        ends.get(last_needed).copied().unwrap_or_default()
    }

    /// An error that names the key for which the guard no longer counts.
    pub(crate) fn lost(&self, loss: Loss) -> Error {
        self.loss().unwrap_or_else(|| {
            let members = self.members();
            let key = members
                .first()
                .map(|member| member.hold().resource.key.text());
            Error::lost(key.unwrap_or_default(), loss)
        })
    }
}
