//! Brings the hold of a Redlock back to the servers that it missed or lost.
//!
//! A server is missing if it did not grant the hold, or if its part was lost, because it lost its data or could not be
//! reached for a lease. While a majority is held, a missing server is asked when its part or another part is lost, and then as
//! often as the watchdog renews.
//!
//! A part that was granted again counts only if a majority of the earlier parts is found in the servers after that grant.
//! Otherwise a hold that was taken away on all servers at once, such as by a forced release, could come back server by
//! server although another owner had it in the meantime.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;

use super::parts::QuorumParts;
use crate::config::{MIN_LEASE, RENEWALS_PER_LEASE};
use crate::hold::Hold;
use crate::local::HoldShare;
use crate::sync::Unordered;
use crate::wait::{ClientRequest, Request, TryOutcome, try_once};

impl QuorumParts {
    /// Brings the part of one server back as long as the hold lasts.
    pub(super) async fn keep_on(&self, one: &ClientRequest) {
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
            Ok(TryOutcome::Held(_)) | Err(_) => None,
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
