//! The checker is checked: a lock with a flaw must be caught within a few seeds.

use distlock::test_util::Flaw;
use distlock_tests::chaos::memory;
use libtest_mimic::{Failed, Trial};

/// Seeds within which each flaw must be caught.
const SEEDS: u64 = 20;

/// Some four thousand operations for each seed.
const SIZE: u32 = 4;

pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    Flaw::ALL.into_iter().map(|flaw| {
        let name = format!("flaw_{flaw:?}_is_caught");
        Trial::test(name, move || caught(flaw))
    })
}

fn caught(flaw: Flaw) -> Result<(), Failed> {
    for tried in 1..=SEEDS {
        let outcome = memory::run(&memory::plan(rand::random(), SIZE), Some(flaw));
        if let Some(violation) = outcome.violations.first() {
            println!("\n{flaw:?} caught with {tried} seeds: {violation}");
            return Ok(());
        }
    }
    Err(format!("not caught within {SEEDS} seeds").into())
}
