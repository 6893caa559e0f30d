//! The faults of runs in memory, and the lists that seeds make of them.

use std::time::Duration;

use distlock_tests::faults::{Fault, Op};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::inject::COMMANDS;
use super::{LEASE, RESPONSE_TIMEOUT, workload};
use crate::fault_plan::{FaultPlan, PlannedFault};
use crate::planned_operation::panics;
use distlock_tests::any_lock::LockKind;

/// How long faults happen at size 1, which comes to some thousand operations.
const FAULTY: Duration = Duration::from_secs(50);

/// The most faults of a run. Each seed has only some kinds of them, since one kind hides another.
const STEPS: u32 = 50;

/// The most rare faults of a run.
const RARE_STEPS: u32 = 6;

/// A fault of the decorator.
#[derive(Clone, Debug)]
pub enum MemoryFault {
    /// The next command of a verb meets it.
    Next(Op, Fault),
    /// Commands of these verbs have no effect and get no reply.
    Outage(&'static [Op]),
    /// Commands of these verbs take effect, and their replies are lost.
    RepliesLost(&'static [Op]),
    /// All commands, or all answers, take this long.
    Slow(Fault),
    /// No message arrives, and every subscription is dropped.
    Mute,
    /// The lock's data is taken away.
    Wipe(String),
    /// The server restarts without the lock's data, and the clients connect again.
    Restart(String),
    /// The server executes the attempts of this time at its end, and no other command of this time.
    Hang,
    /// A copy of the server takes over. It has a lock in its state before its last release, and a task waits for this lock.
    StaleCopy,
    /// The first of two waiters is not polled for this long, while the key becomes free.
    Unpolled,
    /// A task wants two keys at once, and others want one of them, again and again.
    HotKeys,
    /// Each server of a Redlock forgets a lock in turn, while it is held.
    Forgotten,
    /// A key that another library holds for a long time becomes free without a message, or its lease is cut short.
    Untold(Untold),
}

/// What happens to a key without a message.
#[derive(Clone, Copy, Debug)]
pub enum Untold {
    /// It is deleted.
    Deleted,
    /// Its lease is cut short.
    CutShort,
}

/// The faults that this seed makes for locks of this kind, at this multiple of the usual size: in one of four seeds those
/// that random operations rarely meet, and in the others those that they often meet. Of both kinds together, and of servers
/// that hang for longer than a lease, it is not known how long they may delay a grant: only the runs that must catch a flaw
/// have them.
#[must_use]
pub fn plan(seed: u64, size: u32, lock_kind: LockKind) -> FaultPlan<MemoryFault> {
    let mut plan = mixed_plan(seed, size, lock_kind);
    let is_rare = plays_rare_faults(seed);
    plan.steps
        .retain(|step| step.fault.is_rare() == is_rare && !matches!(step.fault, MemoryFault::Hang));
    if panics_of(seed) > 0 {
        // The others wake waiters themselves.
        plan.steps
            .retain(|step| !matches!(step.fault, MemoryFault::Mute | MemoryFault::Restart(_)));
    }
    plan
}

/// How many operations in a thousand have wakers that panic. None where situations are played, which wake waiters themselves.
pub(super) fn panics_of(seed: u64) -> u32 {
    panics(seed) * u32::from(!plays_rare_faults(seed))
}

/// Whether the run of this seed plays what random operations rarely meet, and nothing else.
pub(super) fn plays_rare_faults(seed: u64) -> bool {
    seed % 4 == 3
}

/// Like [`plan`], with faults of both kinds in each seed: a flaw may need both.
#[must_use]
pub fn mixed_plan(seed: u64, size: u32, lock_kind: LockKind) -> FaultPlan<MemoryFault> {
    let mut random = StdRng::seed_from_u64(seed);
    // Single commands have most variants, and what muted subscriptions, slow replies and lost data reveal is rare: these
    // weigh more.
    let kinds: Vec<u32> = [0, 0, 0, 1, 2, 2, 3, 3, 4, 4, 4]
        .into_iter()
        .filter(|_| random.random())
        .collect();
    let kinds = if kinds.is_empty() {
        vec![0, 1, 2, 3, 4]
    } else {
        kinds
    };
    let steps = random.random_range(STEPS / 10..STEPS) * size;
    let mut steps: Vec<_> = (0..steps)
        .map(|_| {
            let at = (FAULTY * size).mul_f64(random.random());
            let kind = kinds[random.random_range(0..kinds.len())];
            step(at, kind, &mut random)
        })
        .collect();
    steps.sort_by_key(|step| step.at);
    // Drawn last, so that a seed keeps its other faults.
    steps.extend(rare_steps(size, lock_kind, &mut random));
    steps.sort_by_key(|step| step.at);
    let lasts = FAULTY * size;
    FaultPlan { seed, lasts, steps }
}

impl MemoryFault {
    fn is_rare(&self) -> bool {
        matches!(
            self,
            Self::Hang
                | Self::StaleCopy
                | Self::Unpolled
                | Self::HotKeys
                | Self::Forgotten
                | Self::Untold(_)
        )
    }
}

/// Faults that take long, or that random operations rarely meet. Each seed has a few of one kind.
fn rare_steps(
    size: u32,
    lock_kind: LockKind,
    random: &mut StdRng,
) -> Vec<PlannedFault<MemoryFault>> {
    let kinds: &[u32] = match lock_kind {
        LockKind::Red => &[0, 4],
        LockKind::Multi => &[0, 5],
        _ => &[0, 1, 2, 3],
    };
    let kind = kinds[random.random_range(0..kinds.len())];
    let steps = match kind {
        // Only one, which is the last: a server that forgets does no harm while all of them have the hold.
        4 | 5 => 1,
        _ => random.random_range(1..=RARE_STEPS) * size,
    };
    let mut step = || {
        let at = (FAULTY * size).mul_f64(random.random());
        let (fault, length) = match kind {
            0 => (
                MemoryFault::Hang,
                LEASE.mul_f64(random.random_range(1.5..2.5)),
            ),
            1 => (MemoryFault::StaleCopy, Duration::ZERO),
            2 => (
                MemoryFault::Unpolled,
                LEASE.mul_f64(random.random_range(2.0..3.0)),
            ),
            4 => (MemoryFault::Forgotten, Duration::ZERO),
            5 => (MemoryFault::HotKeys, Duration::ZERO),
            _ => {
                let ways = [Untold::Deleted, Untold::CutShort];
                let how = ways[random.random_range(0..ways.len())];
                let length = LEASE.mul_f64(random.random());
                (MemoryFault::Untold(how), length)
            }
        };
        PlannedFault { at, length, fault }
    };
    let mut steps: Vec<_> = (0..steps).map(|_| step()).collect();
    // The last one after all other faults, which would heal at the same time.
    if let Some(last) = steps
        .last_mut()
        .filter(|last| !matches!(last.fault, MemoryFault::Hang))
    {
        last.at = FAULTY * size;
    }
    steps
}

fn step(at: Duration, kind: u32, random: &mut StdRng) -> PlannedFault<MemoryFault> {
    // Mostly short ones, so that an unknown outcome soon has a consequence.
    let length = LEASE.mul_f64(random.random::<f64>().powi(2) * 1.5);
    let (fault, length) = match kind {
        0 => {
            let (op, fault) = command_fault(random);
            (MemoryFault::Next(op, fault), Duration::ZERO)
        }
        1 => {
            let ops = [
                &COMMANDS[..],
                &COMMANDS[..1],
                &COMMANDS[1..2],
                &COMMANDS[2..],
            ];
            let ops = ops[random.random_range(0..ops.len())];
            let faults = [MemoryFault::Outage(ops), MemoryFault::RepliesLost(ops)];
            (faults[random.random_range(0..faults.len())].clone(), length)
        }
        2 => (MemoryFault::Mute, length / 2),
        3 => {
            let by = RESPONSE_TIMEOUT.mul_f64(random.random::<f64>() * 0.9);
            let faults = [Fault::Delay(by), Fault::DelayReply(by)];
            let slow = faults[random.random_range(0..faults.len())];
            (MemoryFault::Slow(slow), length)
        }
        _ => {
            let keys = workload(LockKind::Reentrant, 0).keys;
            let key = keys[random.random_range(0..keys.len())].clone();
            let faults = [MemoryFault::Wipe(key.clone()), MemoryFault::Restart(key)];
            let taken = &faults[random.random_range(0..faults.len())];
            (taken.clone(), Duration::ZERO)
        }
    };
    PlannedFault { at, length, fault }
}

fn command_fault(random: &mut StdRng) -> (Op, Fault) {
    let short = RESPONSE_TIMEOUT.mul_f64(random.random());
    let op = COMMANDS[random.random_range(0..COMMANDS.len())];
    let faults = [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Delay(short),
        Fault::DelayReply(short),
        Fault::Late(short * 2),
        Fault::Never,
        Fault::Double,
    ];
    // A doubled release would find no hold. Between a client and one server nothing doubles a command.
    let kinds = faults.len() - usize::from(op == Op::Release);
    (op, faults[random.random_range(0..kinds)])
}
