//! The hold of a Redlock, as one of its guards has it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use scopeguard::defer;
use smallvec::SmallVec;

use super::HoldShares;
use super::guards::{GuardParts, Margins, QuorumGuards};
use super::parts::QuorumParts;
use crate::error::{Error, Loss};
use crate::hold::{HoldRef, HoldView, QuorumMembers};
use crate::local::{HoldShare, ShareRef};
use crate::sync::Mutex;
use crate::wait::ClientRequest;

/// The hold of a Redlock, as one of its guards has it. Dropping it ends the guard's part of it in the background.
pub(crate) struct QuorumHold {
    parts: Arc<QuorumParts>,
    members: Arc<QuorumMembers>,
    margins: Margins,
    first: Arc<HoldRef>,
}

impl QuorumHold {
    /// A hold that was granted. There is at least one share.
    pub(crate) fn new(requests: Vec<ClientRequest>, shares: HoldShares, quorum: usize) -> Self {
        let meter = requests[0].requested().meter;
        let first = shares[0].hold_ref().hold();
        let tally = first.begin_quorum(shares.len(), quorum, meter);
        for share in &shares {
            if !share.hold_ref().hold().belongs_to(&tally) {
                tally.lacks_part();
            }
            share.has_guard();
        }
        let margins = margins(&requests);
        let parts = Arc::new(QuorumParts {
            requests,
            quorum,
            tally,
            guards: QuorumGuards::new(quorum),
            task: Mutex::default(),
        });
        parts.begin_guard(shares, margins)
    }

    /// A guard inside the guard with the view `outer`, with shares of its holds; the shares if that is not a guard of the Redlock of these
    /// requests.
    pub(crate) fn inside(
        outer: &HoldView,
        requests: &[ClientRequest],
        shares: HoldShares,
    ) -> Result<Self, HoldShares> {
        let clients = requests.iter().map(|one| one.registry.session.id);
        let parts = outer.quorum_parts(clients);
        match parts.and_then(|parts| parts.downcast::<QuorumParts>().ok()) {
            Some(parts) => Ok(parts.begin_guard(shares, margins(requests))),
            None => Err(shares),
        }
    }

    pub(crate) fn view(&self) -> HoldView {
        self.parts.guards.view(&self.members)
    }

    /// Whether the guard holds the lock. In contrast to the same question to a view, it allocates nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.members.are_held(self.parts.quorum)
    }

    /// The part of the first server that granted the hold.
    pub(crate) fn first(&self) -> &Arc<HoldRef> {
        &self.first
    }

    /// The shares of the guard.
    pub(crate) fn share_refs(&self) -> SmallVec<[ShareRef; 1]> {
        self.parts.guards.share_refs(&self.members)
    }

    /// Another guard of the same hold; `None` if too much of it is lost.
    ///
    /// # Errors
    /// Those of a re-entry that are no losses.
    pub(crate) fn reenter(&self) -> Result<Option<Self>, Error> {
        let mut again = HoldShares::new();
        for share in self.share_refs() {
            match share.reenter() {
                Ok(share) => again.push(share),
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(error),
            }
        }
        let enough = again.len() >= self.parts.quorum;
        let margins = || Arc::clone(&self.margins);
        Ok(enough.then(|| self.parts.begin_guard(again, margins())))
    }

    /// A part that is over, and why, if too few parts count. The watchdogs of their clients find the loss later: a part's margin ends its
    /// guard before the lease ends. A guard whose own term ends is not lost.
    fn loss(&self) -> Option<(Arc<HoldRef>, Loss)> {
        let view = self.view();
        if view.has_ended() {
            return None;
        }
        let parts = self.members.now();
        let is_over = |part: &&Arc<HoldRef>| !part.hold().is_held(part.now().after(part.margin()));
        let over: SmallVec<[&Arc<HoldRef>; 8]> = parts.iter().filter(is_over).collect();
        let is_lost = parts.len() - over.len() < self.parts.quorum;
        match (over.first(), view.loss()) {
            (Some(part), Some(Error::Lost { reason, .. })) if is_lost => {
                Some((Arc::clone(part), reason))
            }
            _ => None,
        }
    }

    /// Tells that the lock is lost, unless that was told before.
    fn tell_lost(&self, part: &HoldRef, loss: Loss) {
        if !self.parts.tally.lose() {
            return;
        }
        let mut requests = self.parts.requests.iter();
        if let Some(one) = requests.find(|one| one.registry.session.id == part.client()) {
            one.registry.session.tell_quorum_lost(part.hold(), loss);
        }
    }

    /// Ends the guard. The caller ends its shares.
    pub(crate) fn end(&self) -> HoldShares {
        // Before the end, after which no member counts as held.
        let expired_for = self.view().expired_for();
        let loss = self.loss();
        // Before the shares are taken: a view has to find that the guard has ended, and not that its parts are lost.
        self.members.end();
        let (shares, was_last) = self.parts.end_guard(&self.members);
        if let Some(ago) = expired_for {
            shares.iter().for_each(|share| keep_for_margin(share, ago));
        }
        // Last: the log and the metrics may panic. The shares are dropped then, and end. In a block: what a function returns is not
        // dropped if its end panics.
        {
            defer! {
                if was_last {
                    self.parts.tally.end();
                }
            }
            if let Some((part, loss)) = loss {
                self.tell_lost(&part, loss);
            }
        }
        shares
    }
}

fn margins(requests: &[ClientRequest]) -> Margins {
    let margin = |one: &ClientRequest| (one.registry.session.id, one.request.hold.margin);
    requests.iter().map(margin).collect()
}

/// The majority was lost this long ago. A part that is left keeps others out until the margin is over: together with servers
/// whose leases have ended earlier, it could be their majority.
fn keep_for_margin(share: &HoldShare, lost_for: Duration) {
    let margin = share.session().config.lease_margin;
    let now = share.hold_ref().now();
    let hold = share.hold_ref().hold();
    hold.keep_for(now, margin.saturating_sub(lost_for));
}

impl Drop for QuorumHold {
    fn drop(&mut self) {
        // The drop of the shares that are left releases them in the background.
        drop(self.end());
    }
}

impl QuorumParts {
    fn begin_guard(self: &Arc<Self>, shares: HoldShares, margins: Margins) -> QuorumHold {
        let this = Arc::clone(self) as Arc<dyn Any + Send + Sync>;
        let clients = self.requests.iter().map(|one| one.registry.session.id);
        let refs = shares.iter().map(|share| Arc::clone(share.hold_ref()));
        let members = QuorumMembers::new(Arc::downgrade(&this), clients, refs);
        // Made first: its drop ends the guard, whatever happens from now on.
        let hold = QuorumHold {
            parts: Arc::clone(self),
            members,
            margins,
            first: Arc::clone(shares[0].hold_ref()),
        };
        self.guards.add(GuardParts {
            shares,
            members: Arc::clone(&hold.members),
            margins: Arc::clone(&hold.margins),
        });
        self.start_task();
        hold
    }
}
