//! The lease by example, one call after the other at given times; and its invariants, under random calls in every order.

use proptest::prelude::*;

use super::*;
use crate::config::CONFIRM_INTERVAL;

const WATCHDOG: Duration = Duration::from_millis(300);

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What is due at `now`, without what is due soon.
fn due(lease: &mut Lease, now: Tick, unstated: bool) -> Due {
    lease.due(now, now, unstated)
}

#[test]
fn renewal_that_is_due_soon_is_sent_already_but_not_right_after_a_failed_one() {
    let mut lease = Lease::granted(at(0), WATCHDOG, Term::Kept, WATCHDOG);
    assert_eq!(lease.due(at(90), at(99), false), Due::Nothing(at(100)));
    assert_eq!(lease.due(at(90), at(100), false), Due::Renew(WATCHDOG));
    assert_eq!(lease.due(at(91), at(150), false), Due::Nothing(at(300)));
    lease.answered(at(90), WATCHDOG, Answer::Unknown, at(95));
    let again = at(95).after(Config::retry_pause(WATCHDOG));
    assert_eq!(lease.due(at(96), at(200), false), Due::Nothing(again));
    assert_eq!(lease.due(again, again, false), Due::Renew(WATCHDOG));
}

fn kept() -> Lease {
    Lease::granted(at(0), WATCHDOG, Term::Kept, WATCHDOG)
}

#[test]
fn kept_hold_is_renewed_at_every_third_and_deadline_counts_from_sending() {
    let mut lease = kept();
    assert_eq!(due(&mut lease, at(99), false), Due::Nothing(at(100)));
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
    assert_eq!(due(&mut lease, at(150), false), Due::Nothing(at(300)));
    assert_eq!(
        lease.answered(at(100), WATCHDOG, Answer::Renewed, at(160)),
        None
    );
    assert_eq!(lease.deadline(), at(400));
    assert_eq!(due(&mut lease, at(199), false), Due::Nothing(at(200)));
}

