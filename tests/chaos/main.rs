//! Random operations under random faults, checked by their history; and the checker, checked by locks with flaws.
//!
//! `DISTLOCK_TEST_SIZE=full` plays everything, otherwise a smoke of each test. `SEED=.. cargo test -p distlock-chaos
//! --test chaos -- --exact memory` plays one seed again; a seed that ever failed goes into `seeds.txt` and is played each
//! time.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod flaws;
mod size;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use distlock_chaos::redis::{Ground, RunConfig, Scale};
use distlock_chaos::{Coverage, Outcome, memory};
use distlock_tests::LockKind;
use libtest_mimic::{Arguments, Failed, Trial};

use size::{FREQUENT, MEMORY_COVERAGE, Seeds, Size};

/// The other kinds of lock.
const KINDS: [(&str, LockKind); 12] = [
    ("non_reentrant", LockKind::NonReentrant),
    ("spin", LockKind::Spin),
    ("fenced", LockKind::Fenced),
    ("fair", LockKind::Fair),
    ("non_reentrant_fair", LockKind::NonReentrantFair),
    ("write", LockKind::Write),
    ("read_write", LockKind::Read),
    ("permit", LockKind::Permit),
    ("multi", LockKind::Multi),
    ("semaphore", LockKind::Semaphore),
    ("red", LockKind::Red),
    ("latch", LockKind::Latch),
];

/// How often a seed is played that is given or has failed before: on a real server only its lists are the same.
const REPEATS: usize = 3;

/// Kills do not depend on the seed: each of them meets operations of other processes.
const KILLS_COVERAGE: Coverage = Coverage {
    faults: 80,
    contended: 5,
    frequent: FREQUENT,
};

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    let size = Size::from_env();
    if !args.list {
        println!("\nchaos at {} size", size.name);
    }
    let (on_paused_time, on_real_servers) = trials(size);
    // One after the other: runs on paused time keep all cores busy, and those on real servers wait for real clocks.
    args.test_threads = Some(cores());
    let on_paused_time = libtest_mimic::run(&args, on_paused_time);
    args.test_threads = Some(size.redis_tests_at_once);
    let on_real_servers = libtest_mimic::run(&args, on_real_servers);
    let failed = on_paused_time.has_failed() || on_real_servers.has_failed();
    ExitCode::from(if failed { 101 } else { 0 })
}

/// The tests on paused time and those on real servers.
fn trials(size: Size) -> (Vec<Trial>, Vec<Trial>) {
    let mut left_out = size.left_to_full.to_vec();
    let mut without_those_left_out = |trials: Vec<Trial>| -> Vec<Trial> {
        let marked = trials.into_iter().map(|trial| {
            match left_out.iter().position(|name| *name == trial.name()) {
                Some(found) => {
                    left_out.swap_remove(found);
                    trial.with_ignored_flag(true)
                }
                None => trial,
            }
        });
        marked.collect()
    };
    let on_paused_time = without_those_left_out(on_paused_time(size));
    let on_real_servers = without_those_left_out(on_real_servers(size));
    assert!(left_out.is_empty(), "no test has these names: {left_out:?}");
    (on_paused_time, on_real_servers)
}

fn on_paused_time(size: Size) -> Vec<Trial> {
    let trial = |name: String, kind, seeds| {
        let test = name.clone();
        Trial::test(name, move || {
            let outcomes = each(runs(&test, kind, seeds), cores(), on_memory);
            outcomes.judge(MEMORY_COVERAGE)
        })
    };
    let mut trials = vec![trial(
        String::from("memory"),
        LockKind::Reentrant,
        size.memory,
    )];
    trials
        .extend(KINDS.map(|(name, kind)| trial(format!("memory_{name}"), kind, size.memory_kind)));
    trials.extend(flaws::trials(size.flawless));
    trials
}

fn on_real_servers(size: Size) -> Vec<Trial> {
    let trial = |name: String, kind, seeds| {
        let test = name.clone();
        Trial::test(name, move || {
            let play = || {
                let runs = runs(&test, kind, seeds);
                each(runs, size.redis_runs_at_once, |run| {
                    on_redis(run, size.redis_scale)
                })
            };
            judge_one_of(play, |outcomes| &outcomes.fixed, size.redis_coverage)
        })
    };
    // The longest ones first.
    let mut trials = vec![
        trial(String::from("redis"), LockKind::Reentrant, size.redis),
        Trial::test("processes", move || processes(size)),
    ];
    trials.extend(on_several_servers(size));
    trials.push(flaws::trial_on_redis(Scale::SMOKE));
    trials.extend(flaws::trials_on_several_servers(size.ground_scale));
    trials.extend(KINDS.map(|(name, kind)| trial(format!("redis_{name}"), kind, size.redis_kind)));
    trials
}

/// Most are played by hand only: each takes a minute or more.
fn on_several_servers(size: Size) -> impl Iterator<Item = Trial> {
    const GROUNDS: [(&str, Ground); 2] =
        [("cluster", Ground::Cluster), ("sentinel", Ground::Sentinel)];
    // A Redlock needs servers that are independent of each other.
    let kinds = KINDS.into_iter().filter(|(name, _)| *name != "red");
    let kinds = kinds.chain([("reentrant", LockKind::Reentrant)]);
    let kinds: Vec<_> = kinds.collect();
    GROUNDS.into_iter().flat_map(move |(on, ground)| {
        let trials = kinds.iter().map(move |(name, kind)| {
            let (test, kind) = (format!("{on}_{name}"), *kind);
            let (name, is_played) = (test.clone(), size.grounds.contains(&&*test));
            let trial = Trial::test(name, move || {
                let play = || {
                    each(runs(&test, kind, size.ground), 1, |run| {
                        on_ground(ground, run, size.ground_scale)
                    })
                };
                judge_one_of(play, |outcomes| &outcomes.fixed, size.ground_coverage)
            });
            trial.with_ignored_flag(!is_played)
        });
        trials.collect::<Vec<_>>()
    })
}

