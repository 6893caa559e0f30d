//! Random operations under random faults, checked by their history; and the checker, checked by locks with flaws.
//!
//! What a run is made of stands in `distlock_chaos`. `SEED=.. cargo test -p distlock-chaos --test chaos memory`
//! plays one seed again, and so does `redis`; a seed that ever failed goes into `seeds.txt` and is played each time.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

mod flaws;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use distlock_chaos::{Outcome, memory, redis};
use distlock_tests::LockKind;
use libtest_mimic::{Arguments, Failed, Trial};

/// Runs on memory: some thousand operations each.
const MEMORY_SEEDS: usize = 2_000;

/// Runs on a real server, each with faults for this long.
const REDIS_SEEDS: usize = 20;
const REDIS_TIME: Duration = Duration::from_secs(12);

/// Runs in memory of each kind of lock but the reentrant one, of which most is the same.
const SEEDS_OF_A_KIND: usize = 150;

/// How long processes are killed, one each second, while all hammer on.
const PROCESSES_TIME: Duration = Duration::from_secs(10);

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

/// Runs on a real server at once: each keeps some half a core busy.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // Each of these uses the whole machine.
    args.test_threads = Some(1);
    let mut trials = vec![
        Trial::test("memory", || {
            sound(on_memory(
                &seeds("memory", MEMORY_SEEDS),
                LockKind::Reentrant,
            ))
        }),
        Trial::test("redis", || {
            let seeds = seeds("redis", REDIS_SEEDS);
            sound(on_redis(&seeds, LockKind::Reentrant))
        }),
    ];
    for (name, lock_kind) in KINDS {
        let memory = format!("memory_{name}");
        trials.push(Trial::test(memory.clone(), move || {
            sound(on_memory(&seeds(&memory, SEEDS_OF_A_KIND), lock_kind))
        }));
        let redis = format!("redis_{name}");
        trials.push(Trial::test(redis.clone(), move || {
            sound(on_redis(&seeds(&redis, AT_ONCE), lock_kind))
        }));
    }
    trials.push(Trial::test("processes", || {
        let seeds = |name| seeds(&format!("processes_{name}"), 1);
        let all = KINDS
            .map(|(name, lock_kind)| seeds(name).into_iter().map(move |seed| (seed, lock_kind)));
        let all: Vec<_> = all.into_iter().flatten().collect();
        sound(each(&all, AT_ONCE, |(seed, lock_kind)| {
            setting(lock_kind, PROCESSES_TIME, true).run(seed)
        }))
    }));
    trials.extend(flaws::trials());
    libtest_mimic::run(&args, trials).exit_code()
}

/// The seeds to play: the one given, or those that failed before and as many new ones.
fn seeds(backend: &str, new: usize) -> Vec<u64> {
    if let Ok(seed) = std::env::var("SEED") {
        return vec![seed.parse().expect("SEED is a number"); REPEATS];
    }
    let failed = include_str!("../../seeds.txt").lines().filter_map(|line| {
        let (lock_kind, seed) = line.split_once(' ')?;
        (lock_kind == backend).then(|| seed.trim().parse().expect("a seed in seeds.txt"))
    });
    let failed = failed.flat_map(|seed| [seed; REPEATS]);
    failed.chain((0..new).map(|_| rand::random())).collect()
}

fn on_memory(seeds: &[u64], lock_kind: LockKind) -> Outcome {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    each(&of_kind(seeds, lock_kind), threads, |(seed, lock_kind)| {
        let plan = memory::plan(seed, 1);
        let outcome = memory::run(&plan, lock_kind, None);
        if !outcome.violations.is_empty() {
            let fails = |plan: &_| !memory::run(plan, lock_kind, None).violations.is_empty();
            eprintln!("{plan}and still with\n{}", plan.clone().shrink(fails));
        }
        outcome
    })
}

fn on_redis(seeds: &[u64], lock_kind: LockKind) -> Outcome {
    let setting = setting(lock_kind, REDIS_TIME, false);
    each(&of_kind(seeds, lock_kind), AT_ONCE, |(seed, _)| {
        setting.run(seed)
    })
}

fn setting(lock_kind: LockKind, faulty: Duration, only_kills: bool) -> redis::RunConfig {
    redis::RunConfig {
        program: env!("CARGO_BIN_EXE_chaos").to_owned(),
        faulty,
        lock_kind,
        only_kills,
    }
}

fn of_kind(seeds: &[u64], lock_kind: LockKind) -> Vec<(u64, LockKind)> {
    seeds.iter().map(|seed| (*seed, lock_kind)).collect()
}

/// Plays each seed, so many at a time.
fn each(
    seeds: &[(u64, LockKind)],
    at_once: usize,
    play: impl Fn((u64, LockKind)) -> Outcome + Sync,
) -> Outcome {
    let seeds: Mutex<VecDeque<_>> = Mutex::new(seeds.iter().copied().collect());
    let all = Mutex::new(Outcome::default());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().unwrap().pop_front() else {
                        return;
                    };
                    let outcome = catch_unwind(AssertUnwindSafe(|| play(seed)));
                    let outcome = outcome.unwrap_or_else(|_| Outcome::broken(seed.0));
                    all.lock().unwrap().add(outcome);
                }
            });
        }
    });
    all.into_inner().unwrap()
}

fn sound(outcome: Outcome) -> Result<(), Failed> {
    println!("\n{outcome}");
    outcome.save(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    outcome.assert_sound();
    Ok(())
}
