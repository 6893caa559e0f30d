//! How an acquisition waits.
//!
//! # The steps of an acquisition
//! 1. **Re-entry.** [`acquire::reentry`](crate::acquire) looks at the scopes around the caller first. If a scope holds
//!    the key, the acquisition re-enters that hold without this module. Or the scope admits the acquisition, and the
//!    next steps ask the server for a hold beside that of the scope.
//! 2. **A single attempt** (`wait` zero, `try_acquire`) does not join the local queue. It makes one attempt and returns
//!    the answer.
//! 3. **The local queue.** Any other acquisition joins the queue of its key in this client. For kinds whose holds do
//!    not exclude each other, such as read locks, it does so only if others already wait, or after a refusal. Only the
//!    head of the queue talks to the server, so a thousand local waiters cost the server no more than one. The waiters
//!    are served in the order of their arrival. Fair locks have no local queue, because the server keeps the order of
//!    arrival among all processes.
//! 4. **Behind a holder of the same client** the head does not ask the server at once. For
//!    [`OWN_HOLDER_TRUST`](crate::config::OWN_HOLDER_TRUST) it expects that the hold is handed over or freed. After that
//!    it assumes a long hold, and asks the server and subscribes like any other waiter.
//! 5. **Attempt, subscribe, attempt again, sleep.** The head sends an attempt. If another owner holds the key it
//!    subscribes to the key's channel and sleeps only until the subscription is confirmed. Then it attempts again,
//!    because the lock may have been released before the subscription was active. After that it sleeps until a message
//!    arrives, the holder's lease is over, or the deadline has passed. A message is only a hint: the next attempt
//!    decides, or a look that finds another owner; see [`yielding`]. If it hears nothing for
//!    [`MAX_SLEEP_WITHOUT_MESSAGE`](crate::config::MAX_SLEEP_WITHOUT_MESSAGE), it [looks](look) at the key, because a key can change without a
//!    message. A look also tells when the lease is over by now. The looks of all
//!    waiters of a client are sent in batches, and only a waiter whose key seems free attempts again.
//! 6. **Several keys** of one client are waited for in one queue at a time, with the same place in all. [`several`] builds on
//!    the steps for one key.
//!    Keys of several slots of a cluster are asked for slot by slot; see [`several::parts`].
//! 7. **The end of the wait.** An acquisition that is dropped, or whose deadline passes, leaves the queue. A wake-up or
//!    a hold that had reached its slot goes to the next waiter. An owner whose attempt was not answered is ended in the
//!    background.
//!
//! # Hand-over
//! If a local waiter is next, a release does not need the server. The hold moves into the slot of the head, with its
//! owner and its deadline. The head makes a new guard for it, without a round trip. [`local::queue`](crate::local)
//! decides whether a hold is handed over. The hold must have no guard, no fixed lease, and at least half of its lease
//! left. Fair locks are never handed over, because the server keeps their order. Fenced locks are not, because each
//! grant needs a higher token. Holds that one command granted together are not either. A hold is never handed over after
//! a release was sent for it, because the release ends the owner.
//!
//! # After a dropped guard
//! Nobody waits for the release of a dropped guard, so the releaser's task begins it. Until then the hold waits without a guard,
//! and the next acquisition of the client takes it back. The rules of a hand-over apply, with those of *Yielding to other
//! processes*. Once the release was sent, its owner is never used again. The attempt of the next acquisition then follows right
//! behind the release, if both go over one connection, which keeps their order. The server decides about the attempt as about
//! any other, so the attempt is refused if the release fails. Other processes have no turn between the two. Such grants
//! therefore count like hand-overs, and no attempt follows in this way once the answer to a release has said that other clients
//! listened. In all other cases the acquisition waits for the answer to the release.
//!
//! # Waiters that are not polled
//! A waiter whose future exists but is not polled, such as one beside a `select!` loop, would keep the whole queue waiting.
//! While others need the head, the watchdog's task asks it for a sign once a second. A head that has not given one loses
//! its place, and the hold in its slot goes to the next waiter. When it is polled again, it joins the end of the queue.
//!
//! The same task asks each future for a sign that has something in the server, or may have, and no guard for it: an attempt
//! under way or in doubt, or some of several keys. If there is no sign, the owners are ended, whether or not others wait. A
//! grant that such a future finds when it is polled again counts as too late, and it asks anew with another owner. Keys
//! that are acquired one after the other are not renewed before all of them are there.
//!
//! # Hand-overs are confirmed
//! The server may have lost the hold meanwhile, for example by a force-release. Nobody waits for an answer to find that out,
//! but each hand-over has the watchdog renew the hold ahead of its time, at most every
//! [`CONFIRM_INTERVAL`](crate::config::CONFIRM_INTERVAL). A message that a waiter receives while its own client has the hold
//! does the same. If the answer is that the server does not have the hold, the guard that has it loses it, and nobody takes
//! it over any more.
//!
//! # Yielding to other processes
//! Without a limit, hand-overs would keep a busy key in one process forever. After
//! [`HAND_OVER_GRANTS`](crate::config::HAND_OVER_GRANTS) grants or [`HAND_OVER_TIME`](crate::config::HAND_OVER_TIME)
//! the hold is released in the server instead. The answer to a release says whether other clients listened to its
//! message. If none did, the next run may have [more grants](crate::config::HAND_OVER_GRANTS_ALONE). If they did, the head
//! yields: it lets the others go first for one round trip or more, and for [`YIELD_TIME`](crate::config::YIELD_TIME) at
//! most if it hears nothing. Without this pause the head would win nearly every time, because it would send its attempt
//! before the other clients had received the message. Clients of Redisson need more time, and get as many grants as this
//! client had, 65 at most. Clients that hear of the same release take turns; see [`yielding`].
//!
//! # Subscriptions
//! Waiters of one client share one subscription for each channel. A subscription that was interrupted and made again
//! wakes its waiters, because they may have missed messages. Waiters of kinds that have no messages (spin locks) pause
//! between attempts, twice as long each time. Waiters that the server keeps in a queue (fair locks, writers) repeat
//! their attempt often enough to keep their place there.
//!
//! # When the server does not answer
//! An attempt of unknown outcome is sent again with the same owner, after growing pauses, for as long as the wait lasts but
//! at most `unavailable_after` in a row. Then the acquisition fails as unavailable and its owner is ended. The waiters
//! that stand in line behind it fail with it and do not ask. What the attempts of all keys met is kept in
//! [`session::outage`](crate::session). A wait that ends before any answer is unavailable if the server is known to be away, and
//! a timeout otherwise.
//!
//! When a connection is re-established, the server behind it may be another one, or may have lost or regained data. The client then
//! renews all its holds at once, repeats the releases of the last seconds, and ends the owners whose attempts it could not
//! end before.

