//! The checker is checked: a lock with a flaw must be caught within a few seeds.

use distlock::test_util::Flaw;
use distlock_tests::Of;
use distlock_tests::chaos::memory;
use libtest_mimic::{Failed, Trial};

/// Seeds within which each flaw must be caught.
const SEEDS: u64 = 20;

/// Some four thousand operations for each seed.
const SIZE: u32 = 4;

pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let flaws = Flaw::ALL.into_iter().map(|flaw| {
        let name = format!("flaw_{flaw:?}_is_caught");
        Trial::test(name, move || caught(flaw))
    });
    flaws.chain([Trial::test("flawless_lock_is_not_caught", innocent)])
}

fn caught(flaw: Flaw) -> Result<(), Failed> {
    for tried in 1..=SEEDS {
        let seed = rand::random();
        let outcome = memory::run(&memory::plan(seed, SIZE), Of::Reentrant, Some(flaw));
        if let Some(violation) = outcome.violations.first() {
            println!("\n{flaw:?} caught with {tried} seeds, the last SEED={seed}: {violation}");
            return Ok(());
        }
    }
    Err(format!("not caught within {SEEDS} seeds").into())
}

/// Else a false alarm of the longer runs would catch every flaw.
fn innocent() -> Result<(), Failed> {
    for _ in 0..SEEDS {
        let plan = memory::plan(rand::random(), SIZE);
        let outcome = memory::run(&plan, Of::Reentrant, None);
        if !outcome.violations.is_empty() {
            return Err(format!("{plan}{outcome}").into());
        }
    }
    Ok(())
}
