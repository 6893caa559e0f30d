//! State machine 1: the lease of one hold, `Held` → `Released` | `Lost`.
//!
//! Plain data: every method takes the time, none reads a clock, waits or sends. Its callers are the watchdog, which
//! asks what is due, and the hold, when guards come and go.
//!
//! # Invariants
//! 1. The deadline counts from before a command was queued, so it lies at or before the server's expiry.
//! 2. The deadline never moves towards the present.
//! 3. Nothing is due once the state is not `Held`: a released hold is never renewed.

use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Tick;
use crate::config::{Config, MIN_LEASE, RENEWALS_PER_LEASE};
use crate::error::Loss;

/// How long a guard wants the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// As long as it lives: the watchdog renews.
    Kept,
    /// The same, but no longer than this.
    KeptUntil(Tick),
    /// Until this time, at which its own part ends.
    Until(Tick),
}

impl Term {
    /// The term of a guard that the watchdog keeps from `now` on, for so long at most.
    pub(crate) fn kept(now: Tick, max_hold: Option<Duration>) -> Self {
        max_hold.map_or(Self::Kept, |most| Self::KeptUntil(now.after(most)))
    }

    /// What it means that the term has ended.
    pub(crate) fn loss(self) -> Loss {
        match self {
            Self::KeptUntil(_) => Loss::HeldTooLong,
            Self::Kept | Self::Until(_) => Loss::Expired,
        }
    }

    pub(crate) fn has_ended(self, now: Tick) -> bool {
        self.end() <= now
    }

    pub(crate) fn end(self) -> Tick {
        match self {
            Self::Kept => Tick::NEVER,
            Self::KeptUntil(end) | Self::Until(end) => end,
        }
    }
}

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
    /// It has just ended: tell everyone.
    Lost(Loss),
    /// It is over and was told: forget it.
    Over,
}

/// What a renewal came back with.
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
    /// No copy of the hold lives in the server beyond this: the latest command sent, and the lease it asked for.
    latest_end: Tick,
    /// What the watchdog asks for, each time.
    watchdog: Duration,
    /// How many guards the watchdog keeps without limit.
    kept: usize,
    /// The terms of the others that live.
    ending: SmallVec<[Term; 1]>,
    /// The end that the longest fixed term asked for: the server is asked for it also after that guard has gone.
    until: Tick,
    /// When the watchdog renews next, if it keeps a guard.
    renew_at: Tick,
    /// No renewal before this: the last one failed just now.
    not_before: Tick,
    in_flight: bool,
    /// Some guard wanted a lease of its own, or let another hold in.
    stays: bool,
}

impl Lease {
    /// A lease that was asked for at `sent` and granted.
    pub(crate) fn granted(sent: Tick, lease: Duration, term: Term, watchdog: Duration) -> Self {
        let end = sent.after(lease);
        let mut new = Self {
            state: State::Held,
            deadline: end,
            latest_end: end,
            watchdog,
            kept: 0,
            ending: SmallVec::new(),
            until: Tick::default(),
            renew_at: sent.after(watchdog / RENEWALS_PER_LEASE),
            not_before: sent,
            in_flight: false,
            stays: false,
        };
        new.join(term);
        new
    }

    /// Another guard wants the hold.
    pub(crate) fn join(&mut self, term: Term) {
        match term {
            Term::Kept => {
                self.kept += 1;
                self.renew_at = self.renew_by(self.renew_at);
            }
            Term::KeptUntil(_) => {
                self.ending.push(term);
                self.renew_at = self.renew_by(self.renew_at);
            }
            Term::Until(end) => {
                self.ending.push(term);
                self.until = self.until.max(end);
                self.stays = true;
            }
        }
    }

    /// From here on the lease passes to nobody but its guards.
    pub(crate) fn keep_to_its_guards(&mut self) {
        self.stays = true;
    }

    /// A guard has gone. What it was promised stays: a lease is never shortened.
    pub(crate) fn leave(&mut self, term: Term) {
        if term == Term::Kept {
            self.kept = self.kept.saturating_sub(1);
        } else if let Some(at) = self.ending.iter().position(|ending| *ending == term) {
            self.ending.swap_remove(at);
        }
    }

