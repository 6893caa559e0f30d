//! State machine 1: the lease of one hold, `Held` → `Released` | `Lost`.
//!
//! Plain data: every method takes the time, and none reads a clock, waits or sends. The watchdog asks it what is due.
//! The hold tells it when guards begin and end.
//!
//! # Invariants
//! 1. The deadline counts from before a command was queued, so it lies at or before the server's expiry, by the client's margin at
//!    least. The ends of the terms with a lease of their own are counted in the same way.
//! 2. The deadline never moves to an earlier time.
//! 3. Nothing is due once the state is not `Held`: a released hold is never renewed.
//! 4. A reason to ask the server for the hold stays until a renewal is confirmed that was sent after it came up.

mod guards;
mod verification;

use std::time::Duration;

use self::guards::LeaseGuards;
use self::verification::Verification;
use super::term::Term;
use crate::clock::{Tick, nanos};
use crate::config::{Config, MIN_LEASE, RENEWALS_PER_LEASE};
use crate::error::Loss;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Released,
    Lost(Loss),
}

/// What to do about a lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing before this time.
    Nothing(Tick),
    /// Send a renewal that asks for this lease.
    Renew(Duration),
    /// It has just ended: the loss has to be announced.
    Lost(Loss),
    /// It has ended, and that was announced.
    Over,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Renewed,
    NotOurs,
    Unknown,
}

/// The lease of one hold.
#[derive(Debug)]
pub(crate) struct Lease {
    state: State,
    deadline: Tick,
    /// The server has no copy of the hold after this time. It is the latest sum of the time when a command was sent and
    /// the lease that the command asked for.
    latest_end: Tick,
    /// The lease that the watchdog asks for each time, in nanoseconds. A `Duration` takes twice the bytes.
    watchdog_nanos: u64,
    /// The guards that keep the hold.
    pub(crate) guards: LeaseGuards,
    /// The margin in milliseconds: the deadline is this long before the end of the lease in the server.
    margin_ms: u32,
    /// When the watchdog renews next, if it keeps a guard.
    renew_at: Tick,
    in_flight: bool,
    /// If the last renewal has failed. Boxed, because that is rare, and each hold would have room for it.
    failing: Option<Box<Failing>>,
    /// Whether the server is asked for the hold ahead of that time.
    pub(crate) verification: Verification,
}

/// The renewals that have failed since the server answered one.
#[derive(Debug)]
struct Failing {
    /// When the first of them was sent.
    since: Tick,
    /// No renewal is sent before this time.
    not_before: Tick,
}

impl Lease {
    /// A lease that was asked for at `sent` and granted.
    pub(crate) fn granted(sent: Tick, lease: Duration, term: Term, watchdog: Duration) -> Self {
        let end = sent.after(lease);
        let mut new = Self {
            state: State::Held,
            deadline: end,
            latest_end: end,
            watchdog_nanos: nanos(watchdog),
            guards: LeaseGuards::default(),
            margin_ms: 0,
            renew_at: sent.after(watchdog / RENEWALS_PER_LEASE),
            in_flight: false,
            failing: None,
            verification: Verification::granted(sent),
        };
        new.join(term);
        new
    }

    /// Sets the margin of a lease that was just granted: its deadline is this number of milliseconds before its end.
    pub(crate) fn with_margin(mut self, margin: Duration) -> Self {
        self.margin_ms = u32::try_from(margin.as_millis()).unwrap_or(u32::MAX);
        self.deadline = self.deadline.before(self.margin());
        self
    }

    /// Adds a guard.
    pub(crate) fn join(&mut self, term: Term) {
        self.guards.join(term);
        if matches!(term, Term::Kept | Term::KeptUntil(_)) {
            self.renew_at = self.renew_by(self.renew_at);
        }
    }

    /// The lease that the watchdog asks for each time.
    fn watchdog(&self) -> Duration {
        Duration::from_nanos(self.watchdog_nanos)
    }

    fn margin(&self) -> Duration {
        Duration::from_millis(self.margin_ms.into())
    }

