//! The numbers of semaphores and latches: changed once for each request, however often it is sent, and waited for until
//! they are 0.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Change, Fault, Subscription, Target, cause};
use crate::clock::Tick;
use crate::config::{MAX_SLEEP_UNTOLD, RETRY_PAUSE};
use crate::error::{Blocker, Error};
use crate::hold::Session;
use crate::key::Resource;

/// Changes a number, or reads it. Sent again, under one request, where nobody answered.
pub(crate) async fn adjust(
    session: &Arc<Session>,
    resource: &Resource,
    change: Change,
) -> Result<i64, Error> {
    NumberRequest::new(session, resource, change).answer().await
}

/// Waits until a latch is at 0, or there is none.
pub(crate) async fn until_zero(
    session: &Arc<Session>,
    latch: &Resource,
    wait: Option<Duration>,
) -> Result<(), Error> {
    let since = session.now();
    let deadline = wait.map_or(Tick::NEVER, |wait| since.after(wait));
    let mut watch = Watch {
        request: NumberRequest::new(session, latch, Change::Count),
        since,
        deadline,
        // Without any time to wait it is one full look.
        latest: if deadline > since {
            deadline
        } else {
            Tick::NEVER
        },
        seen: None,
        subscription: None,
    };
    while watch.look().await? > 0 {
        watch.sleep().await?;
    }
    Ok(())
}

/// One request, which counts once.
struct NumberRequest<'a> {
    session: &'a Arc<Session>,
    target: Target,
    change: Change,
    /// Why it was not answered when it was sent last.
    failed: Option<Fault>,
}

impl<'a> NumberRequest<'a> {
    fn new(session: &'a Arc<Session>, resource: &Resource, change: Change) -> Self {
        Self {
            session,
            target: Target::of(resource, session.new_owner()),
            change,
            failed: None,
        }
    }

    /// Sends it until it is answered, for as long as a caller can be made to wait for that.
    async fn answer(&mut self) -> Result<i64, Error> {
        let (session, since) = (self.session, self.session.now());
        let give_up = since.after(session.config.unavailable_after);
        let longest = session.config.longest_pause();
        let mut pause = RETRY_PAUSE.0.min(longest);
        self.failed = None;
        loop {
            // The first try is bounded by the backend; for later ones there is less time left.
            let latest = self.failed.as_ref().map_or(Tick::NEVER, |_| give_up);
            let answer = tokio::select! {
                biased;
                answer = session.backend.adjust(&self.target, self.change) => answer,
                () = session.clock.sleep_until(latest) => Err(self.no_answer()),
            };
            let fault = match answer {
                Ok(number) => return Ok(number),
                Err(fault) => fault,
            };
            let now = session.now();
            if fault.is_final() || now >= give_up {
                return Err(fault.into_error(&self.target.resource.key, now.since(since)));
            }
            self.failed = Some(fault);
            let until = now.after(pause).min(give_up);
            session.clock.sleep_until(until).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// What was answered before says more than that the last try was not.
    fn no_answer(&self) -> Fault {
        let none = || Fault::Unknown(cause("no answer"));
        self.failed.clone().unwrap_or_else(none)
    }
}

/// One that waits for a latch. Dropped, it leaves nothing but its share in the subscription, which goes with it.
struct Watch<'a> {
    request: NumberRequest<'a>,
    since: Tick,
    deadline: Tick,
    /// No look takes longer than to here.
    latest: Tick,
    /// The count, as it was seen last.
    seen: Option<i64>,
    subscription: Option<Subscription>,
}

impl Watch<'_> {
    async fn look(&mut self) -> Result<i64, Error> {
        if let Some(subscription) = &mut self.subscription {
            subscription.mark_seen();
        }
        let session = self.request.session;
        tokio::select! {
            biased;
            count = self.request.answer() => Ok(*self.seen.insert(count?)),
            () = session.clock.sleep_until(self.latest) => Err(self.over()),
        }
    }

    /// Sleeps until it makes sense to look again; before the first sleep, only until the subscription stands.
    async fn sleep(&mut self) -> Result<(), Error> {
        let (session, target) = (self.request.session, &self.request.target);
        let was_active = self
            .subscription
            .as_ref()
            .is_some_and(Subscription::is_active);
        let subscription = self
            .subscription
            .get_or_insert_with(|| session.backend.subscribe(target));
        let until = session.now().after(MAX_SLEEP_UNTOLD).min(self.deadline);
        tokio::select! {
            biased;
            () = subscription.changed(was_active) => {}
            () = session.clock.sleep_until(until) => {}
        }
        if session.now() < self.deadline {
            Ok(())
        } else {
            Err(self.over())
        }
    }

    /// The wait is over. Where the server has not been answering, that is what is wrong, and not the count.
    fn over(&self) -> Error {
        let (key, now) = (
            &self.request.target.resource.key,
            self.request.session.now(),
        );
        let waited = now.since(self.since);
        match (self.seen, &self.request.failed) {
            (Some(count), None) => Error::Timeout {
                key: key.text().to_owned(),
                waited,
                blocker: Blocker::Count(count.unsigned_abs()),
            },
            _ => self.request.no_answer().into_error(key, waited),
        }
    }
}