fn processes(size: Size) -> Result<(), Failed> {
    let one = Seeds { fixed: 0, fresh: 1 };
    let of_kind = |(name, kind)| runs(&format!("processes_{name}"), kind, one);
    let is_played = |name: &str| {
        size.kinds_of_processes
            .is_none_or(|played| played.contains(&name))
    };
    let kinds = KINDS.into_iter().filter(|(name, _)| is_played(name));
    let play = || {
        let runs = kinds.clone().flat_map(of_kind).collect();
        each(runs, size.redis_runs_at_once, |run| {
            config(run, size.processes_scale).only_kills().run(run.seed)
        })
    };
    judge_one_of(play, |outcomes| &outcomes.others, KILLS_COVERAGE)
}

/// A seed and the kind of lock on which it is played.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    kind: LockKind,
    /// The seed is the same in each run.
    fixed: bool,
}

/// The seed that is given; or the fixed seeds of a test, those that failed before, and fresh ones.
fn runs(test: &str, kind: LockKind, seeds: Seeds) -> VecDeque<Run> {
    let run = |fixed| move |seed| Run { seed, kind, fixed };
    if let Ok(seed) = std::env::var("SEED") {
        let seed = seed.parse().expect("SEED is a number");
        return [seed; REPEATS].map(run(false)).into();
    }
    let failed = include_str!("seeds.txt").lines().filter_map(|line| {
        let (of, seed) = line.split_once(' ')?;
        (of == test).then(|| seed.trim().parse().expect("a seed in seeds.txt"))
    });
    let failed = failed.flat_map(|seed| [seed; REPEATS]);
    let fresh = (0..seeds.fresh).map(|_| rand::random());
    let fixed = (1..=seeds.fixed).map(run(true));
    fixed.chain(failed.chain(fresh).map(run(false))).collect()
}

fn on_memory(Run { seed, kind, .. }: Run) -> Outcome {
    let plan = memory::plan(seed, 1, kind);
    let outcome = memory::run(&plan, kind, None);
    if !outcome.violations.is_empty() {
        let fails = |plan: &_| !memory::run(plan, kind, None).violations.is_empty();
        eprintln!("{plan}and still with\n{}", plan.clone().shrink(fails));
    }
    outcome
}

fn on_redis(run: Run, scale: Scale) -> Outcome {
    config(run, scale).run(run.seed)
}

fn on_ground(ground: Ground, run: Run, scale: Scale) -> Outcome {
    config(run, scale).on(ground).run(run.seed)
}

fn config(run: Run, scale: Scale) -> RunConfig {
    RunConfig::new(env!("CARGO_BIN_EXE_chaos"), run.kind, scale)
}

/// Plays each run, this many at a time.
fn each(runs: VecDeque<Run>, at_once: usize, play: impl Fn(Run) -> Outcome + Sync) -> Outcomes {
    let (runs, outcomes) = (Mutex::new(runs), Mutex::new(Outcomes::default()));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(run) = runs.lock().unwrap().pop_front() else {
                        return;
                    };
                    let outcome = catch_unwind(AssertUnwindSafe(|| play(run)));
                    let outcome = outcome.unwrap_or_else(|_| Outcome::broken(run.seed));
                    outcomes.lock().unwrap().add(run, outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

/// Plays on real servers. How many operations meet there depends on what else the machine does, so runs that violate no rule and
/// reach too little are played again, three times at most.
fn judge_one_of(
    play: impl Fn() -> Outcomes,
    counted: fn(&Outcomes) -> &Outcome,
    least: Coverage,
) -> Result<(), Failed> {
    for _ in 0..2 {
        let outcomes = play();
        if !outcomes.is_sound() || counted(&outcomes).covers(least).is_ok() {
            return outcomes.judge(least);
        }
    }
    let outcomes = play();
    counted(&outcomes).covers(least)?;
    outcomes.judge(least)
}

/// The outcome of the runs of a test.
#[derive(Debug, Default)]
struct Outcomes {
    fixed: Outcome,
    others: Outcome,
}

impl Outcomes {
    fn add(&mut self, run: Run, outcome: Outcome) {
        let sum = if run.fixed {
            &mut self.fixed
        } else {
            &mut self.others
        };
        sum.add(outcome);
    }

    fn is_sound(&self) -> bool {
        self.fixed.sound().is_ok() && self.others.sound().is_ok()
    }

    /// No run may violate a rule, and the runs of fixed seeds must reach the minimal coverage.
    fn judge(self, least: Coverage) -> Result<(), Failed> {
        let all = [("fixed seeds", &self.fixed), ("other seeds", &self.others)];
        for (name, outcome) in all {
            if !outcome.seeds.is_empty() {
                println!("\n{name}\n{outcome}");
                outcome.save(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
            }
        }
        self.fixed.sound()?;
        self.others.sound()?;
        self.fixed.covers(least)?;
        Ok(())
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(2, usize::from)
}
