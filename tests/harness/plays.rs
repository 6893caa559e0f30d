//! Plays a test again that failed on a machine that stood still.
//!
//! The clients of a test wait for an answer for a limited time. On a machine that stands still for as long as that, a test can
//! fail although the library is right. A [`Pulse`](crate::Pulse) tells how late the machine was.
//!
//! What keeps the machine busy is mostly the other tests of the same program. So a test is played again without them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use parking_lot::RwLock;

/// How often a test is played at most.
const PLAYS: u32 = 4;

/// How long a play that is repeated waits until it is alone. If others take longer, it is played beside them.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// First plays share it, and a later play has it alone.
static STAGE: RwLock<()> = RwLock::new(());

/// Prepares and plays a test. If it panics and the machine was late by `too_late` or more, this does not count, and the test is
/// prepared and played anew, four times at most. If the machine was not that late, the first failure counts.
///
/// While a test is played again, no other test of this program is played that calls this function, unless that takes longer than
/// a minute.
///
/// `late` tells by how much the machine was late while the test was played.
///
/// # Panics
/// As the test does, if its failure counts. A panic in `prepare` always counts.
pub fn play_until_it_counts<P>(
    too_late: Duration,
    prepare: impl FnMut() -> P,
    play: impl Fn(&P),
    late: impl Fn(&P) -> Duration,
) {
    play_on(&STAGE, too_late, prepare, play, late);
}

fn play_on<P>(
    stage: &RwLock<()>,
    too_late: Duration,
    mut prepare: impl FnMut() -> P,
    play: impl Fn(&P),
    late: impl Fn(&P) -> Duration,
) {
    for plays in 1.. {
        let (_beside_others, _alone);
        if plays == 1 {
            _beside_others = stage.read();
        } else {
            _alone = stage.try_write_for(LONGEST_WAIT);
        }
        let prepared = prepare();
        let Err(failure) = catch_unwind(AssertUnwindSafe(|| play(&prepared))) else {
            return;
        };
        let late = late(&prepared);
        if plays == PLAYS || late < too_late {
            resume_unwind(failure);
        }
        eprintln!("the machine was late by {late:?}, so the failure does not count: played again");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const TOO_LATE: Duration = Duration::from_millis(300);

    /// Plays a test that fails the first times, on a machine that is always late by this. Returns how often it was played.
    fn plays_of(failures: u32, late: Duration) -> u32 {
        let plays = Cell::new(0);
        let fails = |play: &u32| assert!(*play > failures, "failure {play}");
        let prepare = || {
            plays.set(plays.get() + 1);
            plays.get()
        };
        let played = catch_unwind(AssertUnwindSafe(|| {
            play_until_it_counts(TOO_LATE, prepare, fails, |_| late);
        }));
        assert_eq!(played.is_ok(), plays.get() > failures);
        plays.get()
    }

    #[test]
    fn failure_on_a_machine_that_stood_still_does_not_count() {
        assert_eq!(plays_of(0, TOO_LATE), 1);
        assert_eq!(plays_of(1, TOO_LATE), 2);
        assert_eq!(plays_of(1, TOO_LATE - Duration::from_millis(1)), 1);
    }

    #[test]
    fn failure_that_comes_again_and_again_counts_on_any_machine() {
        assert_eq!(plays_of(u32::MAX, TOO_LATE * 9), PLAYS);
    }

    #[test]
    fn test_is_played_again_alone() {
        // Not that of the other tests here: a play of theirs that waits for it would keep this first play from beginning.
        static STAGE: RwLock<()> = RwLock::new(());
        let (failed, first_has_failed) = channel();
        let (began, second_began) = channel();
        let (entered, other_is_played) = channel();
        let other = thread::spawn(move || {
            let play = |_: &()| {
                entered.send(()).unwrap();
                first_has_failed.recv().unwrap();
                // Longer than a thread takes to begin its second play.
                let beside = second_began.recv_timeout(Duration::from_millis(200));
                assert!(beside.is_err(), "played beside this one");
            };
            play_on(&STAGE, TOO_LATE, || (), play, |()| Duration::ZERO);
        });
        other_is_played.recv().unwrap();
        let plays = Cell::new(0);
        let play = |_: &()| {
            plays.set(plays.get() + 1);
            if plays.get() == 1 {
                failed.send(()).unwrap();
                panic!("the first failure");
            }
            // Nobody listens any more once the other test has ended.
            let _sent = began.send(());
        };
        play_on(&STAGE, TOO_LATE, || (), play, |()| TOO_LATE);
        other.join().unwrap();
        assert_eq!(plays.get(), 2);
    }
}
