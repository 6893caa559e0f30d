//! Runs a scenario under many schedules.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId,
    UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, MaxSteps, Runner};

use crate::sync::{task, time};

/// Schedules of each scenario, unless `SCHEDULES` says another number.
const SCHEDULES: u64 = 3_500;

/// So many schedules come from one seed.
const PER_SEED: u64 = 500;

/// How often a schedule may change its mind on who comes first, in the half of the seeds that run by priorities.
const CHANGES: usize = 3;

/// More decisions than any schedule of a scenario that ends.
const MOST_STEPS: usize = 200_000;

/// Explores a scenario, of which one task is made for each schedule.
pub(crate) fn explore<F>(
    name: &str,
    patience: Duration,
    scenario: impl Fn() -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + 'static,
{
    let schedules = number_from("SCHEDULES").unwrap_or(SCHEDULES);
    let first = number_from("SEED").unwrap_or_else(micros);
    let scenario = Arc::new(move || run(patience, scenario()));
    let start = Instant::now();
    let mut done = 0;
    let mut seed = first;
    while done < schedules {
        let many = PER_SEED.min(schedules - done);
        let explored = catch_unwind(AssertUnwindSafe(|| {
            by_seed(seed, many, Arc::clone(&scenario));
        }));
        if let Err(panic) = explored {
            eprintln!(
                "{name}: a schedule of this seed failed; play it again with SEED={seed} SCHEDULES={PER_SEED}"
            );
            resume_unwind(panic);
        }
        done += many;
        seed += 1;
    }
    let took = start.elapsed().as_secs_f32();
    println!("{name}: {done} schedules in {took:.1} s, SEED={first}");
}

fn number_from(variable: &str) -> Option<u64> {
    env::var(variable)
        .ok()
        .map(|number| number.parse().unwrap())
}

fn micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_micros().try_into().unwrap()
}

fn by_seed(seed: u64, schedules: u64, scenario: Arc<impl Fn() + Send + Sync + 'static>) {
    let many = usize::try_from(schedules).unwrap();
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    let scenario = move || scenario();
    if env::var_os("CHECK_REPLAY").is_some() {
        let scheduler = Patient(RandomScheduler::new_from_seed(seed, many));
        let scheduler = UncontrolledNondeterminismCheckScheduler::new(scheduler);
        let _explored = Runner::new(scheduler, config).run(scenario);
    } else if seed.is_multiple_of(2) {
        let scheduler = Patient(RandomScheduler::new_from_seed(seed, many));
        let _explored = Runner::new(scheduler, config).run(scenario);
    } else {
        let scheduler = Patient(PctScheduler::new_from_seed(seed, CHANGES, many));
        let _explored = Runner::new(scheduler, config).run(scenario);
    }
}

/// One run: the scenario, beside the task that moves the clock.
fn run(patience: Duration, scenario: impl Future<Output = ()> + 'static) {
    time::start();
    task::start();
    let is_played = Flag::default();
    let is_over = Flag::default();
    let played = Arc::clone(&is_played);
    let over = Arc::clone(&is_over);
    let clock = shuttle::future::spawn(async move {
        assert_eq!(usize::from(shuttle::current::me()), CLOCK);
        while !over.load(Ordering::SeqCst) {
            let next = time::next();
            let patience = if played.load(Ordering::SeqCst) {
                LINGERING
            } else {
                patience
            };
            let is_late = next.is_none_or(|next| next > patience);
            assert!(!is_late, "all wait, and the next timer is at {next:?}");
            time::pass_to_next();
            task::yield_now().await;
        }
    });
    shuttle::future::block_on(async {
        scenario.await;
        is_played.store(true, Ordering::SeqCst);
        task::all_over().await;
    });
    is_over.store(true, Ordering::SeqCst);
    drop(clock);
}

/// Tasks of a client that was closed or dropped end within this time.
const LINGERING: Duration = Duration::from_secs(600);

type Flag = Arc<AtomicBool>;

/// The task that moves the clock, which is the first that a run makes.
const CLOCK: usize = 1;

/// Lets the clock move only if no other task can go on.
#[derive(Debug)]
struct Patient<S>(S);

impl<S: Scheduler> Scheduler for Patient<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(
        &mut self,
        runnable_tasks: &[&Task],
        current_task: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let is_clock = |task: &&&Task| usize::from(task.id()) == CLOCK;
        let others: Vec<&Task> = runnable_tasks
            .iter()
            .filter(|task| !is_clock(task))
            .copied()
            .collect();
        if others.is_empty() {
            self.0.next_task(runnable_tasks, current_task, is_yielding)
        } else {
            self.0.next_task(&others, current_task, is_yielding)
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
