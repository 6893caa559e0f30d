//! The numbers of semaphores and latches. A request changes a number exactly once, however often it is sent. A waiter
//! of a latch waits until its number is 0.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

#[cfg(feature = "testing")]
use crate::backend::ShownWait;
use crate::backend::{Change, Fault, LatchSeen, Peeked, Reply, Signal, Subscription, Target};
use crate::clock::Tick;
use crate::config::{MAX_SLEEP_WITHOUT_MESSAGE, PEEK_AFTER};
use crate::error::{Blocker, Error, Loss};
use crate::resource::key::Resource;
use crate::session::{Retry, Session};
use crate::sync::random::random_range;

/// Changes or reads a number. A request that is not answered is sent again and still counts once.
pub(crate) async fn adjust(
    session: &Arc<Session>,
    resource: &Resource,
    change: Change,
) -> Result<i64, Error> {
    // For the holds of this client: those tasks may have ended with another runtime.
    session.tend_tasks();
    let mut request = NumberRequest::new(session, resource);
    let key = &resource.key;
    let owner = request.target.owner;
    let answer = request.answer(|| session.backend.adjust(key, owner, change));
    let number = answer.await?;
    if !change.is_question() {
        session.tracking.freed(resource);
        // A request that was sent twice keeps its mark: the first one may be carried out late, and must count once.
        if request.failed.is_none() {
            session.backend.answered(key, owner);
        }
    }
    Ok(number)
}

/// Waits until a latch is at 0, or does not exist.
pub(crate) async fn until_zero(
    session: &Arc<Session>,
    latch: &Resource,
    wait: Option<Duration>,
) -> Result<(), Error> {
    // A long sleep relies on them.
    session.start_tasks();
    let since = session.now();
    let deadline = wait.map_or(Tick::NEVER, |wait| since.after(wait));
    let mut watch = Watch {
        request: NumberRequest::new(session, latch),
        since,
        deadline,
        // With a wait of zero the count is read once, and only the backend limits the time.
        latest: if deadline > since {
            deadline
        } else {
            Tick::NEVER
        },
        seen: None,
        subscription: None,
        #[cfg(feature = "testing")]
        shown: None,
    };
    loop {
        let found = watch.look().await?;
        if found.count.is_none_or(|count| count <= 0) {
            return watch.was_opened(&found).await;
        }
        watch.sleep().await?;
    }
}

/// One request. The server carries it out once.
struct NumberRequest<'a> {
    session: &'a Arc<Session>,
    target: Target,
    /// The fault of the last time it was sent, if it was not answered.
    failed: Option<Fault>,
}

impl<'a> NumberRequest<'a> {
    fn new(session: &'a Arc<Session>, resource: &Resource) -> Self {
        Self {
            session,
            target: Target::of(resource, session.owners.next()),
            failed: None,
        }
    }

    /// Sends the request until it is answered, or until `unavailable_after` has passed. Sending it again until then is safe,
    /// because the server carries it out once.
    async fn answer<'b, T>(&mut self, send: impl Fn() -> Reply<'b, T>) -> Result<T, Error> {
        let session = self.session;
        let mut retry = Retry::new(session, session.now());
        let give_up = retry.since.after(session.config.unavailable_after);
        // Half of the time by which a copy may be late is left for the way to the server.
        let forgotten = give_up.after(session.config.watchdog_timeout / 2);
        self.failed = None;
        loop {
            let mut sent = send();
            let tried = poll_fn(|cx| {
                // A try may write the command whenever it is polled. If the future was left here for long, the server may have
                // forgotten the request, and would carry it out again.
                if retry.last().is_some() && session.now() >= forgotten {
                    return Poll::Ready(Err(retry.no_answer()));
                }
                Pin::new(&mut sent).poll(cx)
            });
            let answer = crate::sync::select! {
                // In this order: an answer that has arrived counts, even if the time is over.
                biased;
                answer = tried => answer,
                () = session.clock.sleep_until(retry.latest(give_up)) => Err(retry.no_answer()),
            };
            let fault = match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let now = session.now();
            if fault.is_final() || now >= give_up {
                let after = now.since(retry.since);
                return Err(fault.into_error(&self.target.resource.key, after));
            }
            let until = now.after(retry.failed(fault)).min(give_up);
            self.failed = retry.last().cloned();
            session.clock.sleep_until(until).await;
            let now = session.now();
            // Nothing is sent again under an identity that the client has given up.
            if now >= give_up || session.identity.is_given_up() {
                // Also if the future was left here for long, as above.
                let after = now.since(retry.since);
                return Err(retry
                    .no_answer()
                    .into_error(&self.target.resource.key, after));
            }
        }
    }

    /// The fault for a request that is left without an answer.
    fn no_answer(&self) -> Fault {
        self.failed.clone().unwrap_or_else(Fault::no_answer)
    }
}

