//! One run of a candidate: it attempts until it leads, runs the body, and begins again after a loss.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Running, State};
use super::vacancy::Vacancy;
use crate::config::RETRY_BACKOFF;
use crate::error::{Blocker, Error};
use crate::guard::fenced::FencedGuard;
use crate::guard::run::lost_only;
use crate::primitives::FencedLock;
use crate::sync::first;
use crate::sync::random::random_range;

pub(super) struct Campaign {
    lock: FencedLock,
    state: Arc<State>,
}

impl Campaign {
    pub(super) fn new(lock: FencedLock, state: Arc<State>) -> Self {
        Self { lock, state }
    }

    pub(super) async fn run<T, F, B>(self, mut body: B) -> Result<Option<T>, Error>
    where
        B: FnMut(u64) -> F,
        F: Future<Output = T>,
    {
        let running = self.state.begin();
        loop {
            let Some(guard) = Box::pin(self.win(&running)).await? else {
                return Ok(None);
            };
            if running.has_resigned() {
                // The result does not matter: the candidate has not led.
                let _lost_by_now = guard.release().await;
                return Ok(None);
            }
            match lead(&running, guard, &mut body).await {
                Ok(Ended::Value(value)) => return Ok(Some(value)),
                Ok(Ended::Resigned) => return Ok(None),
                // Another process leads by now, or nobody: this one is a candidate again.
                Err(lost) if lost.is_lost() && !lost.body_completed() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Attempts until the lock is granted, or the candidate has resigned.
    async fn win(&self, running: &Running) -> Result<Option<FencedGuard>, Error> {
        let handle = self.lock.handle();
        let (mut registry, resource) = (handle.registry(), handle.resource()?);
        let mut vacancy = Vacancy::new(&registry.session, &resource);
        let mut pause = RETRY_BACKOFF.first;
        loop {
            // Asked between the attempts: one that is under way is not left, because the server may still grant it.
            if running.has_resigned() {
                return Ok(None);
            }
            vacancy.attempts();
            let error = match self.lock.acquire().wait(Duration::ZERO).await {
                Ok(guard) => {
                    // Before the guard is returned: what this wakes may panic, and nobody would have the guard then.
                    drop(vacancy);
                    return Ok(Some(guard));
                }
                Err(error) if error.is_busy() || error.is_unavailable() => error,
                Err(error) => return Err(error),
            };
            let session = &registry.session;
            let next = async {
                if let Error::Timeout { blocker, .. } = &error {
                    // The server has answered, so the next outage begins with a short pause.
                    pause = RETRY_BACKOFF.first;
                    let lease_left = match blocker {
                        Blocker::Owner(left) => *left,
                        _ => None,
                    };
                    vacancy.next(lease_left).await;
                } else {
                    // Random, so that the candidates do not all ask at the same moment when the server is back.
                    let random = pause.mul_f64(random_range(0.5..=1.0));
                    session.clock.sleep_until(session.now().after(random)).await;
                    pause = (pause * 2).min(session.config.longest_pause());
                }
            };
            first(first(next, session.closed.wait()), running.resigned()).await;
            if session.closed.is_set() {
                // The next attempt fails, unless the client goes on with another identity.
                registry = handle.registry();
                vacancy = Vacancy::new(&registry.session, &resource);
            }
        }
    }
}

/// How a term has ended that was not lost.
enum Ended<T> {
    Value(T),
    Resigned,
}

/// Runs the body for one term, and releases the lock.
async fn lead<T, F: Future<Output = T>>(
    running: &Running,
    guard: FencedGuard,
    body: &mut impl FnMut(u64) -> F,
) -> Result<Ended<T>, Error> {
    let ended = {
        // Dropped before the release: the candidate never says that it leads when another one may.
        let leading = running.leads(guard.key(), guard.token(), guard.view());
        let (ended, reason) = crate::sync::select! {
            // In this order: the value of a body that has ended is not given up.
            biased;
            ended = guard.scope(body(guard.token())) => (Ended::Value(ended?), "the body has ended"),
            () = running.resigned() => (Ended::Resigned, "it has resigned"),
        };
        leading.ended(reason);
        ended
    };
    let released = guard.release().await;
    if let Ended::Value(_) = ended {
        // The lead has ended, and a release without an answer is repeated in the background. Only a loss concerns a body that has ended.
        lost_only(released)?;
    }
    Ok(ended)
}
