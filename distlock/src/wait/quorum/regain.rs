//! Brings the hold of a Redlock back to the servers that it missed or lost.
//!
//! A server is missing if it did not grant the hold, or if its part was lost, because it lost its data or could not be
//! reached for a lease. While a majority is held, a missing server is asked when its part or another part is lost, and then as
//! often as the watchdog renews.
//!
//! A part that was granted again counts only if a majority of the earlier parts is found in the servers after that grant.
//! Otherwise a hold that was taken away on all servers at once, such as by a forced release, could come back server by
//! server although another owner had it in the meantime.

use std::any::Any;
use std::panic::{AssertUnwindSafe, RefUnwindSafe};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use scopeguard::defer;
use smallvec::SmallVec;

use super::HoldShares;
use super::guards::{GuardParts, Margins, QuorumGuards};
use crate::config::{MIN_LEASE, RENEWALS_PER_LEASE};
use crate::error::{Error, Loss};
use crate::hold::{Hold, HoldRef, HoldView, QuorumMembers, QuorumTally};
use crate::local::{HoldShare, ShareRef};
use crate::session::HoldTask;
use crate::sync::Mutex;
use crate::sync::runtime::{Handle, Id};
use crate::sync::task::{AbortHandle, boxed};
use crate::sync::{Unordered, all};
use crate::wait::{ClientRequest, Request, TryOutcome, try_once};

/// The hold of a Redlock, as one of its guards has it. Dropping it ends the guard's part of it in the background.
pub(crate) struct QuorumHold {
    parts: Arc<Parts>,
    members: Arc<QuorumMembers>,
    margins: Margins,
    first: Arc<HoldRef>,
}

/// The parts of the hold, one for each server that has granted it.
struct Parts {
    requests: Vec<ClientRequest>,
    quorum: usize,
    /// What the parts count.
    tally: Arc<QuorumTally>,
    guards: QuorumGuards,
    /// Brings the hold back. `None` while there are only fixed leases, which nothing renews, and while no runtime is known.
    task: Mutex<Option<Task>>,
}

/// The task of a hold, as its guards know it.
struct Task {
    /// Tells it from a later one.
    mark: Arc<()>,
    /// `None` until it was given to its runtime.
    abort: Option<AbortHandle>,
}

/// What the task of a hold keeps until it ends.
struct RunningTask {
    parts: Arc<Parts>,
    mark: Arc<()>,
    runtime: Id,
    is_done: bool,
}