mod attempt;
mod look;
mod number;
pub(crate) mod one_server;
pub(crate) mod quorum;
mod request;
mod several;
mod turn;
mod unanswered;
mod yielding;

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use self::attempt::{Attempts, Outcome};
use self::look::{LeaseInTheWay, due_without_a_message};
pub(crate) use self::number::{adjust, until_zero};
pub(crate) use self::request::{ClientRequest, Request, RequestedKey};
use self::turn::{Blocking, MyTurn, Turn};
use crate::backend::{Fault, Subscription, Target, cause};
use crate::clock::Tick;
use crate::config::SIGNS_PER_WAITER_TIMEOUT;
use crate::error::{Blocker, Error, HeldBy};
use crate::local::{NextStep, OpenShare, OpenShares, Registry};
use crate::session::{Retry, Session};
use crate::telemetry;

/// The result of a single attempt.
pub(crate) enum TryOutcome {
    Granted(OpenShares),
    /// The key with this index is held by another owner, for this long.
    Held {
        at: usize,
        ttl: Option<Duration>,
        holder: Option<Box<HeldBy>>,
        /// The semaphore does not exist yet, so nobody holds it.
        is_unset: bool,
    },
}

/// Makes a single attempt, without the local queue.
pub(crate) async fn try_once(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<TryOutcome, Error> {
    registry.session.start_tasks();
    match request.has_several_keys() {
        false => try_keys(registry, request, &[0]).await,
        true => Box::pin(several::parts::try_each(registry, request)).await,
    }
}

/// Makes a single attempt on the keys with these indices, which one command can name.
async fn try_keys(
    registry: &Arc<Registry>,
    request: &Request,
    keys: &[usize],
) -> Result<TryOutcome, Error> {
    let session = &registry.session;
    let failed = |fault: Fault| {
        let key = &request.requested[keys[0]].resource.key;
        fault.into_error(key, session.now().since(request.since))
    };
    let outcome = loop {
        let requested = keys.iter().map(|at| &request.requested[*at]);
        let mut attempts = request.attempts_on(requested, registry, false);
        let outcome = attempts.once(session.now(), Tick::NEVER).await;
        drop(attempts);
        match outcome {
            Outcome::Absent => {}
            outcome => break outcome,
        }
    };
    match outcome {
        Outcome::Granted(shares) => {
            for share in &shares {
                registry.granted(share.hold());
            }
            Ok(TryOutcome::Granted(shares))
        }
        Outcome::Held {
            at,
            ttl,
            holder,
            is_unset,
        } => Ok(TryOutcome::Held {
            at: keys[at],
            ttl,
            holder,
            is_unset,
        }),
        Outcome::TooLate => Err(failed(Fault::NotNow(cause(
            "the grant arrived when its lease was nearly over",
        )))),
        Outcome::Unconfirmed(fault) | Outcome::Failed(fault) => Err(failed(fault)),
        Outcome::Absent => Err(failed(Fault::NotNow(cause("the attempt was not polled")))),
    }
}

/// Waits until all requested keys are granted. Every acquisition that is not a re-entry goes this way.
#[allow(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and each waiter has room for this"
)]
pub(crate) fn acquire(
    registry: &Arc<Registry>,
    request: &Request,
) -> impl Future<Output = Result<OpenShares, Error>> {
    async move {
        if request.is_single_try() {
            let tried = tokio::select! {
                biased;
                tried = try_once(registry, request) => tried?,
                () = registry.session.closing() => return Err(request.closed()),
            };
            return match tried {
                TryOutcome::Granted(shares) => Ok(shares),
                TryOutcome::Held {
                    at,
                    ttl,
                    holder,
                    is_unset,
                } => {
                    let now = registry.session.now();
                    let blocker = match is_unset {
                        true => Blocker::PermitsNotSet,
                        false => Blocker::Owner(ttl),
                    };
                    let key = &request.requested[at].resource.key;
                    Err(request.timed_out(key, now, blocker, holder))
                }
            };
        }
        registry.session.start_tasks();
        // Declared before: the drop of the waiter may wake and count, and if a block's end panics, the value of the block is not
        // dropped.
        let shares;
        if request.has_several_keys() {
            shares = Box::pin(several::acquire(registry, request)).await?;
        } else {
            let turn = Turn::new(registry, request, 0, true, None, None);
            let mut waiter = Waiter::new(registry, request, turn);
            shares = waiter.win().await?;
            // Before anything else happens, the waiter's owner is ended, and its turn goes to the next one.
        }
        if registry.session.is_closed() {
            drop(shares);
            return Err(request.closed());
        }
        Ok(shares)
    }
}