    /// Another guard goes on with the hold, which nobody has any more.
    pub(crate) fn pass_on(&mut self, term: Term) {
        self.until = Tick::default();
        self.join(term);
    }

    /// When nobody is entitled to the hold any more, however long the server keeps it.
    fn limit(&self) -> Tick {
        let last = self.ending.iter().max_by_key(|term| term.end());
        match last {
            Some(Term::KeptUntil(end)) if self.kept == 0 => *end,
            _ => Tick::NEVER,
        }
    }

    /// Until when the watchdog keeps it, for those of its guards that have a limit.
    fn kept_until(&self) -> Tick {
        let kept = |term: &Term| match term {
            Term::KeptUntil(end) => Some(*end),
            Term::Kept | Term::Until(_) => None,
        };
        self.ending
            .iter()
            .filter_map(kept)
            .max()
            .unwrap_or_default()
    }

    /// The loss that there is at `now`, or will be told of it.
    pub(crate) fn loss_at(&self, now: Tick) -> Option<Loss> {
        match self.state {
            State::Lost(loss) => Some(loss),
            State::Held if now >= self.limit() => Some(Loss::HeldTooLong),
            State::Held if now >= self.deadline => Some(Loss::Expired),
            State::Held | State::Released => None,
        }
    }

    /// By this process's clock, is the hold sure at `now`?
    pub(crate) fn is_held(&self, now: Tick) -> bool {
        self.state == State::Held && now < self.deadline
    }

    pub(crate) fn deadline(&self) -> Tick {
        self.deadline
    }

    /// The deadline, or the limit if that comes first.
    pub(crate) fn end(&self) -> Tick {
        self.deadline.min(self.limit())
    }

    pub(crate) fn latest_end(&self) -> Tick {
        self.latest_end
    }

    /// Did each guard so far leave the lease to the watchdog and let nothing in, and is at least half of it left?
    pub(crate) fn may_pass_on(&self, now: Tick) -> bool {
        self.is_held(now) && !self.stays && self.deadline.left(now) >= self.watchdog / 2
    }

    /// What is due at `now`; `unstated` says that the server has not yet heard of the present count.
    ///
    /// After `Renew` the renewal counts as sent, and nothing but the deadline is due until it is answered.
    pub(crate) fn due(&mut self, now: Tick, unstated: bool) -> Due {
        if let Some(over) = self.expire(now) {
            return over;
        }
        let next = self.next_renewal(unstated);
        if next > now {
            return Due::Nothing(next.min(self.end()));
        }
        let lease = self.wanted(now);
        self.in_flight = true;
        self.latest_end = self.latest_end.max(now.after(lease));
        Due::Renew(lease)
    }

    /// When to ask what is [`due`](Lease::due); never once it is over.
    pub(crate) fn next(&self, unstated: bool) -> Tick {
        match self.state {
            State::Held => self.next_renewal(unstated).min(self.end()),
            State::Released | State::Lost(_) => Tick::NEVER,
        }
    }

    /// The loss that the clock shows, told once; then that it is over.
    fn expire(&mut self, now: Tick) -> Option<Due> {
        if self.state != State::Held {
            return Some(Due::Over);
        }
        let loss = self.loss_at(now)?;
        self.state = State::Lost(loss);
        Some(Due::Lost(loss))
    }

    fn next_renewal(&self, unstated: bool) -> Tick {
        let wanted_at = if unstated || self.until > self.deadline {
            self.not_before
        } else if self.kept > 0 || self.kept_until() > self.deadline {
            self.renew_at
        } else {
            Tick::NEVER
        };
        if self.in_flight {
            Tick::NEVER
        } else {
            wanted_at.max(self.not_before)
        }
    }

