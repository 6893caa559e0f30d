//! How an acquisition waiter_slot: attempt, subscribe, attempt again, sleep to a message, the holder's lease or the deadline.
//!
//! Local waiters of one key stand in one queue and only its head comes here into the loop. Behind a holder of its own
//! client the head first trusts that neighbour to hand over or to free, without asking the server.

mod attempt;
mod number;
pub(crate) mod quorum;
pub(crate) mod request;

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use self::attempt::{Attempts, Outcome};
pub(crate) use self::number::{adjust, until_zero};
pub(crate) use self::request::{HoldRefs, Request, RequestedKey};

use crate::backend::{Fault, Subscription, cause};
use crate::clock::Tick;
use crate::config::{
    MAX_SLEEP_UNTOLD, NEIGHBOUR_TRUST, RETRY_PAUSE, SIGNS_PER_WAITER_TIMEOUT, YIELD_TIME,
};
use crate::error::{Blocker, Error};
use crate::hold::{Hold, Session};
use crate::local::{NextStep, QueueSlot, Registry, WaiterSlot};
use crate::telemetry;

/// What a round of asking came to.
pub(crate) enum TryOutcome {
    Granted(HoldRefs),
    /// The key at this place is not to be had, for so long.
    Held {
        at: usize,
        ttl: Option<Duration>,
    },
}

