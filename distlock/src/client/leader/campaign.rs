//! One run of a candidate: it attempts until it leads, runs the body, and begins again after a loss.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Running, State};
use super::vacancy::Vacancy;
use crate::acquire::Acquire;
use crate::clock::Tick;
use crate::config::RETRY_BACKOFF;
use crate::error::{Blocker, Error};
use crate::guard::fenced::FencedGuard;
use crate::guard::run::lost_only;
use crate::primitives::FencedLock;
use crate::resource::key::Key;
use crate::session::Session;
use crate::sync::first;
use crate::sync::random::growing_pause;
use crate::telemetry;

pub(super) struct Campaign {
    lock: FencedLock,
    /// One attempt. Made by the caller of [`Leader::run`](super::Leader::run), whose line reports show.
    attempt: Acquire<FencedGuard>,
    state: Arc<State>,
}

impl Campaign {
    #[track_caller]
    pub(super) fn new(lock: FencedLock, state: Arc<State>) -> Self {
        let attempt = lock.acquire().wait(Duration::ZERO);
        // A lead is meant to last: the client's `max_hold` is for work that may hang.
        let attempt = attempt.max_hold(Duration::MAX);
        Self {
            lock,
            attempt,
            state,
        }
    }

    pub(super) async fn run<T, F, B>(self, mut body: B) -> Result<Option<T>, Error>
    where
        B: FnMut(u64) -> F,
        F: Future<Output = T>,
    {
        let running = self.state.begin();
        loop {
            let won = Box::pin(self.win(&running)).await;
            let Some(guard) = won.inspect_err(|error| self.failed(error))? else {
                return Ok(None);
            };
            if running.has_resigned() {
                // The candidate has not led.
                drop(self.give_back(guard, &running).await);
                return Ok(None);
            }
            match self.lead(&running, guard, &mut body).await {
                Ok(Ended::Value(value)) => return Ok(Some(value)),
                Ok(Ended::Resigned) => return Ok(None),
                // Another process leads by now, or nobody: this one is a candidate again.
                Err(lost) if lost.is_lost() && !lost.body_completed() => {}
                Err(error) => {
                    self.failed(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Logs an error that ends the campaign: mostly a task runs it, and nobody looks at its result before the end of the program.
    fn failed(&self, error: &Error) {
        if !matches!(error, Error::Closed { .. }) {
            telemetry::campaign_failed(self.lock.key(), error);
        }
    }

    /// Runs the body for one term, and releases the lock.
    async fn lead<T, F: Future<Output = T>>(
        &self,
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
        match ended {
            Ended::Value(_) => self.give_back(guard, running).await?,
            // A loss does not matter: nothing leads any more.
            Ended::Resigned => drop(self.give_back(guard, running).await),
        }
        Ok(ended)
    }

    /// Releases the lock of a candidate that does not lead any more. Once it has resigned, this takes no longer than the response timeout,
    /// since a process that ends waits for it: a release without an answer is repeated in the background.
    ///
    /// # Errors
    /// [`Error::Lost`]
    async fn give_back(&self, guard: FencedGuard, running: &Running) -> Result<(), Error> {
        let registry = self.lock.handle().latest_registry();
        let session = &registry.session;
        let resigned = async {
            running.resigned().await;
            let latest = session.now().after(session.config.response_timeout);
            session.clock.sleep_until(latest).await;
            Ok(())
        };
        lost_only(first(guard.release(), resigned).await)
    }

    /// Attempts until the lock is granted, or the candidate has resigned.
    async fn win(&self, running: &Running) -> Result<Option<FencedGuard>, Error> {
        let handle = self.lock.handle();
        let (mut registry, resource) = (handle.registry(), handle.resource()?);
        let mut vacancy = Vacancy::new(&registry.session, &resource);
        let mut logins = Logins::new(&resource.key);
        let mut pause = RETRY_BACKOFF.first;
        loop {
            // Asked between the attempts: one that is under way is not left, because the server may still grant it.
            if running.has_resigned() {
                return Ok(None);
            }
            vacancy.attempts();
            logins.attempts(&registry.session);
            let error = match self.attempt.clone().await {
                Ok(guard) => {
                    // Before the guard is returned: what this wakes may panic, and nobody would have the guard then.
                    drop(vacancy);
                    return Ok(Some(guard));
                }
                Err(error) => error,
            };
            let session = &registry.session;
            let may_change = logins.may_change(&error, session);
            if !(may_change || error.is_busy() || error.is_unavailable()) {
                return Err(error);
            }
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
                    let next = growing_pause(&mut pause, session.config.longest_pause());
                    session.clock.sleep_until(session.now().after(next)).await;
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

/// Whether attempts fail because the server refuses the logins of new connections.
struct Logins<'a> {
    key: &'a Key,
    /// When the last attempt began.
    began: Tick,
    /// Whether there was a connection at that moment.
    was_connected: bool,
    /// The number of that connection, or of the last one before it.
    epoch: u64,
    /// When the first of the attempts in a row began that failed for this reason.
    refused_since: Option<Tick>,
}

impl<'a> Logins<'a> {
    fn new(key: &'a Key) -> Self {
        Self {
            key,
            began: Tick::default(),
            was_connected: false,
            epoch: 0,
            refused_since: None,
        }
    }

    /// To be called before each attempt.
    fn attempts(&mut self, session: &Session) {
        self.began = session.now();
        self.was_connected = session.backend.connection_gap(self.key).is_none();
        self.epoch = session.backend.epoch(self.key);
    }

    /// Whether the attempt failed with this error because its login was refused, and another attempt may help: a password may be about
    /// to change. An acquisition would wait for as long.
    fn may_change(&mut self, error: &Error, session: &Session) -> bool {
        // A login is refused while there is no connection, and the next login may have succeeded by now. A command that was refused over a
        // new connection is tried once more.
        let was_refused = matches!(error, Error::Denied { .. })
            && (!self.was_connected
                || session.backend.connection_gap(self.key).is_some()
                || session.backend.epoch(self.key) != self.epoch);
        if !was_refused {
            self.refused_since = None;
            return false;
        }
        let since = *self.refused_since.get_or_insert(self.began);
        session.now() < since.after(session.config.unavailable_after)
    }
}

/// How a term has ended that was not lost.
enum Ended<T> {
    Value(T),
    Resigned,
}