    /// At `planned`, but before less of the lease is left than a hold of the watchdog has when it is renewed: a hold
    /// with a short lease of its own may come into the watchdog's care.
    fn renew_by(&self, planned: Tick) -> Tick {
        let rest = self.watchdog - self.watchdog / RENEWALS_PER_LEASE;
        planned.min(self.deadline.before(rest))
    }

    /// How much lease to ask for. The server keeps a longer one that it has.
    fn wanted(&self, now: Tick) -> Duration {
        let fixed = self.until.left(now);
        let kept = match self.kept {
            0 => self.watchdog.min(self.kept_until().left(now)),
            _ => self.watchdog,
        };
        fixed.max(kept).max(MIN_LEASE)
    }

    /// The renewal that was sent at `sent` for `lease` was answered, or given up, at `now`.
    ///
    /// Answers the loss where this is what ended the hold.
    pub(crate) fn answered(
        &mut self,
        sent: Tick,
        lease: Duration,
        answer: Answer,
        now: Tick,
    ) -> Option<Loss> {
        self.in_flight = false;
        if self.state != State::Held {
            return None;
        }
        match answer {
            Answer::Renewed => {
                self.deadline = self.deadline.max(sent.after(lease));
                self.renew_at = self.renew_by(sent.after(self.watchdog / RENEWALS_PER_LEASE));
                None
            }
            Answer::Unknown => {
                self.not_before = now.after(Config::retry_pause(self.watchdog));
                None
            }
            Answer::NotOurs => {
                self.state = State::Lost(Loss::Gone);
                Some(Loss::Gone)
            }
        }
    }