/// Asks the server once, past the local queues.
pub(crate) async fn try_once(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<TryOutcome, Error> {
    let session = &registry.session;
    session.start_tasks();
    let failed = |fault: Fault| {
        let key = &request.requested[0].resource.key;
        fault.into_error(key, session.now().since(request.since))
    };
    let outcome = request.attempts(session, false).once(Tick::NEVER).await;
    match outcome {
        Outcome::Granted(hold_refs) => {
            for hold_ref in &hold_refs {
                registry.granted(hold_ref.hold());
            }
            Ok(TryOutcome::Granted(hold_refs))
        }
        Outcome::Held { at, ttl } => Ok(TryOutcome::Held { at, ttl }),
        Outcome::TooLate => Err(failed(Fault::NotNow(cause(
            "the grant arrived when its lease was nearly over",
        )))),
        Outcome::Failed(fault) => Err(failed(fault)),
    }
}

/// Waits until all that is asked for is granted: the path of every acquisition that is not a re-entry.
pub(crate) async fn acquire(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<HoldRefs, Error> {
    if request.wait.is_some_and(|wait| wait.is_zero()) {
        return match try_once(registry, request).await? {
            TryOutcome::Granted(hold_refs) => Ok(hold_refs),
            TryOutcome::Held { at, ttl } => {
                let (now, blocker) = (registry.session.now(), Blocker::Owner(ttl));
                Err(request.timed_out(&request.requested[at].resource.key, now, blocker))
            }
        };
    }
    registry.session.start_tasks();
    let own = |requested: &&RequestedKey| registry.is_held_by_this_task(&requested.resource);
    if request.wait.is_none()
        && let Some(requested) = request.requested.iter().find(own)
    {
        telemetry::waits_for_itself(&requested.resource.key);
    }
    let (mut at, mut waits) = (0, None);
    loop {
        match Waiter::join(registry, request, at, waits).win().await? {
            RoundOutcome::All(hold_refs) => return Ok(hold_refs),
            RoundOutcome::Elsewhere(refused, counted) => (at, waits) = (refused, counted),
        }
    }
}

/// What a waiter's turn came to.
enum RoundOutcome {
    All(HoldRefs),
    /// The key at this place was refused: that is the queue to stand in, counted as a waiter if it was before.
    Elsewhere(usize, Option<WaiterSlot>),
}

/// One acquisition that waits, with all that it must give back when it is dropped.
///
/// What an uncontended acquisition does not come to is boxed: its future is allocated each time, and a small one is
/// cheap.
struct Waiter<'a> {
    registry: &'a Arc<Registry>,
    session: &'a Arc<Session>,
    request: &'a Request,
    /// The key in whose queue it stands.
    at: usize,
    deadline: Tick,
    // Dropped in this order: the owner is ended before the place is passed on.
    attempts: Attempts,
    subscription: Option<Subscription>,
    slot: QueueSlot,
    blocking: Blocking,
    failing: Option<UnansweredAttempts>,
    /// The next pause, where nobody listens for messages.
    pause: Duration,
    /// Counts it as a waiter, once it had to wait.
    waiter_slot: Option<WaiterSlot>,
}

/// Who stands in the way, by what was heard last.
#[derive(Clone, Copy, Debug)]
enum Blocking {
    /// Nobody, as far as is known: the server has not answered yet.
    Nobody,
    /// Other waiters of this client.
    Queue,
    /// An owner whose lease ends then, unless it renews.
    Owner(Option<Tick>),
}

impl Blocking {
    fn owner(ttl: Option<Duration>, now: Tick) -> Self {
        Self::Owner(ttl.map(|ttl| now.after(ttl)))
    }

    fn blocker(self, now: Tick) -> Blocker {
        match self {
            Self::Nobody | Self::Queue => Blocker::Queue,
            Self::Owner(until) => Blocker::Owner(until.map(|until| until.left(now))),
        }
    }
}

/// Attempts that nobody answered, in a row.
struct UnansweredAttempts {
    since: Tick,
    pause: Duration,
    last: Fault,
}

impl<'a> Waiter<'a> {
    fn join(
        registry: &'a Arc<Registry>,
        request: &'a Request,
        at: usize,
        mut waiter_slot: Option<WaiterSlot>,
    ) -> Self {
        let session = &registry.session;
        if let Some(waiter_slot) = &mut waiter_slot {
            waiter_slot.go_to(&request.requested[at].resource.key);
        }
        Self {
            registry,
            session,
            request,
            at,
            deadline: request.deadline(),
            attempts: request.attempts(session, true),
            subscription: None,
            slot: registry.join(request, at, request.requested.len() == 1),
            blocking: Blocking::Nobody,
            failing: None,
            pause: request.requested[at].pause.0,
            waiter_slot,
        }
    }

    /// It has to wait: from here on it counts as a waiter, unless those are too many.
    fn count_as_waiter(&mut self) -> Result<(), Error> {
        if self.waiter_slot.is_none() {
            let first = self.slot.is_first_of_several();
            let waiter_slot = self
                .registry
                .count_as_waiter(self.request, self.at, first)?;
            self.waiter_slot = Some(waiter_slot);
        }
        Ok(())
    }

    fn requested(&self) -> &'a RequestedKey {
        &self.request.requested[self.at]
    }

    /// Waits for its turn, and then until everything is ours or another key is in the way.
    async fn win(mut self) -> Result<RoundOutcome, Error> {
        let mut trust_until = None;
        loop {
            let step = self.slot.next_step();
            // What was handed over counts, also when it came with the deadline.
            if let NextStep::HandedOver(hold_ref) = step {
                return Ok(RoundOutcome::All(smallvec![hold_ref]));
            }
            let now = self.session.now();
            if now >= self.deadline {
                return Err(self.timed_out());
            }
            let yield_first = match step {
                NextStep::HandedOver(_) | NextStep::WaitInLine => {
                    self.blocking = Blocking::Queue;
                    self.count_as_waiter()?;
                    self.wait_in_line().await;
                    continue;
                }
                NextStep::Behind(neighbour) => {
                    let trusted = *trust_until.get_or_insert(now.after(NEIGHBOUR_TRUST));
                    if now < trusted {
                        self.count_as_waiter()?;
                        self.wait_behind(&neighbour, trusted).await;
                        continue;
                    }
                    false
                }
                NextStep::Attempt { yield_first } => yield_first,
            };
            if yield_first {
                Box::pin(self.yield_to_others()).await;
            }
            if let Some(won) = self.ask_server().await? {
                return Ok(won);
            }
        }
    }

    async fn wait_in_line(&self) {
        tokio::select! {
            () = self.slot.woken() => {}
            () = self.session.clock.sleep_until(self.deadline) => {}
        }
    }

    /// Sleeps until the neighbour hands over, frees or loses the hold, or was trusted long enough.
    async fn wait_behind(&mut self, neighbour: &Hold, until: Tick) {
        self.blocking = Blocking::Owner(Some(neighbour.deadline()));
        tokio::select! {
            biased;
            () = self.slot.woken() => {}
            () = neighbour.over() => {}
            () = self.session.clock.sleep_until(until.min(self.deadline)) => {}
        }
    }

    /// Another process heard of the release: attempt only after our own message and one hop more, else the one who
    /// released wins nearly always.
    async fn yield_to_others(&mut self) {
        let until = self.session.now().after(YIELD_TIME).min(self.deadline);
        let (session, was_active) = (self.session, self.is_active());
        let resource = &self.requested().resource;
        if !resource.kind.listens() {
            return session.clock.sleep_until(until).await;
        }
        let subscription = self.subscribed();
        let hop = async {
            subscription.changed(was_active).await;
            drop(session.backend.inspect(resource).await);
            // In memory nothing of this takes time: let those run who were woken.
            tokio::task::yield_now().await;
        };
        tokio::select! {
            () = hop => {}
            () = session.clock.sleep_until(until) => {}
        }
    }

    /// One attempt, and the sleep that follows where it was not granted.
    async fn ask_server(&mut self) -> Result<Option<RoundOutcome>, Error> {
        if let Some(subscription) = &mut self.subscription {
            subscription.mark_seen();
        }
        let was_active = self.is_active();
        let sent = self.session.now();
        let latest = self.deadline.min(self.give_up_at());
        let outcome = tokio::select! {
            biased;
            outcome = self.attempts.once(self.deadline) => outcome,
            () = self.session.clock.sleep_until(latest) => match latest {
                latest if latest == self.deadline => return self.last_chance(),
                // What was answered before says more than that this one was not.
                _ => Outcome::Failed(match &self.failing {
                    Some(failing) => failing.last.clone(),
                    None => Fault::Unknown(cause("no answer")),
                }),
            },
        };
        match outcome {
            Outcome::Granted(hold_refs) => {
                self.slot.granted(hold_refs[self.at].hold());
                for (_, other) in hold_refs
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| *at != self.at)
                {
                    self.registry.granted(other.hold());
                }
                return Ok(Some(RoundOutcome::All(hold_refs)));
            }
            Outcome::Held { at, .. } if at != self.at => {
                return Ok(Some(RoundOutcome::Elsewhere(at, self.waiter_slot.take())));
            }
            Outcome::Held { ttl, .. } => {
                self.failing = None;
                self.blocking = Blocking::owner(ttl, self.session.now());
                self.count_as_waiter()?;
                if self.slot.stand_in_line() {
                    Box::pin(self.sleep(ttl, was_active)).await;
                }
            }
            Outcome::TooLate if self.session.now() >= self.deadline => return Err(self.timed_out()),
            Outcome::TooLate => {
                self.attempts = self.request.attempts(self.session, true);
                // A waiter that the server knows listens to a channel of its owner's.
                self.subscription = None;
                let late = cause("the grant arrived when it was of no use any more");
                Box::pin(self.failed(sent, Fault::NotNow(late))).await?;
            }
            Outcome::Failed(fault) => Box::pin(self.failed(sent, fault)).await?,
        }
        Ok(None)
    }

    /// The deadline came while an attempt was under way; its owner is ended when this waiter is dropped.
    fn last_chance(&mut self) -> Result<Option<RoundOutcome>, Error> {
        match self.slot.next_step() {
            NextStep::HandedOver(hold_ref) => Ok(Some(RoundOutcome::All(smallvec![hold_ref]))),
            _ if self.failing.is_none() && matches!(self.blocking, Blocking::Nobody) => {
                let none = cause("no answer within the wait");
                Err(Fault::Unknown(none).into_error(&self.requested().resource.key, self.waited()))
            }
            _ => Err(self.timed_out()),
        }
    }

    /// Sleeps until it makes sense to ask again; before the first sleep, only until the subscription stands.
    async fn sleep(&mut self, ttl: Option<Duration>, was_active: bool) {
        if !self.requested().resource.kind.listens() {
            return self.back_off(ttl).await;
        }
        let now = self.session.now();
        let untold = now.after(MAX_SLEEP_UNTOLD);
        let until = match ttl {
            // Up to a millisecond is left when the server says 0.
            Some(ttl) => now.after(ttl + Duration::from_millis(1)),
            None => untold,
        };
        let until = if was_active { until } else { until.min(untold) };
        let until = until.min(self.next_sign(now)).min(self.deadline);
        let clock = &self.session.clock;
        let (slot, target) = (&self.slot, self.attempts.target(self.at));
        let subscription = self
            .subscription
            .get_or_insert_with(|| self.session.backend.subscribe(target));
        tokio::select! {
            biased;
            () = slot.woken() => {}
            () = subscription.changed(was_active) => {}
            () = clock.sleep_until(until) => {}
        }
    }

    /// Pauses twice as long each time, up to the longest, and at random between half of that and all of it: waiters that
    /// came together do not ask together for ever. Not beyond the end of the lease in the way.
    async fn back_off(&mut self, ttl: Option<Duration>) {
        let pause = self.pause.mul_f64(rand::random_range(0.5..=1.0));
        let pause = ttl.map_or(pause, |ttl| pause.min(ttl + Duration::from_millis(1)));
        self.pause = (self.pause * 2).min(self.requested().pause.1);
        let until = self.session.now().after(pause).min(self.deadline);
        tokio::select! {
            () = self.slot.woken() => {}
            () = self.session.clock.sleep_until(until) => {}
        }
    }

    /// When the server has to hear of this waiter again, if it knows of it.
    fn next_sign(&self, now: Tick) -> Tick {
        if self.requested().resource.kind.has_places() {
            now.after(self.session.config.waiter_timeout / SIGNS_PER_WAITER_TIMEOUT)
        } else {
            Tick::NEVER
        }
    }

    /// Will messages come, as things stand?
    fn is_active(&self) -> bool {
        let subscription = self.subscription.as_ref();
        subscription.is_some_and(Subscription::is_active)
    }

    fn subscribed(&mut self) -> &mut Subscription {
        let (backend, target) = (&self.session.backend, self.attempts.target(self.at));
        self.subscription
            .get_or_insert_with(|| backend.subscribe(target))
    }

    /// Nobody answered what was `sent` then: pauses, or gives up when that went on for too long.
    async fn failed(&mut self, sent: Tick, fault: Fault) -> Result<(), Error> {
        if fault.is_final() {
            return Err(fault.into_error(&self.requested().resource.key, self.waited()));
        }
        let now = self.session.now();
        let longest = self.session.config.longest_pause();
        let failing = self.failing.get_or_insert_with(|| UnansweredAttempts {
            since: sent,
            pause: RETRY_PAUSE.0.min(longest),
            last: fault.clone(),
        });
        failing.last = fault;
        let pause = failing.pause;
        failing.pause = (pause * 2).min(longest);
        let (last, since) = (failing.last.clone(), failing.since);
        let give_up = self.give_up_at();
        if now >= give_up {
            return Err(last.into_error(&self.requested().resource.key, now.since(since)));
        }
        let until = now.after(pause).min(give_up).min(self.deadline);
        tokio::select! {
            () = self.slot.woken() => {}
            () = self.session.clock.sleep_until(until) => {}
        }
        Ok(())
    }

    /// When attempts that nobody answers have gone on for too long. The first one is bounded by the backend.
    fn give_up_at(&self) -> Tick {
        let limit = self.session.config.unavailable_after;
        let failing = self.failing.as_ref();
        failing.map_or(Tick::NEVER, |failing| failing.since.after(limit))
    }

    fn waited(&self) -> Duration {
        self.session.now().since(self.request.since)
    }

    /// The wait is over. Where the server has not been answering, that is what is wrong, and not a holder.
    fn timed_out(&self) -> Error {
        match &self.failing {
            Some(failing) => failing
                .last
                .clone()
                .into_error(&self.requested().resource.key, self.waited()),
            None => {
                let now = self.session.now();
                let blocker = self.blocking.blocker(now);
                self.request
                    .timed_out(&self.requested().resource.key, now, blocker)
            }
        }
    }
}
