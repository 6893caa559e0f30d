//! What is in doubt of the attempts of one acquisition: owners that may have a hold in the server, or a place in its queue. They
//! are ended in the background when the attempts are dropped, or are not polled any more.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Attempts, Outcome};
use crate::backend::{Attempt, Target};
use crate::clock::Tick;
use crate::hold::InDoubtAttempt;
use crate::session::{AbsentAcquisition, PendingRelease, Session, Unguarded};
use crate::sync::foreign;

/// Owners that may have a hold in the server, or wait in its queue.
pub(super) struct OwnersInDoubt {
    targets: SmallVec<[Target; 1]>,
    attempt: InDoubtAttempt,
    /// How long the server keeps a hold or a waiter after an attempt is sent.
    lasts: Duration,
    call_site: &'static Location<'static>,
}

impl Attempts<'_> {
    /// Waits, and has its owners ended if they are in doubt and nobody polls it. Returns whether that has happened. They are
    /// not used again then.
    pub(crate) async fn wait_in_doubt(&mut self, pause: impl Future<Output = ()>) -> bool {
        if self.in_doubt.is_none() {
            pause.await;
            return false;
        }
        let (_, kept) = self
            .session()
            .beside(|| self.owners_in_doubt(), pause)
            .await;
        let has_ended = kept.has_ended();
        if has_ended {
            let _absent = self.absent();
        }
        has_ended
    }

    pub(super) fn owners_in_doubt(&self) -> OwnersInDoubt {
        OwnersInDoubt {
            targets: self
                .attempts
                .iter()
                .map(|attempt| attempt.target.clone())
                .collect(),
            // The caller knows that there is one.
            attempt: self.in_doubt.unwrap_or(InDoubtAttempt {
                epoch: 0,
                until: Tick::default(),
            }),
            lasts: self.lasts(),
            call_site: self.request.hold.call_site,
        }
    }

    /// The owners were ended, so nothing of them is in doubt any more.
    pub(super) fn absent(&mut self) -> Outcome {
        self.in_doubt = None;
        self.queued_until = None;
        Outcome::Absent
    }

    /// For how long the server keeps something of an attempt, from the moment when it is sent.
    pub(super) fn lasts(&self) -> Duration {
        // A hold lasts for its lease. A waiter that the server keeps in its queue may stand there for longer.
        let lasts = |attempt: &Attempt| attempt.lease.max(attempt.queue_ttl.unwrap_or_default());
        self.attempts.iter().map(lasts).max().unwrap_or_default()
    }

    /// An attempt was given up. It was sent before this, and perhaps long after it began.
    pub(super) fn count_doubt_from_now(&mut self) {
        let until = self.session().now().after(self.lasts());
        if let Some(in_doubt) = &mut self.in_doubt {
            in_doubt.until = in_doubt.until.max(until);
        }
    }

    /// What is in doubt when the attempts are dropped. An attempt that still waited for a connection had no effect.
    fn still_in_doubt(&self) -> Option<InDoubtAttempt> {
        match &self.unsent {
            Some(unsent) => {
                let key = &self.target(0).resource.key;
                let gap = self.session().backend.connection_gap(key);
                // The same gap still lasts, so the attempt was not sent. Whatever waits for a connection leaves with its
                // future.
                if gap == Some(unsent.gap) {
                    unsent.before
                } else {
                    self.in_doubt
                }
            }
            None => self.in_doubt,
        }
    }
}

impl Unguarded for OwnersInDoubt {
    fn end(mut self, session: &Arc<Session>) -> Option<AbsentAcquisition> {
        // From now on, because the attempt that is under way may be sent until this moment.
        let now = session.now();
        self.attempt.until = self.attempt.until.max(now.after(self.lasts));
        let call_site = self.call_site;
        let first = self.targets.first();
        let absent = first.map(|first| AbsentAcquisition {
            key: first.resource.key.clone(),
            call_site,
        });
        // A task that sends the attempt for its caller may do so behind the release, over the same connection. It waits for its turn
        // and for one answer at most, each for one response timeout.
        let again = now.after(session.config.response_timeout * 2);
        let is_repeated = |target: &Target| {
            // The server remembers the owner of a plain semaphore.
            session.backend.has_connection() && target.resource.kind.has_lease()
        };
        // Each of them, also if the metrics panic.
        foreign::each(self.targets, |target| {
            if is_repeated(&target) {
                let repetition = PendingRelease::of_attempt(target.clone(), self.attempt);
                session.release_later(repetition.again_at(again));
            }
            session.release_later(PendingRelease::of_attempt(target, self.attempt));
        });
        absent
    }
}

impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        // It may still lie in this client, and is sent later than it began.
        if self.is_under_way {
            self.count_doubt_from_now();
        }
        let in_doubt = self.still_in_doubt();
        let queued_until = self.queued_until;
        if in_doubt.is_none() && queued_until.is_none() {
            return;
        }
        let session = &self.registry.session;
        // Each of them, also if the metrics panic.
        foreign::each(self.attempts.drain(..), |attempt| {
            let pending = match (in_doubt, queued_until) {
                (Some(in_doubt), _) => PendingRelease::of_attempt(attempt.target, in_doubt),
                (None, Some(until)) => PendingRelease::of_waiter(attempt.target, until),
                (None, None) => return,
            };
            session.release_later(pending);
        });
    }
}