    /// Whoever waited for the answer is no more (its runtime ended): renewals may be sent again.
    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight = false;
    }

    /// Ends the lease; `Err` where it was lost before, also where only the clock knew.
    pub(crate) fn release(&mut self, now: Tick) -> Result<(), Loss> {
        match self.loss_at(now) {
            Some(loss) => {
                self.state = State::Lost(loss);
                Err(loss)
            }
            None => {
                self.state = State::Released;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WATCHDOG: Duration = Duration::from_millis(300);

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn kept() -> Lease {
        Lease::granted(at(0), WATCHDOG, Term::Kept, WATCHDOG)
    }

    #[test]
    fn kept_hold_is_renewed_at_every_third_and_deadline_counts_from_sending() {
        let mut lease = kept();
        assert_eq!(lease.due(at(99), false), Due::Nothing(at(100)));
        assert_eq!(lease.due(at(100), false), Due::Renew(WATCHDOG));
        assert_eq!(lease.due(at(150), false), Due::Nothing(at(300)));
        assert_eq!(
            lease.answered(at(100), WATCHDOG, Answer::Renewed, at(160)),
            None
        );
        assert_eq!(lease.deadline(), at(400));
        assert_eq!(lease.due(at(199), false), Due::Nothing(at(200)));
    }

    #[test]
    fn failed_renewal_is_tried_again_until_the_deadline_then_lost_once() {
        let mut lease = kept();
        let mut now = at(100);
        let mut tries = 0;
        loop {
            match lease.due(now, false) {
                Due::Renew(_) => {
                    tries += 1;
                    lease.answered(now, WATCHDOG, Answer::Unknown, now);
                }
                Due::Nothing(next) => now = next,
                Due::Lost(loss) => break assert_eq!((loss, now), (Loss::Expired, at(300))),
                Due::Over => unreachable!(),
            }
        }
        assert_eq!(tries, 7);
        assert_eq!(lease.due(now, false), Due::Over);
        assert_eq!(lease.release(now), Err(Loss::Expired));
    }

    #[test]
    fn not_ours_is_a_loss_at_once() {
        let mut lease = kept();
        lease.due(at(100), false);
        let loss = lease.answered(at(100), WATCHDOG, Answer::NotOurs, at(101));
        assert_eq!(loss, Some(Loss::Gone));
        assert!(!lease.is_held(at(101)));
    }

    #[test]
    fn fixed_lease_is_not_renewed_and_ends() {
        let mut lease = Lease::granted(at(0), ms(500), Term::Until(at(500)), WATCHDOG);
        assert_eq!(lease.due(at(0), false), Due::Nothing(at(500)));
        assert_eq!(lease.due(at(500), false), Due::Lost(Loss::Expired));
    }

    #[test]
    fn hold_with_a_limit_is_renewed_up_to_it_and_ends_there() {
        let mut lease = Lease::granted(at(0), WATCHDOG, Term::KeptUntil(at(450)), WATCHDOG);
        assert_eq!(lease.due(at(100), false), Due::Renew(WATCHDOG));
        lease.answered(at(100), WATCHDOG, Answer::Renewed, at(101));
        assert_eq!(lease.due(at(200), false), Due::Renew(ms(250)));
        lease.answered(at(200), ms(250), Answer::Renewed, at(201));
        assert_eq!(lease.due(at(201), false), Due::Nothing(at(450)));
        assert_eq!(lease.due(at(450), false), Due::Lost(Loss::HeldTooLong));
    }

    #[test]
    fn hold_with_a_limit_ends_before_the_lease_that_another_guard_left_it() {
        let mut lease = kept();
        lease.join(Term::KeptUntil(at(320)));
        lease.due(at(100), false);
        lease.answered(at(100), WATCHDOG, Answer::Renewed, at(101));
        lease.leave(Term::Kept);
        assert_eq!(lease.deadline(), at(400));
        assert_eq!(lease.due(at(250), false), Due::Nothing(at(320)));
        assert_eq!(lease.due(at(320), false), Due::Lost(Loss::HeldTooLong));
    }

    #[test]
    fn limit_is_that_of_the_guards_that_live() {
        let mut lease = Lease::granted(at(0), WATCHDOG, Term::KeptUntil(at(450)), WATCHDOG);
        for term in [Term::KeptUntil(at(9_000)), Term::Until(at(9_000))] {
            lease.join(term);
            lease.leave(term);
        }
        lease.join(Term::Kept);
        assert_eq!(lease.loss_at(at(299)), None);
        lease.leave(Term::Kept);
        let mut now = at(0);
        let lost = loop {
            match lease.due(now, false) {
                Due::Renew(wanted) => {
                    lease.answered(now, wanted, Answer::Renewed, now);
                }
                Due::Nothing(next) => now = next,
                Due::Lost(loss) => break loss,
                Due::Over => unreachable!(),
            }
        };
        assert_eq!((lost, now), (Loss::HeldTooLong, at(450)));
    }

    #[test]
    fn limit_of_the_last_guard_counts_although_the_lease_is_longer() {
        let mut lease = kept();
        lease.join(Term::KeptUntil(at(50)));
        lease.leave(Term::Kept);
        assert_eq!(lease.loss_at(at(50)), Some(Loss::HeldTooLong));
        assert_eq!(lease.release(at(50)), Err(Loss::HeldTooLong));
    }

    #[test]
    fn longer_nested_lease_lengthens_the_hold_and_a_shorter_one_does_not_shorten_it() {
        let mut lease = Lease::granted(at(0), ms(500), Term::Until(at(500)), WATCHDOG);
        lease.join(Term::Until(at(200)));
        assert_eq!(lease.due(at(1), false), Due::Nothing(at(500)));
        lease.join(Term::Until(at(900)));
        assert_eq!(lease.due(at(10), false), Due::Renew(ms(890)));
        lease.answered(at(10), ms(890), Answer::Renewed, at(11));
        assert_eq!(lease.deadline(), at(900));
    }

    #[test]
    fn short_fixed_hold_is_renewed_at_once_when_the_watchdog_gets_it() {
        let mut lease = Lease::granted(at(0), ms(90), Term::Until(at(90)), WATCHDOG);
        assert_eq!(lease.due(at(10), true), Due::Renew(ms(80)));
        lease.join(Term::Kept);
        lease.answered(at(10), ms(80), Answer::Renewed, at(20));
        assert_eq!(lease.due(at(20), false), Due::Renew(WATCHDOG));
        lease.answered(at(20), WATCHDOG, Answer::Renewed, at(21));
        assert_eq!(lease.due(at(21), false), Due::Nothing(at(120)));
    }

    #[test]
    fn unstated_count_is_told_at_once_and_again_after_a_failure() {
        let mut lease = kept();
        assert_eq!(lease.due(at(5), true), Due::Renew(WATCHDOG));
        lease.answered(at(5), WATCHDOG, Answer::Unknown, at(6));
        assert_eq!(lease.due(at(6), true), Due::Nothing(at(36)));
        assert_eq!(lease.due(at(36), true), Due::Renew(WATCHDOG));
    }

    #[test]
    fn released_hold_is_never_due_whatever_answer_comes_late() {
        let mut lease = kept();
        lease.due(at(100), false);
        assert_eq!(lease.release(at(110)), Ok(()));
        assert_eq!(
            lease.answered(at(100), WATCHDOG, Answer::NotOurs, at(120)),
            None
        );
        assert_eq!(lease.due(at(1000), true), Due::Over);
    }

    #[test]
    fn only_a_fresh_hold_that_the_watchdog_alone_keeps_passes_on() {
        let mut lease = kept();
        assert!(lease.may_pass_on(at(150)) && !lease.may_pass_on(at(151)));
        lease.join(Term::Until(at(10)));
        assert!(!lease.may_pass_on(at(0)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Pass(u64),
        Due { unstated: bool },
        Answer(Answer),
        JoinKept,
        JoinUntil(u64),
        JoinKeptUntil(u64),
        Leave,
        LeaveLimited,
        Release,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..200_u64).prop_map(Step::Pass),
            4 => any::<bool>().prop_map(|unstated| Step::Due { unstated }),
            2 => Just(Step::Answer(Answer::Renewed)),
            1 => Just(Step::Answer(Answer::Unknown)),
            1 => Just(Step::Answer(Answer::NotOurs)),
            1 => Just(Step::JoinKept),
            1 => (0..2000_u64).prop_map(Step::JoinUntil),
            1 => (0..2000_u64).prop_map(Step::JoinKeptUntil),
            1 => Just(Step::Leave),
            1 => Just(Step::LeaveLimited),
            1 => Just(Step::Release),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Whatever comes in whatever order: the deadline never moves back, never lies beyond what the server may
        /// keep, a hold that is over stays over, and a loss is told at most once.
        #[test]
        fn random_calls_keep_the_invariants(steps in prop::collection::vec(step(), 1..80)) {
            let mut lease = kept();
            let (mut now, mut sent, mut told, mut over) = (0, None, 0, false);
            for step in steps {
                let before = lease.deadline();
                match step {
                    Step::Pass(by) => now += by,
                    Step::Due { unstated } => match lease.due(at(now), unstated) {
                        Due::Renew(wanted) => {
                            prop_assert!(sent.is_none() && !over);
                            sent = Some((at(now), wanted));
                        }
                        Due::Lost(_) => (told, over) = (told + 1, true),
                        Due::Over => prop_assert!(over),
                        Due::Nothing(next) => prop_assert!(next > at(now) && !over),
                    },
                    Step::Answer(answer) => if let Some((then, wanted)) = sent.take() {
                        let loss = lease.answered(then, wanted, answer, at(now));
                        told += usize::from(loss.is_some());
                        over |= loss.is_some();
                    },
                    Step::JoinKept => lease.join(Term::Kept),
                    Step::JoinUntil(by) => lease.join(Term::Until(at(now + by))),
                    Step::JoinKeptUntil(by) => lease.join(Term::KeptUntil(at(now + by))),
                    Step::LeaveLimited => if let Some(term) = lease.ending.first().copied() {
                        lease.leave(term);
                    },
                    Step::Leave => lease.leave(Term::Kept),
                    Step::Release => {
                        let _ = lease.release(at(now));
                        over = true;
                    }
                }
                prop_assert!(lease.deadline() >= before && lease.deadline() <= lease.latest_end());
                prop_assert!(told <= 1 && !(over && lease.is_held(at(now))));
            }
        }
    }
}