    /// When the lease ends in the server, by the last confirmation.
    pub(crate) fn server_end(&self) -> Tick {
        self.deadline.after(self.margin())
    }

    /// Gives the hold to a new guard. It has no other guard.
    pub(crate) fn pass_on(&mut self, term: Term) {
        self.guards.forget_ended();
        // The part of an acquisition that failed may have waited for a guard that never came.
        self.guards.has_one();
        self.join(term);
    }

    /// The loss at `now`, whether it was announced or not.
    pub(crate) fn loss_at(&self, now: Tick) -> Option<Loss> {
        match self.state {
            State::Lost(loss) => Some(loss),
            State::Held if now >= self.guards.limit() => Some(Loss::HeldTooLong),
            State::Held if now >= self.deadline => Some(Loss::Expired),
            State::Held | State::Released => None,
        }
    }

    /// Whether the hold is held at `now`, by this process's clock.
    pub(crate) fn is_held(&self, now: Tick) -> bool {
        self.state == State::Held && now < self.deadline
    }

    pub(crate) fn deadline(&self) -> Tick {
        self.deadline
    }

    /// Whether the server has confirmed the longest fixed term.
    pub(crate) fn reaches_its_terms(&self) -> bool {
        self.guards.until() <= self.deadline
    }

    /// The deadline, or the limit if that comes first.
    pub(crate) fn end(&self) -> Tick {
        self.deadline.min(self.guards.limit())
    }

    pub(crate) fn latest_end(&self) -> Tick {
        self.latest_end
    }

    /// When the first of the renewals was sent that have failed in a row, if the lease still runs and the last one failed.
    pub(crate) fn failing_since(&self) -> Option<Tick> {
        let failing = self.failing.as_ref().filter(|_| self.state == State::Held);
        failing.map(|failing| failing.since)
    }

    /// Whether the hold can be handed over: it is held, nothing keeps it to its guards, and at least half of the
    /// watchdog's lease is left.
    pub(crate) fn may_pass_on(&self, now: Tick) -> bool {
        // A rule of tests/model: hand_over_needs_half_of_the_lease.
        self.is_held(now)
            && !self.guards.stays()
            && self.server_end().left(now) >= self.watchdog() / 2
    }

    /// Returns the action that is due at `now`. A renewal that is due by `soon` is due already, unless the last one has just
    /// failed. `unstated`: the server does not have the current count yet.
    ///
    /// After `Renew` the renewal counts as sent. Until it is answered, only the end of the lease is due.
    pub(crate) fn due(&mut self, now: Tick, soon: Tick, unstated: bool) -> Due {
        // A rule of tests/model: doubt_outlasts_an_earlier_question.
        if let Some(over) = self.expire(now) {
            return over;
        }
        let next = self.next_renewal(unstated);
        if next > soon || self.not_before() > now {
            return Due::Nothing(next.min(self.end()));
        }
        let lease = self.requested(now);
        self.in_flight = true;
        self.verification.asked();
        self.latest_end = self.latest_end.max(now.after(lease));
        Due::Renew(lease)
    }

    /// When to call [`due`](Lease::due) next. Never once the lease is over.
    pub(crate) fn next(&self, unstated: bool) -> Tick {
        match self.state {
            State::Held => self.next_renewal(unstated).min(self.end()),
            State::Released | State::Lost(_) => Tick::NEVER,
        }
    }

    /// Announces the loss that the clock shows, once. After that the lease is over.
    fn expire(&mut self, now: Tick) -> Option<Due> {
        if self.state != State::Held {
            return Some(Due::Over);
        }
        self.find_loss(now).map(Due::Lost)
    }

    /// Ends the lease if it was lost at `now`. Returns the loss, whether it was announced or not.
    pub(crate) fn find_loss(&mut self, now: Tick) -> Option<Loss> {
        let loss = self.loss_at(now)?;
        self.state = State::Lost(loss);
        Some(loss)
    }

