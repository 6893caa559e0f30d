//! What a guard stands on: the tenures that it has, on one key or on several, and how many of them it needs.
//!
//! A lock has one. A multi-lock has one for each key and needs them all; of a Redlock's, one for each server, it needs a
//! quorum. Views (`lost()`, `is_held()`, sections) look at a stake, which keeps nothing held by itself.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::SmallVec;
use uuid::Uuid;

use super::HoldRef;
use crate::clock::{Clock, Tick};
use crate::error::{Error, Loss};

/// A tenure, and the client that it is of.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) client: Uuid,
    pub(crate) clock: Clock,
    pub(crate) hold_ref: Arc<HoldRef>,
    /// So long before its deadline it no longer counts: the clocks of several servers may drift.
    pub(crate) margin: Duration,
}

/// The tenures of a guard. A clone costs the same however many they are.
#[derive(Clone, Debug)]
pub(crate) struct HoldView {
    members: Members,
    needs: usize,
}

#[derive(Clone, Debug)]
enum Members {
    /// In place, for this is the usual one.
    One(Member),
    Several(Arc<[Member]>),
}

impl Member {
    fn is_held(&self) -> bool {
        self.hold_ref.is_held(self.clock.now().after(self.margin))
    }

    /// When, as things stand, it no longer counts, by its own clock.
    fn end(&self) -> Tick {
        let end = self.hold_ref.term().end();
        match self.hold_ref.hold().deadline().min(end) {
            Tick::NEVER => Tick::NEVER,
            end => end.before(self.margin),
        }
    }

    /// How long, as things stand, it still counts. A span and no tick: each member's clock has a start of its own.
    fn left(&self) -> Duration {
        self.end().left(self.clock.now())
    }
}

impl HoldView {
    pub(crate) fn one(member: Member) -> Self {
        Self {
            members: Members::One(member),
            needs: 1,
        }
    }

    /// `needs` of these have to be held.
    pub(crate) fn of(members: impl IntoIterator<Item = Member>, needs: usize) -> Self {
        Self {
            members: Members::Several(members.into_iter().collect()),
            needs,
        }
    }

    /// At least one.
    pub(crate) fn members(&self) -> &[Member] {
        match &self.members {
            Members::One(member) => slice::from_ref(member),
            Members::Several(members) => members,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        let held = self.members().iter().filter(|member| member.is_held());
        held.count() >= self.needs
    }

    /// Has the guard ended? Not whether the hold is lost.
    pub(crate) fn has_ended(&self) -> bool {
        self.members()
            .iter()
            .any(|member| member.hold_ref.has_ended())
    }

    /// The first loss because of which too few are held, if that is so.
    pub(crate) fn loss(&self) -> Option<Error> {
        if self.is_held() {
            return None;
        }
        let lost = |member: &Member| {
            let now = member.clock.now().after(member.margin);
            member.hold_ref.lost_error(now)
        };
        let first = self.members().iter().find_map(lost);
        // Held again by the clock between two looks: nothing is lost then.
        first.filter(|_| !self.is_held())
    }

    /// Completes when too few are held: released, handed on, lost, or their leases over by the clock.
    pub(crate) async fn over(self) {
        if let [only] = self.members()
            && only.margin.is_zero()
        {
            return Arc::clone(&only.hold_ref).over(only.clock.clone()).await;
        }
        let over = |member: &Member| Arc::clone(&member.hold_ref).over(member.clock.clone());
        let mut ends: FuturesUnordered<_> = self.members().iter().map(over).collect();
        let clock = self.members().first().map(|member| member.clock.clone());
        while let Some(clock) = clock.as_ref().filter(|_| self.is_held()) {
            tokio::select! {
                _ = ends.next(), if !ends.is_empty() => {}
                () = clock.sleep_until(clock.now().after(self.left())) => {}
            }
        }
    }

    /// How long, as things stand, enough of them are held.
    pub(crate) fn left(&self) -> Duration {
        self.last_needed(Member::left)
    }

    /// When, as things stand, too few will be held or were, by the clock of the first member: for a history, which wants
    /// to know of a deadline also when it has passed.
    #[cfg(feature = "test-util")]
    pub(crate) fn deadline(&self) -> Tick {
        let first = self.members().first().map(|first| first.clock.now());
        let here = first.unwrap_or_default();
        // Each clock has a start of its own.
        self.last_needed(|member| match (member.end(), member.clock.now()) {
            (Tick::NEVER, _) => Tick::NEVER,
            (end, now) if end < now => here.before(now.since(end)),
            (end, now) => here.after(end.since(now)),
        })
    }

    /// The value of the member whose end is that of the guard.
    fn last_needed<T: Copy + Ord + Default>(&self, of: impl Fn(&Member) -> T) -> T {
        let mut ends: SmallVec<[T; 1]> = self.members().iter().map(of).collect();
        ends.sort_unstable();
        let last_needed = ends.len().saturating_sub(self.needs);
        ends.get(last_needed).copied().unwrap_or_default()
    }

    /// An error that says for which key the guard is no good any more.
    pub(crate) fn lost(&self, loss: Loss) -> Error {
        self.loss().unwrap_or_else(|| {
            let key = self
                .members()
                .first()
                .map(|member| member.hold_ref.hold().resource.key.text());
            Error::lost(key.unwrap_or_default(), loss)
        })
    }
}
