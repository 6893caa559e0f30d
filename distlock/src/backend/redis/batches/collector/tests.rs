use super::*;
use crate::config::{ALONE_AT_ONCE, BATCHES_AT_ONCE};
use Sort::{Attempt, End, Gone};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Attempt(usize),
    End(usize),
    /// Nobody waits for it any more.
    Gone(usize),
}

/// An operation with a number, how many bytes it adds to a batch, and how many locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation(Sort, usize, usize);

impl Collected for Operation {
    fn is_end(&self) -> bool {
        matches!(self.0, End(_))
    }

    fn locks(&self) -> usize {
        self.2
    }

    fn bytes(&self) -> usize {
        self.1
    }

    fn is_wanted(&self) -> bool {
        !matches!(self.0, Gone(_))
    }
}

fn known() -> Known {
    Known::new(true, ALONE_AT_ONCE)
}

fn collector(operations: &[Sort]) -> Collector<Operation> {
    let mut collector = Collector::new(known(), BATCHES_AT_ONCE);
    for sort in operations {
        add(&mut collector, *sort);
    }
    collector
}

fn add(collector: &mut Collector<Operation>, sort: Sort) -> Option<Phase> {
    collector.add(Operation(sort, 1, 1))
}

/// Whether more than enough operations go alone.
fn all_go_alone(collector: &mut Collector<Operation>) -> bool {
    (0..=ALONE_AT_ONCE).all(|_| collector.begin_alone())
}

/// The next batch of a sender that is ready.
fn next(collector: &mut Collector<Operation>) -> Vec<Sort> {
    let batch = collector.next_batch(Phase::Ready);
    batch.into_iter().map(|one| one.0).collect()
}

/// The locks of a batch of one operation.
const ONE: usize = 1;

/// A collector that collects whenever anything is under way.
fn eager() -> Collector<Operation> {
    Collector::new(known().collecting_always(), BATCHES_AT_ONCE)
}

/// A collector whose batches under way are as many as may be before others wait.
fn busy() -> Collector<Operation> {
    let mut collector = collector(&[]);
    for number in 0..BATCHES_AT_ONCE {
        assert_eq!(add(&mut collector, Attempt(number)), Some(Phase::Ready));
        assert_eq!(next(&mut collector), [Attempt(number)]);
    }
    collector
}

#[test]
fn operation_goes_alone_while_little_is_under_way() {
    let mut collector = collector(&[]);
    for _ in 0..ALONE_AT_ONCE {
        assert!(collector.begin_alone());
    }
    assert!(!collector.begin_alone());
    collector.end_alone();
    assert!(collector.begin_alone());
    collector.begin_alone_anyway();
    collector.end_alone();
    assert!(!collector.begin_alone());
    collector.end_alone();
    assert!(collector.begin_alone());
}

#[test]
fn operation_goes_alone_beside_batches_that_are_small_and_never_before_one_that_waits() {
    let mut collector = collector(&[Attempt(1)]);
    assert!(!collector.begin_alone());
    assert_eq!(next(&mut collector), [Attempt(1)]);
    for _ in ONE..ALONE_AT_ONCE {
        assert!(collector.begin_alone());
    }
    assert!(!collector.begin_alone());
    collector.answered(ONE);
    assert!(collector.begin_alone());
}

#[test]
fn client_that_collects_always_sends_one_operation_alone() {
    let mut collector = eager();
    assert!(collector.begin_alone());
    assert!(!collector.begin_alone());
    collector.add(Operation(Attempt(1), 1, 1));
    collector.end_alone();
    assert!(!collector.begin_alone());
    assert_eq!(next(&mut collector), [Attempt(1)]);
    assert!(!collector.begin_alone());
    collector.answered(ONE);
    assert!(collector.begin_alone());
}

#[test]
fn batches_share_what_is_unanswered() {
    let mut collector = collector(&[]);
    for number in 0..64 {
        add(&mut collector, Attempt(number));
    }
    let sizes = [(); BATCHES_AT_ONCE].map(|()| next(&mut collector).len());
    assert_eq!(sizes, [64 / BATCHES_AT_ONCE; BATCHES_AT_ONCE]);
    // Those of an answered batch are the next one.
    collector.answered(sizes[0]);
    for number in 0..sizes[0] {
        assert_eq!(add(&mut collector, Attempt(number)), None);
    }
    assert_eq!(next(&mut collector).len(), sizes[0]);
}

#[test]
fn sender_that_is_ready_takes_what_comes_up_before_it_runs() {
    let mut collector = collector(&[]);
    assert_eq!(add(&mut collector, Attempt(1)), Some(Phase::Ready));
    assert_eq!(add(&mut collector, Attempt(2)), None);
    assert_eq!(next(&mut collector), [Attempt(1), Attempt(2)]);
}

#[test]
fn what_comes_up_behind_enough_batches_waits_for_an_answer_or_until_it_is_late() {
    let mut collector = busy();
    assert_eq!(add(&mut collector, Attempt(7)), Some(Phase::Late));
    assert_eq!(add(&mut collector, Attempt(8)), None);
    collector.answered(ONE);
    assert_eq!(next(&mut collector), [Attempt(7), Attempt(8)]);
    // The late one finds nothing, and has ended.
    assert_eq!(collector.next_batch(Phase::Late), []);
    assert_eq!(add(&mut collector, Attempt(9)), Some(Phase::Late));
    assert_eq!(
        collector.next_batch(Phase::Late),
        [Operation(Attempt(9), 1, 1)]
    );
    assert_eq!(add(&mut collector, Attempt(10)), Some(Phase::Late));
}

#[test]
fn late_sender_takes_all_that_wait_and_fit() {
    let mut collector = busy();
    for number in 0..MOST_IN_BATCH - 1 {
        add(&mut collector, Attempt(number));
    }
    let late = collector.next_batch(Phase::Late);
    assert_eq!(late.len(), MOST_IN_BATCH - 1);
}

