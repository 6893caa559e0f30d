//! How an acquisition waits: attempt, subscribe, attempt again, sleep to a message, the holder's lease or the deadline.
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
pub(crate) use self::request::{Ask, Tenures, Wanted};

use crate::backend::{Fault, Subscription, cause};
use crate::clock::Tick;
use crate::config::{
    MAX_SLEEP_UNTOLD, NEIGHBOUR_TRUST, OTHERS_TURN, RETRY_PAUSE, SIGNS_PER_WAITER_TIMEOUT,
};
use crate::error::{Blocker, Error};
use crate::hold::{Hold, Keeper};
use crate::local::{Place, Registry, Turn, Waits};
use crate::telemetry;

/// What a round of asking came to.
pub(crate) enum Tried {
    Granted(Tenures),
    /// The key at this place is not to be had, for so long.
    Held {
        at: usize,
        ttl: Option<Duration>,
    },
}

/// Asks the server once, past the local queues.
pub(crate) async fn try_once(registry: &Arc<Registry>, ask: &Ask) -> Result<Tried, Error> {
    let keeper = &registry.keeper;
    keeper.start_tasks();
    let failed = |fault: Fault| {
        let key = &ask.wanted[0].key;
        fault.into_error(key, keeper.now().since(ask.since))
    };
    let outcome = ask.attempts(keeper, false).once(Tick::NEVER).await;
    match outcome {
        Outcome::Granted(tenures) => {
            for tenure in &tenures {
                registry.granted(tenure.hold());
            }
            Ok(Tried::Granted(tenures))
        }
        Outcome::Held { at, ttl } => Ok(Tried::Held { at, ttl }),
        Outcome::TooLate => Err(failed(Fault::NotNow(cause(
            "the grant arrived when its lease was nearly over",
        )))),
        Outcome::Failed(fault) => Err(failed(fault)),
    }
}

/// Waits until all that is asked for is granted: the path of every acquisition that is not a re-entry.
pub(crate) async fn acquire(registry: &Arc<Registry>, ask: &Ask) -> Result<Tenures, Error> {
    if ask.wait.is_some_and(|wait| wait.is_zero()) {
        return match try_once(registry, ask).await? {
            Tried::Granted(tenures) => Ok(tenures),
            Tried::Held { at, ttl } => {
                let (now, blocker) = (registry.keeper.now(), Blocker::Owner(ttl));
                Err(ask.timed_out(&ask.wanted[at].key, now, blocker))
            }
        };
    }
    registry.keeper.start_tasks();
    let own = |wanted: &&Wanted| registry.is_held_by_this_task(wanted.kind, &wanted.key);
    if ask.wait.is_none()
        && let Some(wanted) = ask.wanted.iter().find(own)
    {
        telemetry::waits_for_itself(&wanted.key);
    }
    let (mut at, mut waits) = (0, None);
    loop {
        match Waiter::join(registry, ask, at, waits).win().await? {
            Won::All(tenures) => return Ok(tenures),
            Won::Elsewhere(refused, counted) => (at, waits) = (refused, counted),
        }
    }
}

/// What a waiter's turn came to.
enum Won {
    All(Tenures),
    /// The key at this place was refused: that is the queue to stand in, counted as a waiter if it was before.
    Elsewhere(usize, Option<Waits>),
}

/// One acquisition that waits, with all that it must give back when it is dropped.
///
/// What an uncontended acquisition does not come to is boxed: its future is allocated each time, and a small one is
/// cheap.
struct Waiter<'a> {
    registry: &'a Arc<Registry>,
    keeper: &'a Arc<Keeper>,
    ask: &'a Ask,
    /// The key in whose queue it stands.
    at: usize,
    deadline: Tick,
    // Dropped in this order: the owner is ended before the place is passed on.
    attempts: Attempts,
    subscription: Option<Subscription>,
    place: Place,
    ahead: Ahead,
    failing: Option<Failing>,
    /// The next pause, where nobody listens for messages.
    pause: Duration,
    /// Counts it as a waiter, once it had to wait.
    waits: Option<Waits>,
}

/// Who stands in the way, by what was heard last.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// Nobody, as far as is known: the server has not answered yet.
    Nobody,
    /// Other waiters of this client.
    Queue,
    /// An owner whose lease ends then, unless it renews.
    Owner(Option<Tick>),
}

impl Ahead {
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
struct Failing {
    since: Tick,
    pause: Duration,
    last: Fault,
}

impl<'a> Waiter<'a> {
    fn join(
        registry: &'a Arc<Registry>,
        ask: &'a Ask,
        at: usize,
        mut waits: Option<Waits>,
    ) -> Self {
        let keeper = &registry.keeper;
        if let Some(waits) = &mut waits {
            waits.go_to(&ask.wanted[at].key);
        }
        Self {
            registry,
            keeper,
            ask,
            at,
            deadline: ask.deadline(),
            attempts: ask.attempts(keeper, true),
            subscription: None,
            place: registry.join(ask, at, ask.wanted.len() == 1),
            ahead: Ahead::Nobody,
            failing: None,
            pause: ask.wanted[at].pause.0,
            waits,
        }
    }

