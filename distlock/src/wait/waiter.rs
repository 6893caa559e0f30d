//! The loop of a waiter: its turn, its attempt, and what it does if that is not granted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use smallvec::smallvec;

use super::attempt::{Attempts, Outcome};
use super::listener::Listener;
use super::peek::{LeaseInTheWay, due_without_a_message};
use super::refusal::{Refusal, RefusedBy};
use super::request::{Request, RequestedKey};
use super::turn::{Blocking, MyTurn, NoTurn, Turn};
use crate::backend::{Fault, Target, cause};
use crate::clock::Tick;
use crate::config::SIGNS_PER_WAITER_TIMEOUT;
use crate::error::Error;
use crate::local::{NextStep, OpenShare, OpenShares, Registry, Ticket, WaiterSlot};
use crate::session::{Retry, Session};
use crate::sync::first;
use crate::sync::random::growing_pause;
use crate::telemetry;

/// What came of an attempt.
pub(super) enum AttemptEnd {
    Outcome(Outcome),
    /// There was no answer by the deadline, but a hold was handed over meanwhile.
    HandedOver(OpenShare),
}

/// What a waiter does after it was at the server.
enum AfterServer {
    /// It has what it wants.
    End(OpenShares),
    /// It looks at its place in the queue again, and goes to the server if it is still the first.
    GoOn,
    /// It sleeps before that.
    Sleep(Sleep),
}

/// A sleep until the next attempt makes sense.
pub(super) struct Sleep {
    /// How long the holder keeps the key, if the server has said so.
    ttl: Option<Duration>,
    /// Whether the subscription was active when the attempt began.
    was_active: bool,
}

/// An acquisition that waits for one key, or in the queue of one of [several](super::several). Dropping it ends its owner,
/// its subscription and its turn.
///
/// Futures that an uncontended acquisition never runs are boxed, unless they fit into the room of those that it runs. The
/// future of each acquisition is allocated, and a small one is cheap to allocate.
pub(super) struct Waiter<'a> {
    pub(super) registry: &'a Arc<Registry>,
    pub(super) request: &'a Request,
    // The fields are dropped in this order: `attempts` has its owner ended before `turn` wakes the next waiter. In the
    // other order the server could refuse that waiter because of this owner.
    pub(super) attempts: Attempts<'a>,
    pub(super) listener: Option<Listener>,
    pub(super) turn: Turn<'a>,
    /// Its attempts in a row that were not answered. Boxed, because that is rare, and each waiter has room for it.
    pub(super) unanswered: Option<Box<Retry>>,
    /// The next pause of a waiter that does not listen for messages.
    pub(super) pause: Duration,
    /// Whether a peek has shown that another client took the key after a release, so that an attempt would be refused.
    pub(super) is_taken: bool,
}