/// What a waiter that is first in line does.
enum NextTurn {
    /// It has a hold that was handed over.
    HandedOver(OpenShare),
    /// It asks the server. `yield_first`: other processes heard of the last release and go first.
    Attempt { yield_first: bool },
}

/// What came of an attempt.
enum AttemptEnd {
    Outcome(Outcome),
    /// There was no answer by the deadline, but a hold was handed over meanwhile.
    HandedOver(OpenShare),
}

/// An acquisition that waits for one key, or in the queue of one of [`several`]. Dropping it ends its owner, its subscription
/// and its turn.
///
/// Futures that an uncontended acquisition never runs are boxed. The future of each acquisition is allocated, and a
/// small one is cheap to allocate.
struct Waiter<'a> {
    registry: &'a Arc<Registry>,
    request: &'a Request,
    // The fields are dropped in this order: `attempts` has its owner ended before `turn` wakes the next waiter. In the
    // other order the server could refuse that waiter because of this owner.
    attempts: Attempts,
    subscription: Option<Subscription>,
    turn: Turn<'a>,
    /// Its attempts in a row that were not answered. Boxed, because that is rare, and each waiter has room for it.
    unanswered: Option<Box<Retry>>,
    /// The next pause of a waiter that does not listen for messages.
    pause: Duration,
    /// The number of the last message after which another client is known to have had its turn.
    counted: i64,
    /// Whether a look has told that another client took the key after a release, so that an attempt would be refused.
    is_taken: bool,
}