#[test]
fn full_batch_waits_for_no_answer() {
    let mut collector = busy();
    assert_eq!(add(&mut collector, Attempt(0)), Some(Phase::Late));
    for number in 1..MOST_IN_BATCH - 1 {
        assert_eq!(add(&mut collector, Attempt(number)), None);
    }
    assert_eq!(add(&mut collector, Attempt(99)), Some(Phase::Ready));
    assert_eq!(next(&mut collector).len(), MOST_IN_BATCH);
}

#[test]
fn operations_that_come_up_at_once_all_go_at_once_but_for_a_rest() {
    let mut collector = collector(&[]);
    let begun: Vec<_> = (0..8 * MOST_IN_BATCH)
        .filter_map(|number| add(&mut collector, Attempt(number)))
        .collect();
    let ready = begun.iter().filter(|phase| **phase == Phase::Ready);
    assert_eq!(ready.count(), 8);
    for _ in 0..8 {
        assert_eq!(next(&mut collector).len(), MOST_IN_BATCH);
    }
    assert_eq!(next(&mut collector), []);
}

#[test]
fn ends_go_before_attempts_and_each_sort_in_its_order() {
    let mut collector = collector(&[Attempt(1), End(2), Attempt(3), End(4)]);
    let batch = [End(2), End(4), Attempt(1), Attempt(3)];
    assert_eq!(next(&mut collector), batch);
}

#[test]
fn operation_whose_caller_is_gone_is_not_sent_and_takes_no_room() {
    let gone = (0..MOST_IN_BATCH).map(Gone);
    let all: Vec<_> = gone.clone().chain([Attempt(1)]).chain(gone).collect();
    let mut collector = collector(&all);
    assert_eq!(next(&mut collector), [Attempt(1)]);
    assert_eq!(next(&mut collector), []);
}

#[test]
fn batch_ends_before_the_name_that_does_not_fit_and_a_long_one_goes_alone() {
    let mut collector = Collector::new(known(), BATCHES_AT_ONCE);
    // So many that a share is more than what fits.
    for _ in 0..ALONE_AT_ONCE {
        collector.begin_alone_anyway();
    }
    for (number, bytes) in [
        (1, BATCH_BYTES - 1),
        (2, 1),
        (3, 1),
        (4, 2 * BATCH_BYTES),
        (5, 1),
    ] {
        collector.add(Operation(Attempt(number), bytes, 1));
    }
    assert_eq!(next(&mut collector), [Attempt(1), Attempt(2)]);
    assert_eq!(collector.begin_sender(), Some(Phase::Ready));
    assert_eq!(next(&mut collector), [Attempt(3)]);
    assert_eq!(collector.begin_sender(), Some(Phase::Ready));
    assert_eq!(next(&mut collector), [Attempt(4)]);
    assert_eq!(next(&mut collector), [Attempt(5)]);
    assert_eq!(next(&mut collector), []);
}

#[test]
fn batch_is_full_of_locks_and_one_operation_on_more_of_them_goes_alone() {
    let mut collector = Collector::new(known(), BATCHES_AT_ONCE);
    // So many that a share is a full batch.
    for _ in 0..BATCHES_AT_ONCE * MOST_IN_BATCH {
        collector.begin_alone_anyway();
    }
    let begun = [
        (1, MOST_IN_BATCH - 1),
        (2, 1),
        (3, 1),
        (4, 2 * MOST_IN_BATCH),
        (5, 1),
    ]
    .map(|(number, locks)| collector.add(Operation(Attempt(number), 1, locks)));
    let ready = Some(Phase::Ready);
    assert_eq!(begun, [ready, None, ready, ready, ready]);
    assert_eq!(next(&mut collector), [Attempt(1), Attempt(2)]);
    for alone in [3, 4, 5] {
        assert_eq!(next(&mut collector), [Attempt(alone)]);
    }
    for locks in [MOST_IN_BATCH, 1, 2 * MOST_IN_BATCH, 1] {
        collector.answered(locks);
        assert_eq!(next(&mut collector), []);
    }
    for _ in 0..BATCHES_AT_ONCE * MOST_IN_BATCH {
        collector.end_alone();
    }
    assert!(collector.is_idle());
}

#[test]
fn all_that_wait_come_back_when_a_sender_is_lost() {
    for phase in [Phase::Ready, Phase::UnderWay(ONE), Phase::Late] {
        let mut collector = busy();
        assert_eq!(add(&mut collector, Attempt(1)), Some(Phase::Late));
        assert_eq!(add(&mut collector, End(2)), None);
        let back = collector.sender_lost(phase);
        let back: Vec<_> = back.iter().map(|one| one.0).collect();
        assert_eq!(back, [End(2), Attempt(1)]);
        assert!(!collector.is_idle());
    }
    let mut last = collector(&[Attempt(1)]);
    assert_eq!(last.sender_lost(Phase::Ready).len(), 1);
    assert!(last.begin_alone());
}

#[test]
fn server_that_refuses_the_first_batch_gets_no_more_and_later_refusals_leave_doubt() {
    let mut first = collector(&[]);
    assert!(first.refused());
    assert!(all_go_alone(&mut first));
    let mut later = collector(&[]);
    later.proven();
    assert!(!later.refused());
    assert!(!all_go_alone(&mut later));
    later.switch_off();
    assert!(all_go_alone(&mut later));
}

#[test]
fn without_batches_each_operation_goes_alone() {
    let mut collector =
        Collector::<Operation>::new(Known::new(false, ALONE_AT_ONCE), BATCHES_AT_ONCE);
    assert!(all_go_alone(&mut collector));
}