impl<'a> Waiter<'a> {
    pub(super) fn session(&self) -> &'a Arc<Session> {
        &self.registry.session
    }

    /// Waits for the key with this index. `rank` and `waiter_slot`: what it had in the queue of another key, and keeps.
    pub(super) fn new(
        registry: &'a Arc<Registry>,
        request: &'a Request,
        at: usize,
        rank: Option<Ticket>,
        waiter_slot: Option<WaiterSlot>,
    ) -> Self {
        Self {
            registry,
            request,
            attempts: request.attempts(registry, true),
            listener: None,
            unanswered: None,
            pause: request.requested[at].backoff().first,
            turn: Turn::new(registry, request, at, true, rank, waiter_slot),
            is_taken: false,
        }
    }

    pub(super) fn requested(&self) -> &'a RequestedKey {
        &self.request.requested[self.turn.at]
    }

    /// Waits for its turn, and then until its only key is granted.
    pub(super) async fn win(&mut self) -> Result<OpenShares, Error> {
        loop {
            let (yield_first, at) = match self.wait_for_turn().await? {
                MyTurn::HandedOver(share) => return Ok(smallvec![share]),
                MyTurn::Attempt { yield_first, at } => (yield_first, at),
            };
            // In this order, here and below: the interruption is looked at only while there is nothing else.
            let interruption = self.interruption();
            let sleep = match first(self.go_to_server(yield_first, at), interruption).await? {
                AfterServer::End(shares) => return Ok(shares),
                AfterServer::GoOn => continue,
                AfterServer::Sleep(sleep) => sleep,
            };
            // Not within `go_to_server`: a sleeper needs no room for an attempt, and an attempt none for a sleeper.
            let interruption = self.interruption();
            first(self.sleep(sleep).map(Ok), interruption).await?;
        }
    }

    /// Completes when the client is closed. Meanwhile it answers the questions whether this waiter is still polled.
    pub(super) fn interruption<T>(&self) -> impl Future<Output = Result<T, Error>> + use<'a, T> {
        let request = self.request;
        let checks = self.turn.slot.answer_checks();
        let closed = self.session().closed.wait().map(|()| Err(request.closed()));
        first(closed, checks.map(|never| match never {}))
    }

    /// Waits until it is first in line.
    pub(super) async fn wait_for_turn(&mut self) -> Result<MyTurn, Error> {
        let session = self.session();
        let key = &self.requested().resource.key;
        let is_unanswered = |at| session.outages.current_since(key, at).is_some();
        // Not in the head of the `match`, whose temporary values the future would keep during the attempt.
        let turn = self.turn.wait(self.request.deadline(), is_unanswered).await;
        turn.map_err(|none| match none {
            NoTurn::TimedOut => self.timed_out(),
            NoTurn::GivenUp => self.given_up(),
            NoTurn::Failed(error) => error,
        })
    }

    /// Asks the server for the key, or does not if a peek has shown that an attempt would be refused. `now`: when its turn came.
    async fn go_to_server(
        &mut self,
        yield_first: bool,
        mut now: Tick,
    ) -> Result<AfterServer, Error> {
        if yield_first {
            // An earlier peek says nothing after this client's own release.
            self.is_taken = false;
            // Boxed, here and below: most waiters never come here, and each would have room for it.
            Box::pin(self.yield_to_others()).await;
            now = self.session().now();
        }
        let is_taken = std::mem::take(&mut self.is_taken);
        let (true, Blocking::Owner(until) | Blocking::OwnerInOutage(until)) =
            (is_taken, self.turn.blocking)
        else {
            return self.ask_server(now).await;
        };
        let by = RefusedBy::Owner {
            ttl: until.map(|until| until.left(now)),
            holder: None,
        };
        let sleep = self.refused(&by, true)?;
        Ok(sleep.map_or(AfterServer::GoOn, AfterServer::Sleep))
    }

    /// Sends one attempt, at `sent`.
    async fn ask_server(&mut self, sent: Tick) -> Result<AfterServer, Error> {
        let was_active = self.is_active();
        let outcome = match self.attempt(sent).await? {
            AttemptEnd::Outcome(outcome) => outcome,
            AttemptEnd::HandedOver(share) => return Ok(AfterServer::End(smallvec![share])),
        };
        match outcome {
            Outcome::Granted(shares) => {
                let listener = self.listener.as_ref();
                let heard = listener.and_then(Listener::heard);
                for share in &shares {
                    self.turn.slot.granted(share.hold(), heard);
                }
                Ok(AfterServer::End(shares))
            }
            outcome => {
                let sleep = self.not_granted(outcome, sent, was_active).await?;
                Ok(sleep.map_or(AfterServer::GoOn, AfterServer::Sleep))
            }
        }
    }

    /// Sends one attempt at `sent`, and waits for its outcome.
    pub(super) async fn attempt(&mut self, sent: Tick) -> Result<AttemptEnd, Error> {
        if let Some(listener) = &mut self.listener {
            // Before the attempt, so that a message that arrives during the attempt counts as new.
            listener.mark_seen();
        }
        let session = self.session();
        let deadline = self.request.deadline();
        let latest = deadline.min(self.give_up_at());
        let answered = self.attempts.once(sent, deadline).map(Some);
        let too_late = session.clock.sleep_until(latest).map(|()| None);
        // In this order: an answer that has arrived counts, even if the time is over by now.
        if let Some(outcome) = first(answered, too_late).await {
            return Ok(AttemptEnd::Outcome(outcome));
        }
        if latest == deadline {
            let key = &self.requested().resource.key;
            session.outages.unanswered(key, sent, None);
            return self.last_chance();
        }
        // The owner of an attempt that was left is not used again.
        self.renew_attempts();
        // The fault of an earlier attempt says more than `no answer`.
        let earlier = self.unanswered.as_ref().map(|earlier| earlier.no_answer());
        let fault = earlier.unwrap_or_else(Fault::no_answer);
        Ok(AttemptEnd::Outcome(Outcome::Failed(fault)))
    }

    /// Records an attempt that was sent at `sent` and was not granted. Pauses if the server could not serve it. Returns the
    /// sleep before the next attempt, if that makes no sense at once.
    pub(super) async fn not_granted(
        &mut self,
        outcome: Outcome,
        sent: Tick,
        was_active: bool,
    ) -> Result<Option<Sleep>, Error> {
        match outcome {
            Outcome::Granted(_) => {}
            Outcome::Held(Refusal { mut by, .. }) => {
                let holder = by.take_holder();
                self.saw_taker(holder.as_deref());
                // A wait without limit ends in no error that names the holder, but those behind it may have a limit.
                let is_told = self.request.wait.is_some() || self.turn.slot.is_first_of_several();
                self.turn.note_holder(holder.filter(|_| is_told));
                return self.refused(&by, was_active);
            }
            Outcome::TooLate if self.session().now() >= self.request.deadline() => {
                return Err(self.timed_out());
            }
            Outcome::TooLate => {
                self.renew_attempts();
                let late = cause("the grant arrived too late to be used");
                Box::pin(self.failed(sent, Fault::NotNow(late))).await?;
            }
            Outcome::Unconfirmed(fault) => {
                // The key was free, whatever an earlier refusal said of its end.
                self.turn.slot.note_free();
                self.renew_attempts();
                Box::pin(self.failed(sent, fault)).await?;
            }
            Outcome::Failed(fault) => Box::pin(self.failed(sent, fault)).await?,
            Outcome::Absent => self.renew_attempts(),
        }
        Ok(None)
    }

    /// Uses new owners for its attempts from now on.
    pub(super) fn renew_attempts(&mut self) {
        let anew = self.attempts.with_new_owners();
        self.replace_attempts(anew);
    }

    /// Uses these attempts from now on. The owners of the earlier attempts are ended if they are in doubt.
    pub(super) fn replace_attempts(&mut self, attempts: Attempts<'a>) {
        self.attempts = attempts;
        // A waiter that the server knows by its owner listens to a channel of that owner, so a new owner needs a new
        // subscription.
        self.listener = None;
    }

    /// Notes that the key was refused.
    ///
    /// Returns the sleep before the next attempt. `None`: the waiter looks at its place in the queue at once.
    fn refused(&mut self, by: &RefusedBy, was_active: bool) -> Result<Option<Sleep>, Error> {
        self.count_turns();
        self.count_turn_of_pollers();
        self.unanswered = None;
        let ttl = by.ttl();
        match by {
            RefusedBy::Owner { .. } => self.turn.note_owner(ttl),
            RefusedBy::Unset => self.turn.blocking = Blocking::Unset,
        }
        telemetry::attempt_refused(&self.requested().resource, ttl);
        self.turn.count_as_waiter()?;
        let sleeps = self.turn.slot.listens_after_refusal();
        if sleeps {
            self.turn.tell_line();
        }
        Ok(sleeps.then_some(Sleep { ttl, was_active }))
    }

    /// The deadline passed while an attempt was under way. Its owner is ended when this waiter is dropped.
    fn last_chance(&mut self) -> Result<AttemptEnd, Error> {
        match self.turn.slot.next_step() {
            (NextStep::HandedOver(share), _) => Ok(AttemptEnd::HandedOver(share)),
            _ => Err(self.timed_out()),
        }
    }

    /// Sleeps until the next attempt makes sense. If the subscription is not active yet, it sleeps only until then.
    pub(super) async fn sleep(&mut self, sleep: Sleep) {
        let Sleep { ttl, was_active } = sleep;
        // A rule of tests/model: who_listens_attempts_once_more.
        if !self.requested().resource.kind.listens() {
            return self.back_off(ttl).await;
        }
        let now = self.session().now();
        let until = self.next_sign_of_life(now).min(self.request.deadline());
        self.listen();
        let session = self.session();
        let (requested, attempts) = (self.requested(), &self.attempts);
        // Made for each peek: every sleeper would have room for it.
        let target = || waited_for(requested, attempts);
        let mut lease = LeaseInTheWay::new(&mut self.turn, ttl, now);
        let slot = lease.slot;
        let Some(listener) = &mut self.listener else {
            return;
        };
        crate::sync::select! {
            // In this order: a hand-over counts before a message, which would send the waiter to the server.
            biased;
            () = slot.woken() => {}
            () = listener.changed(was_active) => {
                if was_active {
                    slot.verify_holder();
                    self.let_longer_waits_go_first().await;
                }
            }
            () = session.clock.sleep_until(until) => {}
            () = due_without_a_message(session, target, &mut lease, was_active) => {}
        }
    }

    /// Pauses, each time longer, up to the longest pause and to the end of the holder's lease.
    pub(super) async fn back_off(&mut self, ttl: Option<Duration>) {
        let longest = self.requested().backoff().longest;
        let pause = growing_pause(&mut self.pause, longest);
        let pause = ttl.map_or(pause, |ttl| pause.min(ttl + Duration::from_millis(1)));
        let until = self
            .session()
            .now()
            .after(pause)
            .min(self.request.deadline());
        crate::sync::select! {
            () = self.turn.slot.woken() => {}
            () = self.session().clock.sleep_until(until) => {}
        }
    }

    /// When the waiter repeats its attempt so that the server keeps it in its queue.
    fn next_sign_of_life(&self, now: Tick) -> Tick {
        if self.requested().resource.kind.queues_in_server() {
            now.after(self.session().config.waiter_timeout / SIGNS_PER_WAITER_TIMEOUT)
        } else {
            Tick::NEVER
        }
    }

    /// Whether messages arrive, as far as this client knows.
    pub(super) fn is_active(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::is_active)
    }

    pub(super) fn listen(&mut self) -> &mut Listener {
        let backend = &self.session().backend;
        let target = waited_for(self.requested(), &self.attempts);
        self.listener
            .get_or_insert_with(|| Listener::new(&**backend, &target))
    }
}

/// The key that a waiter waits for. The owner decides only for kinds that the server keeps in a queue, and those are acquired
/// one at a time.
fn waited_for(requested: &RequestedKey, attempts: &Attempts<'_>) -> Target {
    let mut target = attempts.target(0).clone();
    target.resource = requested.resource.clone();
    target
}