    /// No renewal is sent before this time.
    fn not_before(&self) -> Tick {
        let failing = self.failing.as_ref();
        failing.map_or_else(Tick::default, |failing| failing.not_before)
    }

    fn next_renewal(&self, unstated: bool) -> Tick {
        let not_before = self.not_before();
        let wanted_at = if unstated || self.guards.until() > self.deadline {
            not_before
        } else if self.guards.any_is_kept() || self.guards.renewed_until() > self.deadline {
            self.renew_at
        } else {
            Tick::NEVER
        };
        if self.in_flight || self.guards.waits_for_one() {
            Tick::NEVER
        } else {
            wanted_at.min(self.verification.due_at()).max(not_before)
        }
    }

    /// When to renew: at `planned`, or earlier if less than two thirds of the watchdog's lease would be left then. This
    /// happens when a guard that the watchdog keeps joins a hold with a short lease.
    fn renew_by(&self, planned: Tick) -> Tick {
        let two_thirds = self.watchdog() - self.watchdog() / RENEWALS_PER_LEASE;
        planned.min(self.server_end().before(two_thirds))
    }

    /// How much lease to ask for. The server keeps its own if that is longer.
    fn requested(&self, now: Tick) -> Duration {
        // Without the margin: nothing is asked for a term that is over.
        let with_margin = |end: Tick| match end.left(now) {
            Duration::ZERO => Duration::ZERO,
            left => left + self.margin(),
        };
        let fixed = with_margin(self.guards.until());
        let kept = if self.guards.any_is_kept() {
            self.watchdog()
        } else {
            self.watchdog()
                .min(with_margin(self.guards.renewed_until()))
        };
        fixed.max(kept).max(MIN_LEASE)
    }

    /// Takes the answer, at `now`, to the renewal that was sent at `sent` and asked for `lease`. A renewal without an
    /// answer counts as [`Answer::Unknown`].
    ///
    /// Returns the loss if the answer ended the hold.
    pub(crate) fn answered(
        &mut self,
        sent: Tick,
        lease: Duration,
        answer: Answer,
        now: Tick,
    ) -> Option<Loss> {
        // A rule of tests/model: question_without_an_answer_stays_open.
        // A rule of tests/model: deadline_counts_from_before_the_sending.
        self.in_flight = false;
        if self.state != State::Held {
            return None;
        }
        match answer {
            Answer::Renewed => {
                let end = sent.after(lease).before(self.margin());
                // Invariant 2: the answer to an earlier renewal may come last.
                self.deadline = self.deadline.max(end);
                self.renew_at = self.renew_by(sent.after(self.watchdog() / RENEWALS_PER_LEASE));
                self.verification.confirmed(sent);
                self.failing = None;
                None
            }
            Answer::Unknown => {
                let since = self.failing.as_ref().map_or(sent, |failing| failing.since);
                let not_before = now.after(Config::retry_pause(self.watchdog()));
                self.failing = Some(Box::new(Failing {
                    since: since.min(sent),
                    not_before,
                }));
                // The question is still open, whatever the reason for it was.
                self.verification.verify(now);
                None
            }
            Answer::NotOurs => self.gone(),
        }
    }

    /// The server does not have the hold any more. Returns the loss, unless the lease was over before.
    pub(crate) fn gone(&mut self) -> Option<Loss> {
        if self.state != State::Held {
            return None;
        }
        self.state = State::Lost(Loss::Gone);
        Some(Loss::Gone)
    }

    /// Allows renewals again: the task that waited for the answer ended with its runtime.
    pub(crate) fn forget_in_flight(&mut self) {
        if std::mem::take(&mut self.in_flight) {
            // At once: it is unknown whether that renewal was carried out.
            self.verification.verify(Tick::default());
        }
    }

    /// Ends the lease. Returns `Err` if it was lost before, also if the loss was not announced yet.
    pub(crate) fn release(&mut self, now: Tick) -> Result<(), Loss> {
        match self.find_loss(now) {
            Some(loss) => Err(loss),
            None => {
                self.state = State::Released;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
