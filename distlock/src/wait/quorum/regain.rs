//! Brings the hold of a Redlock back to the servers that it missed or lost.
//!
//! A server is missing if it did not grant the hold, or if its part was lost, because it lost its data or could not be
//! reached for a lease. While a majority is held, a missing server is asked when its part or another part is lost, and then as
//! often as the watchdog renews.
//!
//! A part that was granted again counts only if a majority of the earlier parts is found in the servers after that grant.
//! Otherwise a hold that was taken away on all servers at once, such as by a forced release, could come back server by
//! server although another owner had it in the meantime.

use std::panic::{AssertUnwindSafe, RefUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use smallvec::SmallVec;

use super::HoldShares;
use crate::config::{MIN_LEASE, RENEWALS_PER_LEASE};
use crate::hold::{Hold, HoldRef, HoldView, QuorumMembers, Term};
use crate::local::{HoldShare, ShareRef};
use crate::sync::Mutex;
use crate::sync::runtime::Handle;
use crate::sync::task::{AbortHandle, boxed};
use crate::sync::{Unordered, all};
use crate::wait::{ClientRequest, Request, TryOutcome, try_once};

/// The hold of a Redlock, as its guard has it. Dropping it ends the hold in the background.
pub(crate) struct QuorumHold {
    parts: Arc<Parts>,
    first: Arc<HoldRef>,
    /// Brings the hold back. `None` for a fixed lease, which nothing renews.
    task: Option<AbortHandle>,
}

/// The parts of the hold, one for each server that has granted it.
struct Parts {
    requests: Vec<ClientRequest>,
    quorum: usize,
    /// The shares of the guard; `None` after it has ended.
    shares: Mutex<Option<HoldShares>>,
    /// The references in these shares, for views of the guard.
    members: Arc<QuorumMembers>,
}

// A panic leaves nothing half-changed here: no foreign code runs under the mutex.
impl RefUnwindSafe for Parts {}

impl QuorumHold {
    /// A hold that was granted. There is at least one share.
    pub(crate) fn new(requests: Vec<ClientRequest>, shares: HoldShares, quorum: usize) -> Self {
        shares.iter().for_each(HoldShare::has_guard);
        let members = shares.iter().map(|share| Arc::clone(share.hold_ref()));
        let clients = requests.iter().map(|one| one.registry.session.id);
        let members = QuorumMembers::new(clients, members);
        let first = Arc::clone(shares[0].hold_ref());
        let is_renewed = requests.iter().all(|one| one.request.hold.lease.is_none());
        let parts = Arc::new(Parts {
            requests,
            quorum,
            shares: Mutex::new(Some(shares)),
            members,
        });
        // If this runtime ends before the hold, the hold no longer comes back to a server. Each client goes on renewing
        // its part in another runtime.
        let runtime = Handle::try_current().ok().filter(|_| is_renewed);
        let task = runtime.map(|runtime| runtime.spawn(boxed(bring_back(Arc::clone(&parts)))));
        Self {
            task: task.map(|task| task.abort_handle()),
            parts,
            first,
        }
    }

    pub(crate) fn view(&self) -> HoldView {
        self.parts.view()
    }

    /// The part of the first server that granted the hold.
    pub(crate) fn first(&self) -> &Arc<HoldRef> {
        &self.first
    }

    /// The shares of the guard, without the mutex: what is done with them wakes the watchdog's task.
    pub(crate) fn share_refs(&self) -> SmallVec<[ShareRef; 1]> {
        let shares = self.parts.shares.lock();
        shares.iter().flatten().map(HoldShare::to_ref).collect()
    }

    /// Shares of the same holds, of those that are not lost.
    pub(crate) fn reenter(&self) -> HoldShares {
        let again = self.share_refs();
        again.iter().flat_map(ShareRef::reenter).collect()
    }

    /// Ends the guard. The caller ends its shares.
    pub(crate) fn end(&self) -> HoldShares {
        if let Some(task) = &self.task {
            // What it was granted meanwhile is dropped with its future, and so released.
            task.abort();
        }
        // Before the end, after which no member counts as held.
        let expired_for = self.view().expired_for();
        // Before the shares are taken: a view has to find that the guard has ended, and not that its parts are lost.
        self.parts.members.end();
        let shares = self.parts.shares.lock().take().unwrap_or_default();
        if let Some(ago) = expired_for {
            shares.iter().for_each(|share| keep_for_margin(share, ago));
        }
        shares
    }
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

/// The task of one hold. It is aborted when the guard ends.
async fn bring_back(parts: Arc<Parts>) {
    // Each server has a loop of its own. A server that does not answer delays no other server.
    let servers = parts.requests.iter().map(|one| parts.keep_on(one));
    all(servers).await;
}

impl Parts {
    fn view(&self) -> HoldView {
        HoldView::of_changing(&self.members, self.quorum)
    }

    /// Brings the part of one server back as long as the hold lasts.
    async fn keep_on(&self, one: &ClientRequest) {
        // A rule of tests/model: earlier_parts_are_looked_for_after_the_fresh_grant.
        while self.view().is_held() {
            self.until_next_try(one).await;
            if !self.view().is_held() {
                return;
            }
            let step = async {
                if let Some(fresh) = self.try_missing(one).await
                    && self.is_confirmed().await
                {
                    self.put(fresh);
                }
            };
            // The step is boxed, because each hold has a loop for each server, and a loop seldom tries. A waker of the user may panic in
            // the step. The loop goes on after that, because the hold still needs it.
            let _panic = AssertUnwindSafe(Box::pin(step)).catch_unwind().await;
        }
    }

    /// The part of this server, unless it is missing.
    fn part(&self, one: &ClientRequest) -> Option<Arc<HoldRef>> {
        let session = &one.registry.session;
        let members = self.members.now();
        let mut members = members.iter();
        let member = members.find(|member| member.client() == session.id)?;
        let is_held = member.hold().is_held(session.now());
        is_held.then(|| Arc::clone(member))
    }

    /// Completes when the part of this server is lost. If the part is missing already, this completes after a third of a lease, or when
    /// another part is lost.
    async fn until_next_try(&self, one: &ClientRequest) {
        // A part may be over although its lease still counts: the client has another identity.
        let part = |one| self.part(one).filter(|part| !part.hold().over.is_set());
        if let Some(part) = part(one) {
            return part.hold().over.wait().await;
        }
        let others: Vec<_> = self.requests.iter().filter_map(part).collect();
        let over = others.iter().map(|part| Box::pin(part.hold().over.wait()));
        let lost = async {
            match over.len() {
                // `select_all` panics if there is nothing to wait for.
                0 => std::future::pending().await,
                _ => drop(select_all(over).await),
            }
        };
        let clock = &one.registry.session.clock;
        let pause = one.first_lease() / RENEWALS_PER_LEASE;
        crate::sync::select! {
            () = lost => {}
            () = clock.sleep_until(clock.now().after(pause)) => {}
        }
    }

    /// Makes one attempt on this server if it is missing, and returns what it granted.
    async fn try_missing(&self, one: &ClientRequest) -> Option<HoldShare> {
        // A rule of tests/model: missing_servers_are_asked_again.
        if self.part(one).is_some() {
            return None;
        }
        let one = self.again(one)?;
        match try_once(&one.registry, &one.request).await {
            Ok(TryOutcome::Granted(mut granted)) => granted.pop().map(|open| {
                // Never handed over: the next waiter needs the other servers as well.
                open.hold().with_lease(|lease| lease.guards.keep_hold());
                HoldShare::new(open, None)
            }),
            Ok(TryOutcome::Held { .. }) | Err(_) => None,
        }
    }

    /// The request for a missing server: a single attempt, for the rest of the guard's time.
    fn again(&self, one: &ClientRequest) -> Option<ClientRequest> {
        let session = &one.registry.session;
        if session.closed.is_set() {
            return None;
        }
        let members = self.members.now();
        let limits = members.iter().filter_map(|member| match member.term() {
            Term::KeptUntil(end) => Some(end.left(member.now())),
            Term::Kept | Term::Until(_) => None,
        });
        let max_hold = limits.min();
        // The guard ends before such a part could help.
        if max_hold.is_some_and(|left| left < MIN_LEASE) {
            return None;
        }
        let mut request = Request {
            since: session.now(),
            wait: Some(Duration::ZERO),
            ..one.request.clone()
        };
        request.hold.max_hold = max_hold;
        Some(ClientRequest {
            registry: Arc::clone(&one.registry),
            request,
        })
    }

    /// Asks the servers whether a majority of them still has the hold.
    async fn is_confirmed(&self) -> bool {
        // A rule of tests/model: fresh_part_counts_once_the_earlier_ones_are_found.
        let parts = self
            .requests
            .iter()
            .filter_map(|one| Some((one, self.part(one)?)));
        let asked = parts.map(async |(one, part)| is_there(one, part.hold()).await);
        let mut answers: Unordered<'_, _> = asked.collect();
        let mut confirmed = 0;
        while confirmed < self.quorum {
            match answers.next().await {
                Some(is_there) => confirmed += usize::from(is_there),
                None => return false,
            }
        }
        true
    }

    /// Adds a part to the hold, in the place of the one that this server lost. If the hold has ended or is lost by now,
    /// the part is released.
    fn put(&self, share: HoldShare) {
        // A rule of tests/model: fresh_part_of_a_hold_that_ended_is_released.
        share.has_guard();
        let hold_ref = Arc::clone(share.hold_ref());
        let replaced = {
            let mut shares = self.shares.lock();
            // Under the mutex, so that the guard does not end between the check and the change.
            let Some(shares) = shares.as_mut().filter(|_| self.view().is_held()) else {
                return;
            };
            let now = hold_ref.now();
            // The key stays taken on this server for as long as on the others.
            for other in shares.iter() {
                let other = other.hold_ref();
                let taken_for = other.hold().at_release().taken_until.left(other.now());
                hold_ref.hold().keep_for(now, taken_for);
            }
            let mut olds = shares.iter_mut();
            let old = olds.find(|old| old.hold_ref().client() == hold_ref.client());
            if let Some(old) = &old {
                hold_ref.take_gate_of(old.hold_ref());
            }
            match old {
                Some(old) => Some(std::mem::replace(old, share)),
                None => {
                    shares.push(share);
                    None
                }
            }
        };
        // Outside of the mutex, both: new members and the end of a share wake tasks.
        self.members.put(&hold_ref);
        drop(replaced);
    }
}

/// Whether the server has this hold.
async fn is_there(one: &ClientRequest, hold: &Hold) -> bool {
    let session = &one.registry.session;
    // No answer is no proof. The other servers may still make the majority.
    let Ok(inspected) = session.backend.inspect(&hold.resource).await else {
        return false;
    };
    let owner = hold.owner.text();
    // A writer's name has its mode behind the owner.
    let is_ours = |name: &[u8]| match name.strip_prefix(owner.as_bytes()) {
        Some(rest) => rest.is_empty() || rest == b":write",
        None => false,
    };
    inspected.holders.iter().any(|(name, _)| is_ours(name))
}