    /// It has to wait: from here on it counts as a waiter, unless those are too many.
    fn begin_to_wait(&mut self) -> Result<(), Error> {
        if self.waits.is_none() {
            let first = self.place.is_first_of_several();
            let waits = self.registry.begin_to_wait(self.ask, self.at, first)?;
            self.waits = Some(waits);
        }
        Ok(())
    }

    fn wanted(&self) -> &'a Wanted {
        &self.ask.wanted[self.at]
    }

    /// Waits for its turn, and then until everything is ours or another key is in the way.
    async fn win(mut self) -> Result<Won, Error> {
        let mut trust_until = None;
        loop {
            let turn = self.place.turn();
            // What was handed over counts, also when it came with the deadline.
            if let Turn::Handed(tenure) = turn {
                return Ok(Won::All(smallvec![tenure]));
            }
            let now = self.keeper.now();
            if now >= self.deadline {
                return Err(self.timed_out());
            }
            let others_first = match turn {
                Turn::Handed(_) | Turn::NotYet => {
                    self.ahead = Ahead::Queue;
                    self.begin_to_wait()?;
                    self.wait_in_line().await;
                    continue;
                }
                Turn::Behind(neighbour) => {
                    let trusted = *trust_until.get_or_insert(now.after(NEIGHBOUR_TRUST));
                    if now < trusted {
                        self.begin_to_wait()?;
                        self.wait_behind(&neighbour, trusted).await;
                        continue;
                    }
                    false
                }
                Turn::Ask { others_first } => others_first,
            };
            if others_first {
                Box::pin(self.let_others_go_first()).await;
            }
            if let Some(won) = self.ask_server().await? {
                return Ok(won);
            }
        }
    }

    async fn wait_in_line(&self) {
        tokio::select! {
            () = self.place.woken() => {}
            () = self.keeper.clock.sleep_until(self.deadline) => {}
        }
    }

    /// Sleeps until the neighbour hands over, frees or loses the hold, or was trusted long enough.
    async fn wait_behind(&mut self, neighbour: &Hold, until: Tick) {
        self.ahead = Ahead::Owner(Some(neighbour.deadline()));
        tokio::select! {
            biased;
            () = self.place.woken() => {}
            () = neighbour.over() => {}
            () = self.keeper.clock.sleep_until(until.min(self.deadline)) => {}
        }
    }

    /// Another process heard of the release: attempt only after our own message and one hop more, else the one who
    /// released wins nearly always.
    async fn let_others_go_first(&mut self) {
        let until = self.keeper.now().after(OTHERS_TURN).min(self.deadline);
        let (keeper, was_live) = (self.keeper, self.is_live());
        let Wanted { kind, key, .. } = self.wanted();
        if !kind.listens() {
            return keeper.clock.sleep_until(until).await;
        }
        let subscription = self.subscribed();
        let hop = async {
            subscription.told(was_live).await;
            drop(keeper.backend.inspect(*kind, key).await);
            // In memory nothing of this takes time: let those run who were woken.
            tokio::task::yield_now().await;
        };
        tokio::select! {
            () = hop => {}
            () = keeper.clock.sleep_until(until) => {}
        }
    }

