//! The checker is checked: a lock with a flaw must be caught within a few seeds.

use distlock_chaos::memory;
use distlock_tests::LockKind;
use distlock_tests::flaws::Flaw;
use libtest_mimic::{Failed, Trial};

/// Seeds within which each flaw must be caught.
const SEEDS: u64 = 20;

/// The size of each run: some four thousand operations.
const SIZE: u32 = 4;

/// The flaws that show on one kind of lock only, or in one way, and a rule that each has to be caught by, in runs of the
/// usual size. The others show on the reentrant lock.
const BY_RULE: [(Flaw, LockKind, &str); 16] = [
    (Flaw::ReaderBesideWriter, LockKind::Read, "A1"),
    (Flaw::PermitsGivenAgain, LockKind::Semaphore, "A1"),
    (Flaw::TokenFromMemory, LockKind::Fenced, "A2"),
    (Flaw::PlaceNotKept, LockKind::Fair, "A8"),
    (Flaw::PermitsGivenAgain, LockKind::Semaphore, "A9"),
    (Flaw::RefusalTakenForGrant, LockKind::Red, "A1"),
    (Flaw::ReconnectUntold, LockKind::Reentrant, "A7"),
    (Flaw::LookSeesNothing, LockKind::Reentrant, "A5"),
    (Flaw::UnpolledKeepsPlace, LockKind::Reentrant, "A5"),
    (Flaw::HoldersUnseen, LockKind::Red, "A12"),
    (Flaw::SeveralKeysByTries, LockKind::Multi, "A13"),
    (Flaw::ReleaseNotRepeated, LockKind::Reentrant, "A5"),
    (Flaw::DoubtEndsWithLease, LockKind::Reentrant, "A5"),
    (Flaw::ChangeCountsAgain, LockKind::Latch, "A9"),
    (Flaw::RequestForgotten, LockKind::Latch, "A9"),
    (Flaw::EndForgotten, LockKind::Semaphore, "A9"),
];

pub(crate) fn trials(seeds_without_flaw: usize) -> impl Iterator<Item = Trial> {
    let of_a_kind = |flaw| BY_RULE.iter().any(|(of_a_kind, ..)| *of_a_kind == flaw);
    let others = Flaw::ALL.into_iter().filter(move |flaw| !of_a_kind(*flaw));
    let flaws = others.map(|flaw| {
        let name = format!("flaw_{flaw:?}_is_caught");
        Trial::test(name, move || caught(flaw, LockKind::Reentrant, SIZE, None))
    });
    let by_rule = BY_RULE.into_iter().map(|(flaw, lock_kind, rule)| {
        let name = format!("flaw_{flaw:?}_is_caught_by_{rule}");
        Trial::test(name, move || caught(flaw, lock_kind, 1, Some(rule)))
    });
    let flawless = Trial::test("flawless_lock_is_not_caught", move || {
        flawless(seeds_without_flaw)
    });
    flaws.chain(by_rule).chain([flawless])
}

fn caught(flaw: Flaw, lock_kind: LockKind, size: u32, rule: Option<&str>) -> Result<(), Failed> {
    // The same seeds each time. At least four of them catch each flaw, and paused time plays them nearly alike.
    for seed in 1..=SEEDS {
        let outcome = memory::run(
            &memory::mixed_plan(seed, size, lock_kind),
            lock_kind,
            Some(flaw),
        );
        let mut violations = outcome.violations.iter();
        if let Some(violation) = violations.find(|found| rule.is_none_or(|rule| rule == found.rule))
        {
            println!("\n{flaw:?} caught with SEED={seed}: {violation}");
            return Ok(());
        }
    }
    Err(format!("not caught within {SEEDS} seeds").into())
}

/// A false alarm of the longer runs would catch every flaw.
fn flawless(seeds: usize) -> Result<(), Failed> {
    for _ in 0..seeds {
        let plan = memory::plan(rand::random(), SIZE, LockKind::Reentrant);
        let outcome = memory::run(&plan, LockKind::Reentrant, None);
        if !outcome.violations.is_empty() {
            return Err(format!("{plan}{outcome}").into());
        }
    }
    Ok(())
}