// A panic leaves nothing half-changed here: no foreign code runs under the mutexes.
impl RefUnwindSafe for Parts {}

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
        let parts = Arc::new(Parts {
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
        match parts.and_then(|parts| parts.downcast::<Parts>().ok()) {
            Some(parts) => Ok(parts.begin_guard(shares, margins(requests))),
            None => Err(shares),
        }
    }

    pub(crate) fn view(&self) -> HoldView {
        self.parts.guards.view(&self.members)
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

    /// A part that is over and why, if too few parts count. The watchdogs of their clients find that later: the margin of a part ends
    /// its guard before the lease ends. The end of a guard's own term is no loss.
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

/// The task of one hold. It is aborted when the last guard ends.
async fn bring_back(mut running: RunningTask) {
    let parts = &running.parts;
    // Each server has a loop of its own. A server that does not answer delays no other server.
    let servers = parts.requests.iter().map(|one| parts.keep_on(one));
    all(servers).await;
    running.is_done = true;
}

impl Drop for RunningTask {
    /// If the task ended with its runtime, it is started again in another one that the clients know, or by their next call.
    fn drop(&mut self) {
        let requests = &self.parts.requests;
        let sessions = || requests.iter().map(|one| &one.registry.session);
        // A copy of the process may have none of the threads that would unlock a mutex.
        if sessions().all(|session| session.identity.is_known_invalid()) {
            return;
        }
        // The last guard takes the task before it aborts it.
        if !self.parts.forget_task(&self.mark) || self.is_done {
            return;
        }
        let parts = Arc::downgrade(&self.parts);
        let task: Weak<dyn HoldTask> = parts;
        for session in sessions() {
            session.restart_elsewhere(Weak::clone(&task), self.runtime);
        }
    }
}

impl HoldTask for Parts {
    fn start_in(self: Arc<Self>, runtime: &Handle) {
        if self.guards.kept_for().is_none() {
            return;
        }
        let mark = Arc::new(());
        {
            let mut task = self.task.lock();
            if task.is_some() {
                return;
            }
            *task = Some(Task {
                mark: Arc::clone(&mark),
                abort: None,
            });
        }
        let running = RunningTask {
            parts: Arc::clone(&self),
            mark: Arc::clone(&mark),
            runtime: runtime.id(),
            is_done: false,
        };
        // Outside of the mutex: a runtime that has ended drops the task at once.
        let started = runtime.spawn(boxed(bring_back(running)));
        if let Err(unneeded) = self.keep_abort_handle(&mark, started.abort_handle()) {
            unneeded.abort();
        }
    }
}

impl Parts {
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

    /// Starts the task that brings the hold back, if there is a guard that is renewed.
    fn start_task(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current() {
            Arc::clone(self).start_in(&runtime);
        }
    }

    /// Keeps the handle of the task with this mark; `Err` if the task has ended or the last guard has taken it.
    fn keep_abort_handle(&self, mark: &Arc<()>, abort: AbortHandle) -> Result<(), AbortHandle> {
        let mut task = self.task.lock();
        match task.as_mut().filter(|task| Arc::ptr_eq(&task.mark, mark)) {
            Some(task) => {
                task.abort = Some(abort);
                Ok(())
            }
            None => Err(abort),
        }
    }

    /// The task with this mark has ended. Returns whether the guards still needed it.
    fn forget_task(&self, mark: &Arc<()>) -> bool {
        let mut task = self.task.lock();
        task.take_if(|task| Arc::ptr_eq(&task.mark, mark)).is_some()
    }

    /// Ends a guard, and the task with the last one. Returns whether it was the last one. The caller ends the shares.
    fn end_guard(&self, members: &Arc<QuorumMembers>) -> (HoldShares, bool) {
        let (shares, was_last, task) = {
            // Both under one mutex: a guard that begins meanwhile finds no task, and starts one.
            let mut task = self.task.lock();
            let (shares, was_last) = self.guards.remove(members);
            (shares, was_last, task.take_if(|_| was_last))
        };
        if let Some(abort) = task.and_then(|task| task.abort) {
            // What it was granted meanwhile is dropped with its future, and so released.
            abort.abort();
        }
        (shares, was_last)
    }

    /// Brings the part of one server back as long as the hold lasts.
    async fn keep_on(&self, one: &ClientRequest) {
        // A rule of tests/model: earlier_parts_are_looked_for_after_the_fresh_grant.
        while self.guards.any_is_held() {
            self.until_next_try(one).await;
            if !self.guards.any_is_held() {
                return;
            }
            let step = async {
                if let Some(fresh) = self.try_missing(one).await
                    && self.is_confirmed().await
                {
                    // Added first: a loss right after `belongs_to` must not find one part too few.
                    self.tally.add_part();
                    if !fresh.hold_ref().hold().belongs_to(&self.tally) {
                        self.tally.lacks_part();
                    }
                    self.guards.put(fresh);
                }
            };
            // The step is boxed, because each hold has a loop for each server, and a loop seldom tries. A waker of the user may panic in
            // the step. The loop goes on after that, because the hold still needs it.
            let _panic = AssertUnwindSafe(Box::pin(step)).catch_unwind().await;
        }
    }

    /// The part of this server, unless it is missing.
    fn part(&self, one: &ClientRequest) -> Option<Arc<Hold>> {
        self.guards.part(one.registry.session.id)
    }

    /// Completes when the part of this server is lost. If the part is missing already, this completes after a third of a lease, or when
    /// another part is lost.
    async fn until_next_try(&self, one: &ClientRequest) {
        // A part may be over although its lease still counts: the client has another identity.
        let part = |one| self.part(one).filter(|part| !part.over.is_set());
        if let Some(part) = part(one) {
            return part.over.wait().await;
        }
        let others: Vec<_> = self.requests.iter().filter_map(part).collect();
        let over = others.iter().map(|part| Box::pin(part.over.wait()));
        let lost = async {
            match over.len() {
                // `select_all` panics if there is nothing to wait for.
                0 => std::future::pending().await,
                _ => drop(select_all(over).await),
            }
        };
        let session = &one.registry.session;
        let clock = &session.clock;
        let pause = session.config.watchdog_timeout / RENEWALS_PER_LEASE;
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
            // Nothing would renew it.
            Ok(_) if one.registry.session.closed.is_set() => None,
            Ok(TryOutcome::Granted(mut granted)) => granted.pop().map(|open| {
                // Never handed over: the next waiter needs the other servers as well.
                open.hold().with_lease(|lease| lease.guards.keep_hold());
                HoldShare::new(open, None)
            }),
            Ok(TryOutcome::Held { .. }) | Err(_) => None,
        }
    }

    /// The request for a missing server: a single attempt, for the rest of the guards' time.
    fn again(&self, one: &ClientRequest) -> Option<ClientRequest> {
        let session = &one.registry.session;
        if session.closed.is_set() {
            return None;
        }
        let kept_for = self.guards.kept_for()?;
        // The guards end before such a part could help.
        if kept_for < MIN_LEASE {
            return None;
        }
        let mut request = Request {
            since: session.now(),
            wait: Some(Duration::ZERO),
            ..one.request.clone()
        };
        // The watchdog keeps it, also if the guard that acquired the lock had a lease of its own.
        request.hold.lease = None;
        request.hold.max_hold = (kept_for < Duration::MAX).then_some(kept_for);
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
        let asked = parts.map(async |(one, part)| is_there(one, &part).await);
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
}

/// Whether the server has this hold.
async fn is_there(one: &ClientRequest, hold: &Hold) -> bool {
    let session = &one.registry.session;
    // No answer is no proof. The other servers may still make the majority.
    let Ok(inspected) = session.backend.inspect(&hold.resource).await else {
        return false;
    };
    let owner = hold.owner().text();
    // A writer's name has its mode behind the owner.
    let is_ours = |name: &[u8]| match name.strip_prefix(owner.as_bytes()) {
        Some(rest) => rest.is_empty() || rest == b":write",
        None => false,
    };
    inspected.holders.iter().any(|(name, _)| is_ours(name))
}
