//! A view of the holds of a guard: one hold, or several holds of which it needs a number.
//!
//! A lock has one hold. A multi-lock has one for each key and needs them all. A Redlock has one for each server and
//! needs a quorum of them. `lost()`, `is_held()` and sections look at a view. A view does not keep the lock held.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::SmallVec;

use super::HoldRef;
#[cfg(feature = "test-util")]
use crate::clock::Tick;
use crate::error::{Error, Loss};

/// The holds of a guard. The cost of a clone does not depend on their number.
#[derive(Clone, Debug)]
pub(crate) struct HoldView {
    members: Members,
    needs: usize,
}

#[derive(Clone, Debug)]
enum Members {
    /// In place, since most guards have one hold.
    One(Arc<HoldRef>),
    Several(Arc<[Arc<HoldRef>]>),
}

impl HoldView {
    pub(crate) fn one(member: Arc<HoldRef>) -> Self {
        Self {
            members: Members::One(member),
            needs: 1,
        }
    }

    /// A view of several holds, of which `needs` have to be held.
    pub(crate) fn of(members: impl IntoIterator<Item = Arc<HoldRef>>, needs: usize) -> Self {
        Self {
            members: Members::Several(members.into_iter().collect()),
            needs,
        }
    }

    /// The holds. There is at least one.
    pub(crate) fn members(&self) -> &[Arc<HoldRef>] {
        match &self.members {
            Members::One(member) => slice::from_ref(member),
            Members::Several(members) => members,
        }
    }

    /// How many members have to be held.
    pub(crate) fn needs(&self) -> usize {
        self.needs
    }

    /// Whether enough members are held, by this process's clock.
    pub(crate) fn is_held(&self) -> bool {
        let held = self.members().iter().filter(|member| member.is_held());
        held.count() >= self.needs
    }

    /// Whether the guard has ended. This does not say whether the hold is lost.
    pub(crate) fn has_ended(&self) -> bool {
        self.members().iter().any(|member| member.has_ended())
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

    /// Completes when too few members are held: they were released, handed over or lost, or their leases are over by
    /// the clock.
    pub(crate) async fn over(self) {
        if let [only] = self.members()
            && !only.has_margin()
        {
            return Arc::clone(only).over().await;
        }
        let over = |member: &Arc<HoldRef>| Arc::clone(member).over();
        let mut ends: FuturesUnordered<_> = self.members().iter().map(over).collect();
        let first = self.members().first().cloned();
        while let Some(first) = first.as_ref().filter(|_| self.is_held()) {
            tokio::select! {
                _ = ends.next(), if !ends.is_empty() => {}
                () = first.sleep(self.left()) => {}
            }
        }
    }

    /// How long enough members are still held, unless they are renewed.
    pub(crate) fn left(&self) -> Duration {
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
        let mut ends: SmallVec<[T; 1]> = self.members().iter().map(|member| of(member)).collect();
        ends.sort_unstable();
        let last_needed = ends.len().saturating_sub(self.needs);
        ends.get(last_needed).copied().unwrap_or_default()
    }

    /// An error that names the key for which the guard no longer counts.
    pub(crate) fn lost(&self, loss: Loss) -> Error {
        self.loss().unwrap_or_else(|| {
            let first = self.members().first();
            let key = first.map(|member| member.hold().resource.key.text());
            Error::lost(key.unwrap_or_default(), loss)
        })
    }
}