impl<'a> Waiter<'a> {
    fn session(&self) -> &'a Arc<Session> {
        &self.registry.session
    }

    /// The index of the key in whose queue it waits.
    fn at(&self) -> usize {
        self.turn.at
    }

    fn new(registry: &'a Arc<Registry>, request: &'a Request, turn: Turn<'a>) -> Self {
        Self {
            registry,
            request,
            attempts: request.attempts(registry, true),
            subscription: None,
            unanswered: None,
            pause: request.requested[turn.at].backoff.first,
            turn,
            counted: 0,
            is_taken: false,
        }
    }

    fn requested(&self) -> &'a RequestedKey {
        &self.request.requested[self.at()]
    }

    /// Waits for its turn, and then until its only key is granted.
    async fn win(&mut self) -> Result<OpenShares, Error> {
        loop {
            let yield_first = match self.wait_for_turn().await? {
                NextTurn::HandedOver(share) => return Ok(smallvec![share]),
                NextTurn::Attempt { yield_first } => yield_first,
            };
            let (session, request) = (self.session(), self.request);
            let checks = self.turn.slot.answer_checks();
            let granted = tokio::select! {
                // In this order: the others are looked at only while the server's answer is not there.
                biased;
                granted = self.go_to_server(yield_first) => granted?,
                () = session.closing() => return Err(request.closed()),
                never = checks => match never {},
            };
            if let Some(shares) = granted {
                return Ok(shares);
            }
        }
    }

    /// Waits until it is first in line.
    async fn wait_for_turn(&mut self) -> Result<NextTurn, Error> {
        let (session, key) = (self.session(), &self.requested().resource.key);
        let is_unanswered = |at| session.unanswered_at(key, at).is_some();
        // Not in the head of the `match`, whose temporary values the future would keep during the attempt.
        let turn = self
            .turn
            .wait(self.request.deadline(), is_unanswered)
            .await?;
        match turn {
            MyTurn::HandedOver(share) => Ok(NextTurn::HandedOver(share)),
            MyTurn::Attempt { yield_first } => Ok(NextTurn::Attempt { yield_first }),
            MyTurn::TimedOut => Err(self.timed_out()),
            MyTurn::GivenUp => Err(self.given_up()),
        }
    }

    /// Asks the server for the key, or sleeps if a look has told that an attempt would be refused.
    async fn go_to_server(&mut self, yield_first: bool) -> Result<Option<OpenShares>, Error> {
        if yield_first {
            // What a look told before this client's own release.
            self.is_taken = false;
            Box::pin(self.yield_to_others()).await;
        }
        let is_taken = std::mem::take(&mut self.is_taken);
        let (true, Blocking::Owner(until) | Blocking::OwnerInOutage(until)) =
            (is_taken, self.turn.blocking)
        else {
            return self.ask_server().await;
        };
        let now = self.session().now();
        let ttl = until.map(|until| until.left(now));
        if self.note_refusal(ttl, false)? {
            Box::pin(self.sleep(ttl, true)).await;
        }
        Ok(None)
    }

    /// Sends one attempt, and sleeps if it was not granted.
    async fn ask_server(&mut self) -> Result<Option<OpenShares>, Error> {
        let (was_active, sent) = (self.is_active(), self.session().now());
        let outcome = match self.attempt(sent).await? {
            AttemptEnd::Outcome(outcome) => outcome,
            AttemptEnd::HandedOver(share) => return Ok(Some(smallvec![share])),
        };
        match outcome {
            Outcome::Granted(shares) => {
                for share in &shares {
                    self.turn.slot.granted(share.hold());
                }
                Ok(Some(shares))
            }
            outcome => {
                self.not_granted(outcome, sent, was_active).await?;
                Ok(None)
            }
        }
    }

    /// Sends one attempt at `sent`, and waits for its outcome.
    async fn attempt(&mut self, sent: Tick) -> Result<AttemptEnd, Error> {
        if let Some(subscription) = &mut self.subscription {
            // Before the attempt, so that a message that arrives during the attempt counts as new.
            subscription.mark_seen();
        }
        let (session, deadline) = (self.session(), self.request.deadline());
        let latest = deadline.min(self.give_up_at());
        tokio::select! {
            // In this order: an answer that has arrived counts, even if the time is over by now.
            biased;
            outcome = self.attempts.once(sent, deadline) => return Ok(AttemptEnd::Outcome(outcome)),
            () = session.clock.sleep_until(latest) => {}
        }
        if latest == deadline {
            let key = &self.requested().resource.key;
            session.unanswered(key, sent, None);
            return self.last_chance();
        }
        // The owner of an attempt that was left is not used again.
        self.renew_attempts();
        // The fault of an earlier attempt says more than `no answer`.
        let earlier = self.unanswered.as_ref().map(|earlier| earlier.no_answer());
        let fault = earlier.unwrap_or_else(|| Fault::Unknown(cause("no answer")));
        Ok(AttemptEnd::Outcome(Outcome::Failed(fault)))
    }

    /// Sleeps until the next attempt makes sense, after one that was sent at `sent` and was not granted.
    async fn not_granted(
        &mut self,
        outcome: Outcome,
        sent: Tick,
        was_active: bool,
    ) -> Result<(), Error> {
        match outcome {
            Outcome::Granted(_) => {}
            Outcome::Held {
                ttl,
                holder,
                is_unset,
                ..
            } => {
                // A wait without limit ends in no error that names the holder, but those behind it may have a limit.
                let is_told = self.request.wait.is_some() || self.turn.slot.is_first_of_several();
                self.turn.note_holder(holder.filter(|_| is_told));
                if self.note_refusal(ttl, is_unset)? {
                    Box::pin(self.sleep(ttl, was_active)).await;
                }
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
                // The key was free, whatever an earlier refusal told of its end.
                self.turn.slot.note_busy_until(None);
                self.renew_attempts();
                Box::pin(self.failed(sent, fault)).await?;
            }
            Outcome::Failed(fault) => Box::pin(self.failed(sent, fault)).await?,
            Outcome::Absent => self.renew_attempts(),
        }
        Ok(())
    }

    /// Makes its attempts with new owners from here on.
    fn renew_attempts(&mut self) {
        let anew = self.attempts.with_new_owners();
        self.replace_attempts(anew);
    }

    /// Makes these attempts from here on. The owners of those before are ended, if they are in doubt.
    fn replace_attempts(&mut self, attempts: Attempts) {
        self.attempts = attempts;
        // A waiter that the server knows by its owner listens to a channel of that owner, so a new owner needs a new
        // subscription.
        self.subscription = None;
    }

    /// Notes that the key was refused. Returns whether this waiter sleeps before its next attempt.
    fn note_refusal(&mut self, ttl: Option<Duration>, is_unset: bool) -> Result<bool, Error> {
        self.count_turns();
        self.unanswered = None;
        self.turn.blocking = match is_unset {
            true => Blocking::Unset,
            false => self.blocked_by_owner(ttl),
        };
        telemetry::attempt_refused(&self.requested().resource, ttl);
        self.turn.count_as_waiter()?;
        let sleeps = self.turn.slot.listens_after_refusal();
        if sleeps {
            self.turn.tell_line();
        }
        Ok(sleeps)
    }

    /// What an owner in the way means, with the rest of its lease.
    pub(super) fn blocked_by_owner(&self, ttl: Option<Duration>) -> Blocking {
        let owner = Blocking::owner(ttl, self.session().now());
        match owner {
            Blocking::Owner(until)
                if self
                    .session()
                    .was_unconfirmed(&self.requested().resource.key) =>
            {
                Blocking::OwnerInOutage(until)
            }
            owner => owner,
        }
    }

    /// The deadline passed while an attempt was under way. Its owner is ended when this waiter is dropped.
    fn last_chance(&mut self) -> Result<AttemptEnd, Error> {
        match self.turn.slot.next_step() {
            NextStep::HandedOver(share) => Ok(AttemptEnd::HandedOver(share)),
            _ => Err(self.timed_out()),
        }
    }

    /// Sleeps until the next attempt makes sense. If the subscription is not active yet, it sleeps only until then.
    async fn sleep(&mut self, ttl: Option<Duration>, was_active: bool) {
        if !self.requested().resource.kind.listens() {
            return self.back_off(ttl).await;
        }
        let now = self.session().now();
        let until = self.next_sign_of_life(now).min(self.request.deadline());
        self.subscribed();
        let (session, target) = (self.session(), self.waited_for());
        let mut lease = LeaseInTheWay::new(&mut self.turn, ttl, now);
        let slot = lease.slot;
        let Some(subscription) = &mut self.subscription else {
            return;
        };
        tokio::select! {
            biased;
            () = slot.woken() => {}
            () = subscription.changed(was_active) => {
                if was_active {
                    slot.verify_holder();
                    self.let_longer_waits_go_first().await;
                }
            }
            () = session.clock.sleep_until(until) => {}
            () = due_without_a_message(session, &target, &mut lease, was_active) => {}
        }
    }

    /// Pauses, each time twice as long, up to the longest pause and to the end of the holder's lease. The length is
    /// random, between half of the pause and all of it, so that waiters that arrived together do not always attempt
    /// together.
    async fn back_off(&mut self, ttl: Option<Duration>) {
        let pause = self.pause.mul_f64(rand::random_range(0.5..=1.0));
        let pause = ttl.map_or(pause, |ttl| pause.min(ttl + Duration::from_millis(1)));
        self.pause = (self.pause * 2).min(self.requested().backoff.longest);
        let until = self
            .session()
            .now()
            .after(pause)
            .min(self.request.deadline());
        tokio::select! {
            () = self.turn.slot.woken() => {}
            () = self.session().clock.sleep_until(until) => {}
        }
    }

    /// When the server has to hear of this waiter again, if it keeps a place for it.
    fn next_sign_of_life(&self, now: Tick) -> Tick {
        if self.requested().resource.kind.has_places() {
            now.after(self.session().config.waiter_timeout / SIGNS_PER_WAITER_TIMEOUT)
        } else {
            Tick::NEVER
        }
    }

    /// Whether messages arrive, as far as this client knows.
    fn is_active(&self) -> bool {
        let subscription = self.subscription.as_ref();
        subscription.is_some_and(Subscription::is_active)
    }

    fn subscribed(&mut self) -> &mut Subscription {
        let (backend, target) = (&self.session().backend, self.waited_for());
        self.subscription.get_or_insert_with(|| {
            let subscription = backend.subscribe(&target);
            self.counted = subscription.messages();
            subscription
        })
    }

    /// The key that it waits for. The owner decides only for kinds that the server keeps in a queue, and those are acquired
    /// one at a time.
    fn waited_for(&self) -> Target {
        let mut target = self.attempts.target(0).clone();
        target.resource = self.requested().resource.clone();
        target
    }
}