#[test]
fn failed_renewal_is_tried_again_until_the_deadline_then_lost_once() {
    let mut lease = kept();
    let mut now = at(100);
    let mut tries = 0;
    loop {
        match due(&mut lease, now, false) {
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
    assert_eq!(due(&mut lease, now, false), Due::Over);
    assert_eq!(lease.release(now), Err(Loss::Expired));
}

#[test]
fn not_ours_is_a_loss_at_once() {
    let mut lease = kept();
    due(&mut lease, at(100), false);
    let loss = lease.answered(at(100), WATCHDOG, Answer::NotOurs, at(101));
    assert_eq!(loss, Some(Loss::Gone));
    assert!(!lease.is_held(at(101)));
}

#[test]
fn fixed_lease_is_not_renewed_and_ends() {
    let mut lease = Lease::granted(at(0), ms(500), Term::Until(at(500)), WATCHDOG);
    assert_eq!(due(&mut lease, at(0), false), Due::Nothing(at(500)));
    assert_eq!(due(&mut lease, at(500), false), Due::Lost(Loss::Expired));
}

#[test]
fn hold_with_a_limit_is_renewed_up_to_it_and_ends_there() {
    let mut lease = Lease::granted(at(0), WATCHDOG, Term::KeptUntil(at(450)), WATCHDOG);
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
    lease.answered(at(100), WATCHDOG, Answer::Renewed, at(101));
    assert_eq!(due(&mut lease, at(200), false), Due::Renew(ms(250)));
    lease.answered(at(200), ms(250), Answer::Renewed, at(201));
    assert_eq!(due(&mut lease, at(201), false), Due::Nothing(at(450)));
    assert_eq!(
        due(&mut lease, at(450), false),
        Due::Lost(Loss::HeldTooLong)
    );
}

#[test]
fn hold_with_a_limit_ends_before_the_lease_that_another_guard_left_it() {
    let mut lease = kept();
    lease.join(Term::KeptUntil(at(320)));
    due(&mut lease, at(100), false);
    lease.answered(at(100), WATCHDOG, Answer::Renewed, at(101));
    lease.guards.leave(Term::Kept);
    assert_eq!(lease.deadline(), at(400));
    assert_eq!(due(&mut lease, at(250), false), Due::Nothing(at(320)));
    assert_eq!(
        due(&mut lease, at(320), false),
        Due::Lost(Loss::HeldTooLong)
    );
}

#[test]
fn limit_is_that_of_the_guards_that_live() {
    let mut lease = Lease::granted(at(0), WATCHDOG, Term::KeptUntil(at(450)), WATCHDOG);
    for term in [Term::KeptUntil(at(9_000)), Term::Until(at(9_000))] {
        lease.join(term);
        lease.guards.leave(term);
    }
    lease.join(Term::Kept);
    assert_eq!(lease.loss_at(at(299)), None);
    lease.guards.leave(Term::Kept);
    let mut now = at(0);
    let lost = loop {
        match due(&mut lease, now, false) {
            Due::Renew(requested) => {
                lease.answered(now, requested, Answer::Renewed, now);
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
    lease.guards.leave(Term::Kept);
    assert_eq!(lease.loss_at(at(50)), Some(Loss::HeldTooLong));
    assert_eq!(lease.release(at(50)), Err(Loss::HeldTooLong));
}

#[test]
fn longer_nested_lease_lengthens_the_hold_and_a_shorter_one_does_not_shorten_it() {
    let mut lease = Lease::granted(at(0), ms(500), Term::Until(at(500)), WATCHDOG);
    lease.join(Term::Until(at(200)));
    assert_eq!(due(&mut lease, at(1), false), Due::Nothing(at(500)));
    lease.join(Term::Until(at(900)));
    assert_eq!(due(&mut lease, at(10), false), Due::Renew(ms(890)));
    lease.answered(at(10), ms(890), Answer::Renewed, at(11));
    assert_eq!(lease.deadline(), at(900));
}

#[test]
fn extended_lease_is_asked_for_at_once_and_counts_when_it_is_confirmed() {
    let mut lease = Lease::granted(at(0), ms(500), Term::Until(at(500)), WATCHDOG);
    lease.guards.extend(Term::Until(at(500)), at(900));
    assert!(!lease.reaches_its_terms() && lease.deadline() == at(500));
    assert_eq!(due(&mut lease, at(10), false), Due::Renew(ms(890)));
    lease.answered(at(10), ms(890), Answer::Renewed, at(11));
    assert!(lease.reaches_its_terms() && lease.deadline() == at(900));
    assert_eq!(due(&mut lease, at(12), false), Due::Nothing(at(900)));
    // The guard leaves with the term that it has now.
    lease.guards.leave(Term::Until(at(900)));
    assert!(lease.guards.ending.is_empty());
}

#[test]
fn deadline_is_the_margin_before_the_end_in_the_server_and_renewals_come_as_without_it() {
    let margin = WATCHDOG / 3;
    let mut lease = kept().with_margin(margin);
    assert_eq!((lease.deadline(), lease.server_end()), (at(200), at(300)));
    assert_eq!(due(&mut lease, at(99), false), Due::Nothing(at(100)));
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
    lease.answered(at(100), WATCHDOG, Answer::Renewed, at(101));
    assert_eq!(lease.deadline(), at(300));
    assert_eq!(due(&mut lease, at(101), false), Due::Nothing(at(200)));
    let mut fixed = Lease::granted(at(0), ms(500), Term::Until(at(400)), WATCHDOG);
    fixed = fixed.with_margin(margin);
    assert_eq!(due(&mut fixed, at(0), false), Due::Nothing(at(400)));
    fixed.join(Term::Until(at(700)));
    assert_eq!(due(&mut fixed, at(0), false), Due::Renew(ms(800)));
    fixed.answered(at(0), ms(800), Answer::Renewed, at(1));
    assert_eq!(fixed.deadline(), at(700));
}

#[test]
fn short_fixed_hold_is_renewed_at_once_when_the_watchdog_gets_it() {
    let mut lease = Lease::granted(at(0), ms(90), Term::Until(at(90)), WATCHDOG);
    assert_eq!(due(&mut lease, at(10), true), Due::Renew(ms(80)));
    lease.join(Term::Kept);
    lease.answered(at(10), ms(80), Answer::Renewed, at(20));
    assert_eq!(due(&mut lease, at(20), false), Due::Renew(WATCHDOG));
    lease.answered(at(20), WATCHDOG, Answer::Renewed, at(21));
    assert_eq!(due(&mut lease, at(21), false), Due::Nothing(at(120)));
}

#[test]
fn unstated_count_is_told_at_once_and_again_after_a_failure() {
    let mut lease = kept();
    assert_eq!(due(&mut lease, at(5), true), Due::Renew(WATCHDOG));
    lease.answered(at(5), WATCHDOG, Answer::Unknown, at(6));
    assert_eq!(due(&mut lease, at(6), true), Due::Nothing(at(36)));
    assert_eq!(due(&mut lease, at(36), true), Due::Renew(WATCHDOG));
}

#[test]
fn released_hold_is_never_due_whatever_answer_comes_late() {
    let mut lease = kept();
    due(&mut lease, at(100), false);
    assert_eq!(lease.release(at(110)), Ok(()));
    assert_eq!(
        lease.answered(at(100), WATCHDOG, Answer::NotOurs, at(120)),
        None
    );
    assert_eq!(due(&mut lease, at(1000), true), Due::Over);
}

#[test]
fn only_a_fresh_hold_that_the_watchdog_alone_keeps_passes_on() {
    let mut lease = kept();
    assert!(lease.may_pass_on(at(150)) && !lease.may_pass_on(at(151)));
    lease.join(Term::Until(at(10)));
    assert!(!lease.may_pass_on(at(0)));
}

#[test]
fn hold_that_is_kept_to_its_guards_is_not_handed_over() {
    let mut lease = kept();
    assert!(lease.may_pass_on(at(0)));
    lease.guards.keep_hold();
    assert!(!lease.may_pass_on(at(0)));
}

#[test]
fn hold_that_is_handed_over_is_renewed_for_the_new_guard() {
    let mut lease = kept();
    lease.guards.leave(Term::Kept);
    assert_eq!(due(&mut lease, at(100), false), Due::Nothing(at(300)));
    lease.pass_on(Term::Kept);
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
}

#[test]
fn hold_that_is_handed_over_before_it_has_a_guard_is_renewed_for_the_new_one() {
    let mut lease = kept();
    lease.guards.wait_for_one();
    lease.guards.leave(Term::Kept);
    assert_eq!(due(&mut lease, at(100), true), Due::Nothing(at(300)));
    lease.pass_on(Term::Kept);
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
}

#[test]
fn hold_that_waits_for_its_guard_is_not_renewed_before_it_has_one() {
    let mut lease = kept();
    assert!(!lease.guards.has_one());
    lease.guards.wait_for_one();
    assert_eq!(due(&mut lease, at(100), true), Due::Nothing(at(300)));
    assert!(lease.guards.has_one() && !lease.guards.has_one());
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
}

#[test]
fn limit_of_one_guard_ends_nothing_while_another_is_kept_without_one() {
    let mut lease = kept();
    lease.join(Term::KeptUntil(at(250)));
    assert_eq!((lease.end(), lease.loss_at(at(260))), (at(300), None));
    lease.guards.leave(Term::Kept);
    assert_eq!(lease.end(), at(250));
    assert_eq!(lease.loss_at(at(260)), Some(Loss::HeldTooLong));
}

#[test]
fn renewals_fail_since_the_first_of_a_row_until_one_is_answered() {
    let mut lease = kept();
    assert_eq!(lease.failing_since(), None);
    for sent in [at(100), at(150)] {
        assert_eq!(due(&mut lease, sent, false), Due::Renew(WATCHDOG));
        lease.answered(sent, WATCHDOG, Answer::Unknown, sent);
        assert_eq!(lease.failing_since(), Some(at(100)));
    }
    assert_eq!(due(&mut lease, at(200), false), Due::Renew(WATCHDOG));
    lease.answered(at(200), WATCHDOG, Answer::Renewed, at(201));
    assert_eq!(lease.failing_since(), None);
}

#[test]
fn renewal_whose_task_has_ended_is_sent_again_at_once() {
    let mut lease = kept();
    assert_eq!(lease.next(false), at(100));
    assert_eq!(due(&mut lease, at(100), false), Due::Renew(WATCHDOG));
    assert_eq!(lease.next(false), at(300));
    lease.forget_in_flight();
    assert_eq!(due(&mut lease, at(101), false), Due::Renew(WATCHDOG));
    lease.release(at(102)).unwrap();
    assert_eq!(lease.next(true), Tick::NEVER);
}

#[test]
fn hold_that_is_handed_over_is_asked_for_once_in_the_interval() {
    let interval = CONFIRM_INTERVAL;
    let mut lease = kept();
    let first = at(0).after(interval);
    lease.verification.passed_on(at(1));
    lease.verification.passed_on(at(2));
    assert_eq!(due(&mut lease, at(3), false), Due::Nothing(first));
    assert_eq!(due(&mut lease, first, false), Due::Renew(WATCHDOG));
    // This hand-over comes after the question, which answers the two before it only.
    lease.verification.passed_on(first.after(ms(1)));
    assert_eq!(lease.verification.unconfirmed(), 3);
    let answered = first.after(ms(2));
    lease.answered(first, WATCHDOG, Answer::Renewed, answered);
    assert_eq!(lease.verification.unconfirmed(), 1);
    assert_eq!(
        due(&mut lease, answered, false),
        Due::Nothing(first.after(interval))
    );
    let later = first.after(interval);
    assert_eq!(due(&mut lease, later, false), Due::Renew(WATCHDOG));
    lease.answered(later, WATCHDOG, Answer::Renewed, later);
    assert_eq!(lease.verification.unconfirmed(), 0);
}

#[test]
fn hold_that_was_confirmed_long_ago_is_asked_for_with_its_first_hand_over() {
    let mut lease = kept();
    lease.verification.passed_on(at(50));
    assert_eq!(due(&mut lease, at(50), false), Due::Renew(WATCHDOG));
}

#[test]
fn doubt_is_settled_by_an_answer_to_what_was_sent_after_it() {
    let mut lease = Lease::granted(at(0), ms(500), Term::Until(at(500)), WATCHDOG);
    lease.verification.verify(at(10));
    assert_eq!(due(&mut lease, at(10), false), Due::Renew(ms(490)));
    lease.verification.verify(at(11));
    lease.answered(at(10), ms(490), Answer::Renewed, at(12));
    assert_eq!(due(&mut lease, at(12), false), Due::Renew(ms(488)));
    lease.answered(at(12), ms(488), Answer::Unknown, at(13));
    assert_eq!(due(&mut lease, at(13), false), Due::Nothing(at(43)));
    assert_eq!(due(&mut lease, at(43), false), Due::Renew(ms(457)));
    lease.answered(at(43), ms(457), Answer::Renewed, at(44));
    assert_eq!(due(&mut lease, at(44), false), Due::Nothing(at(500)));
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Due { unstated: bool },
    Answer(Answer),
    JoinKept,
    JoinUntil(u64),
    Extend(u64),
    JoinKeptUntil(u64),
    Leave,
    LeaveLimited,
    PassedOn,
    Verify,
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
        1 => (0..2000_u64).prop_map(Step::Extend),
        1 => (0..2000_u64).prop_map(Step::JoinKeptUntil),
        1 => Just(Step::Leave),
        1 => Just(Step::LeaveLimited),
        1 => Just(Step::PassedOn),
        1 => Just(Step::Verify),
        1 => Just(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// For any calls in any order: the deadline never moves back, and never lies after the time until which the server
    /// may keep the hold. A hold that is over stays over, and a loss is announced at most once.
    #[test]
    fn random_calls_keep_the_invariants(
        margin in 0..=100_u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut lease = kept().with_margin(ms(margin));
        let mut now = 0;
        let mut sent = None;
        let mut told = 0;
        let mut over = false;
        for step in steps {
            let before = lease.deadline();
            match step {
                Step::Pass(by) => now += by,
                Step::Due { unstated } => match due(&mut lease, at(now), unstated) {
                    Due::Renew(requested) => {
                        prop_assert!(sent.is_none() && !over);
                        sent = Some((at(now), requested));
                    }
                    Due::Lost(_) => (told, over) = (told + 1, true),
                    Due::Over => prop_assert!(over),
                    Due::Nothing(next) => prop_assert!(next > at(now) && !over),
                },
                Step::Answer(answer) => if let Some((then, requested)) = sent.take() {
                    let loss = lease.answered(then, requested, answer, at(now));
                    told += usize::from(loss.is_some());
                    over |= loss.is_some();
                },
                Step::JoinKept => lease.join(Term::Kept),
                Step::JoinUntil(by) => lease.join(Term::Until(at(now + by))),
                Step::JoinKeptUntil(by) => lease.join(Term::KeptUntil(at(now + by))),
                Step::Extend(by) => if let Some(term @ Term::Until(_)) = lease.guards.ending.first().copied() {
                    lease.guards.extend(term, term.end().max(at(now + by)));
                },
                Step::LeaveLimited => if let Some(term) = lease.guards.ending.first().copied() {
                    lease.guards.leave(term);
                },
                Step::PassedOn => lease.verification.passed_on(at(now)),
                Step::Verify => lease.verification.verify(at(now)),
                Step::Leave => lease.guards.leave(Term::Kept),
                Step::Release => {
                    let _ = lease.release(at(now));
                    over = true;
                }
            }
            prop_assert!(lease.deadline() >= before);
            prop_assert!(lease.deadline().after(ms(margin)) <= lease.latest_end());
            prop_assert!(told <= 1 && !(over && lease.is_held(at(now))));
        }
    }
}