    /// One attempt, and the sleep that follows where it was not granted.
    async fn ask_server(&mut self) -> Result<Option<Won>, Error> {
        if let Some(subscription) = &mut self.subscription {
            subscription.mark_seen();
        }
        let was_live = self.is_live();
        let sent = self.keeper.now();
        let latest = self.deadline.min(self.give_up_at());
        let outcome = tokio::select! {
            biased;
            outcome = self.attempts.once(self.deadline) => outcome,
            () = self.keeper.clock.sleep_until(latest) => match latest {
                latest if latest == self.deadline => return self.last_chance(),
                // What was answered before says more than that this one was not.
                _ => Outcome::Failed(match &self.failing {
                    Some(failing) => failing.last.clone(),
                    None => Fault::Unknown(cause("no answer")),
                }),
            },
        };
        match outcome {
            Outcome::Granted(tenures) => {
                self.place.granted(tenures[self.at].hold());
                for (_, other) in tenures.iter().enumerate().filter(|(at, _)| *at != self.at) {
                    self.registry.granted(other.hold());
                }
                return Ok(Some(Won::All(tenures)));
            }
            Outcome::Held { at, .. } if at != self.at => {
                return Ok(Some(Won::Elsewhere(at, self.waits.take())));
            }
            Outcome::Held { ttl, .. } => {
                self.failing = None;
                self.ahead = Ahead::owner(ttl, self.keeper.now());
                self.begin_to_wait()?;
                if self.place.stand_in_line() {
                    Box::pin(self.sleep(ttl, was_live)).await;
                }
            }
            Outcome::TooLate if self.keeper.now() >= self.deadline => return Err(self.timed_out()),
            Outcome::TooLate => {
                self.attempts = self.ask.attempts(self.keeper, true);
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
    fn last_chance(&mut self) -> Result<Option<Won>, Error> {
        match self.place.turn() {
            Turn::Handed(tenure) => Ok(Some(Won::All(smallvec![tenure]))),
            _ if self.failing.is_none() && matches!(self.ahead, Ahead::Nobody) => {
                let none = cause("no answer within the wait");
                Err(Fault::Unknown(none).into_error(&self.wanted().key, self.waited()))
            }
            _ => Err(self.timed_out()),
        }
    }

    /// Sleeps until it makes sense to ask again; before the first sleep, only until the subscription stands.
    async fn sleep(&mut self, ttl: Option<Duration>, was_live: bool) {
        if !self.wanted().kind.listens() {
            return self.back_off(ttl).await;
        }
        let now = self.keeper.now();
        let untold = now.after(MAX_SLEEP_UNTOLD);
        let until = match ttl {
            // Up to a millisecond is left when the server says 0.
            Some(ttl) => now.after(ttl + Duration::from_millis(1)),
            None => untold,
        };
        let until = if was_live { until } else { until.min(untold) };
        let until = until.min(self.next_sign(now)).min(self.deadline);
        let clock = &self.keeper.clock;
        let (place, target) = (&self.place, self.attempts.target(self.at));
        let subscription = self
            .subscription
            .get_or_insert_with(|| self.keeper.backend.subscribe(target));
        tokio::select! {
            biased;
            () = place.woken() => {}
            () = subscription.told(was_live) => {}
            () = clock.sleep_until(until) => {}
        }
    }

    /// Pauses twice as long each time, up to the longest, and at random between half of that and all of it: waiters that
    /// came together do not ask together for ever. Not beyond the end of the lease in the way.
    async fn back_off(&mut self, ttl: Option<Duration>) {
        let pause = self.pause.mul_f64(rand::random_range(0.5..=1.0));
        let pause = ttl.map_or(pause, |ttl| pause.min(ttl + Duration::from_millis(1)));
        self.pause = (self.pause * 2).min(self.wanted().pause.1);
        let until = self.keeper.now().after(pause).min(self.deadline);
        tokio::select! {
            () = self.place.woken() => {}
            () = self.keeper.clock.sleep_until(until) => {}
        }
    }

    /// When the server has to hear of this waiter again, if it knows of it.
    fn next_sign(&self, now: Tick) -> Tick {
        if self.wanted().kind.has_places() {
            now.after(self.keeper.config.waiter_timeout / SIGNS_PER_WAITER_TIMEOUT)
        } else {
            Tick::NEVER
        }
    }

    /// Will messages come, as things stand?
    fn is_live(&self) -> bool {
        let subscription = self.subscription.as_ref();
        subscription.is_some_and(Subscription::is_live)
    }

    fn subscribed(&mut self) -> &mut Subscription {
        let (backend, target) = (&self.keeper.backend, self.attempts.target(self.at));
        self.subscription
            .get_or_insert_with(|| backend.subscribe(target))
    }

    /// Nobody answered what was `sent` then: pauses, or gives up when that went on for too long.
    async fn failed(&mut self, sent: Tick, fault: Fault) -> Result<(), Error> {
        if fault.is_final() {
            return Err(fault.into_error(&self.wanted().key, self.waited()));
        }
        let now = self.keeper.now();
        let longest = self.keeper.config.longest_pause();
        let failing = self.failing.get_or_insert_with(|| Failing {
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
            return Err(last.into_error(&self.wanted().key, now.since(since)));
        }
        let until = now.after(pause).min(give_up).min(self.deadline);
        tokio::select! {
            () = self.place.woken() => {}
            () = self.keeper.clock.sleep_until(until) => {}
        }
        Ok(())
    }

    /// When attempts that nobody answers have gone on for too long. The first one is bounded by the backend.
    fn give_up_at(&self) -> Tick {
        let limit = self.keeper.config.unavailable_after;
        let failing = self.failing.as_ref();
        failing.map_or(Tick::NEVER, |failing| failing.since.after(limit))
    }

    fn waited(&self) -> Duration {
        self.keeper.now().since(self.ask.since)
    }

    /// The wait is over. Where the server has not been answering, that is what is wrong, and not a holder.
    fn timed_out(&self) -> Error {
        match &self.failing {
            Some(failing) => failing
                .last
                .clone()
                .into_error(&self.wanted().key, self.waited()),
            None => {
                let now = self.keeper.now();
                let blocker = self.ahead.blocker(now);
                self.ask.timed_out(&self.wanted().key, now, blocker)
            }
        }
    }
}