/// A waiter for a latch. The server keeps no record of it. Dropping it also drops its share of the subscription.
struct Watch<'a> {
    request: NumberRequest<'a>,
    since: Tick,
    deadline: Tick,
    /// Each read of the count ends at this time at the latest.
    latest: Tick,
    /// The count above 0 that was seen last.
    seen: Option<Sight>,
    subscription: Option<Subscription>,
    #[cfg(feature = "testing")]
    shown: Option<Box<dyn ShownWait>>,
}

/// A count above 0, and what was known when it was asked for.
struct Sight {
    count: i64,
    /// The last opening of a latch. It was that of an earlier one.
    opened: Option<Arc<str>>,
    /// The run of the server.
    run: Option<Arc<str>>,
    /// The connection.
    epoch: u64,
    /// When the latch expires unless it is used; never if it has no end.
    expires: Tick,
    /// The subscription, if there was one.
    signal: Option<Signal>,
}

impl Watch<'_> {
    async fn look(&mut self) -> Result<LatchSeen, Error> {
        let found = self.ask().await?;
        // A try before it may have failed. The wait ends with a fault only if the last read was not answered.
        self.request.failed = None;
        Ok(found)
    }

    async fn ask(&mut self) -> Result<LatchSeen, Error> {
        if let Some(subscription) = &mut self.subscription {
            // Before the read, so that a message that arrives during the read counts as new.
            subscription.mark_seen();
        }
        let session = self.request.session;
        let key = self.request.target.resource.key.clone();
        let epoch = session.backend.epoch(&key);
        let signal = self.signal();
        let asked = session.now();
        crate::sync::select! {
            // In this order: an answer that has arrived counts, even if the time is over.
            biased;
            found = self.request.answer(|| session.backend.latch(&key)) => {
                let found = found?;
                if let Some(count @ 1..) = found.count {
                    let opened = found.opened.clone();
                    let run = found.run.clone();
                    let expires = found.ttl.map_or(Tick::NEVER, |left| asked.after(left));
                    self.seen = Some(Sight { count, opened, run, epoch, expires, signal });
                }
                Ok(found)
            }
            () = session.clock.sleep_until(self.latest) => Err(self.over()),
        }
    }

    fn signal(&self) -> Option<Signal> {
        self.subscription.as_ref().map(Subscription::state)
    }

    /// The count is 0, or there is no latch. Returns an error if there was one, and the server may have lost it.
    ///
    /// A mark or a message shows that it was opened. If messages could arrive all the time and none did, it was not opened. If
    /// messages may have been missed, the latch was opened unless the server has lost its data since or the latch has expired:
    /// a server removes a latch for no other reason.
    async fn was_opened(&mut self, found: &LatchSeen) -> Result<(), Error> {
        let Some(seen) = &self.seen else {
            return Ok(());
        };
        if found.count.is_some() || found.opened.is_some() && found.opened != seen.opened {
            return Ok(());
        }
        let session = self.request.session;
        let key = &self.request.target.resource.key;
        let lost = |loss| Err(Error::lost(key.text(), loss));
        let latest = session.now().after(session.config.response_timeout);
        let latest = latest.min(self.deadline);
        match heard(&self.request, &mut self.subscription, seen.signal, latest).await {
            Heard::Message => return Ok(()),
            Heard::Nothing => return lost(Loss::NumberGone),
            // The answer that is missing would tell whether the latch was opened.
            Heard::Unknown if session.now() >= self.deadline => return Err(self.over()),
            Heard::Unknown => {}
        }
        if seen.expires <= session.now() {
            return lost(Loss::NumberGone);
        }
        if !session.backend.may_have_lost(key, seen.epoch) {
            return Ok(());
        }
        match (&seen.run, &found.run) {
            (Some(before), Some(now)) if before == now => Ok(()),
            (Some(_), Some(_)) => lost(Loss::NumberGone),
            _ => lost(Loss::NumberGoneUnseen),
        }
    }

    /// Sleeps until the next read of the count makes sense. If the subscription is not active yet, it sleeps only until
    /// then. A waiter that has heard nothing for some time peeks at the count together with the other waiters of its client,
    /// and sleeps again while the count is above 0.
    async fn sleep(&mut self) -> Result<(), Error> {
        let subscription = self.subscription.as_ref();
        let was_active = subscription.is_some_and(Subscription::is_active);
        self.sleep_while_above_zero(was_active).await;
        if self.request.session.now() < self.deadline {
            Ok(())
        } else {
            Err(self.over())
        }
    }

    /// `was_active`: whether messages arrived before the last read.
    async fn sleep_while_above_zero(&mut self, was_active: bool) {
        let session = self.request.session;
        let target = &self.request.target;
        let subscription = self
            .subscription
            .get_or_insert_with(|| session.backend.subscribe(target));
        #[cfg(feature = "testing")]
        if self.shown.is_none() {
            let key = &target.resource.key;
            self.shown = session.backend.show_wait(key, session.id, None);
        }
        loop {
            // Random, so that waiters that began together do not always peek together.
            let without_message = MAX_SLEEP_WITHOUT_MESSAGE.mul_f64(random_range(PEEK_AFTER));
            let until = session.now().after(without_message).min(self.deadline);
            crate::sync::select! {
                // In this order, here and below: a message says more than the time, or than a peek.
                biased;
                () = subscription.changed(was_active) => return,
                () = session.clock.sleep_until(until) => {}
            }
            if session.now() >= self.deadline {
                return;
            }
            // Before the peek, as for a read.
            let epoch = session.backend.epoch(&target.resource.key);
            let signal = Some(subscription.state());
            let peeked = crate::sync::select! {
                biased;
                () = subscription.changed(was_active) => return,
                peeked = session.peek(target.clone()) => peeked,
                () = session.clock.sleep_until(self.deadline) => return,
            };
            // Without an answer it reads the count itself, and reports why that fails.
            let Some(Peeked {
                is_open: false,
                count: Some(count),
                ..
            }) = peeked
            else {
                return;
            };
            // A read tells the run of the server that another connection leads to, and until when the latch stays.
            let is_same = |seen: &&mut Sight| seen.epoch == epoch && seen.expires > session.now();
            let Some(seen) = self.seen.as_mut().filter(is_same) else {
                return;
            };
            seen.count = count;
            seen.signal = signal;
        }
    }

    /// The error for a wait that is over. If the last read was not answered, the error is its fault and not a timeout.
    fn over(&self) -> Error {
        let key = &self.request.target.resource.key;
        let session = self.request.session;
        let waited = session.now().since(self.since);
        let blocker = match (&self.seen, &self.request.failed) {
            (Some(Sight { count, .. }), None) => Blocker::Count(count.unsigned_abs()),
            (None, None) if !self.shows_outage(waited) => Blocker::Unanswered,
            _ => return self.request.no_answer().into_error(key, waited),
        };
        session.timed_out(key, waited, blocker, None)
    }

    /// Whether a first read that was not answered for this long shows that the server does not answer.
    fn shows_outage(&self, waited: Duration) -> bool {
        let session = self.request.session;
        waited >= session.config.conclusive_silence()
            || session
                .outages
                .known(&self.request.target.resource.key)
                .is_some()
    }
}

/// What messages say about a latch that was found to be gone.
enum Heard {
    /// One has come since the latch was there.
    Message,
    /// None has come, and each that was published has arrived.
    Nothing,
    /// One may have been missed.
    Unknown,
}

/// Waits until each message has arrived that was published until now, since messages come over another connection than the
/// answers. Not longer than until `latest`.
async fn heard(
    request: &NumberRequest<'_>,
    subscription: &mut Option<Subscription>,
    before: Option<Signal>,
    latest: Tick,
) -> Heard {
    let (Some(subscription), Some(before)) = (subscription, before) else {
        return Heard::Unknown;
    };
    let session = request.session;
    let mut all = session.backend.has_heard_all(&request.target);
    let mut has_all = false;
    loop {
        let signal = subscription.state();
        if !signal.was_active_since(before) {
            return Heard::Unknown;
        }
        if signal.messages != before.messages {
            return Heard::Message;
        }
        if has_all {
            return Heard::Nothing;
        }
        crate::sync::select! {
            // In this order: a message that has arrived counts, even if the time is over.
            biased;
            () = subscription.changed(true) => {}
            heard = &mut all => if heard { has_all = true } else { return Heard::Unknown },
            () = session.clock.sleep_until(latest) => return Heard::Unknown,
        }
    }
}
