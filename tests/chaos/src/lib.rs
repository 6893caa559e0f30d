//! Random operations under random faults, and a checker for the history of each run.
//!
//! A seed makes the operations of every worker and the list of faults. A run that fails prints its seed and the list, and
//! the same seed plays them again. In memory time is paused, and a run repeats itself except for the order in which a
//! `select!` polls its branches. On real servers only the lists are the same, so a failing seed is played several times.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`memory`] | runs in memory on paused time |
//! | [`redis`] | runs on real servers with child processes: one behind a proxy, a cluster, or a set with Sentinels |
//! | [`fault_plan`] | the list of faults that a seed makes |
//! | [`history`] | the events of a run, and the checker |

#![allow(
    clippy::unwrap_used,
    reason = "a broken harness must fail the test at once"
)]

mod branches;
mod error_counter;
pub mod fault_plan;
pub mod history;
mod latch;
pub mod memory;
mod panicking_waker;
mod planned_operation;
pub mod redis;
mod time;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use distlock_tests::resource::Resource;
use history::{
    Bounds, History, Operations, Timestamp, Violation, check, circumstances, contended,
    fault_coverage, overlaps,
};

use planned_operation::Workload;

/// The result of a run, or the sum of several.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The seeds that were played.
    pub seeds: Vec<u64>,
    /// Acquisitions that were called.
    pub operations: usize,
    /// Acquisitions that were granted.
    pub granted: usize,
    /// Operations that met another one's hold.
    pub contended: usize,
    /// Writes that the guarded resource accepted.
    pub writes: u64,
    /// Faults by kind: how many met an operation, and how many there were.
    pub faults: BTreeMap<String, (usize, usize)>,
    /// How often two owners relied on one lock because its master was lost.
    pub overlaps: usize,
    /// The longest time that an acquisition took to be answered.
    pub longest_wait: Duration,
    /// The rules that were violated.
    pub violations: Vec<Violation>,
    /// The seed of the first run that violated one, with what happened around that.
    pub circumstances: Option<String>,
    /// The names and histories of the runs that violated one.
    pub failed: Vec<(String, History)>,
}

/// Checks the history of a run.
fn evaluate(
    (backend, seed): (&str, u64),
    history: &History,
    bounds: &Bounds,
    resource: &Resource,
) -> Outcome {
    let operations = Operations::from_events(&history.events(), bounds.lease);
    let waits = operations
        .all
        .iter()
        .filter_map(|op| Some(op.returned? - op.called));
    let mut outcome = Outcome {
        seeds: vec![seed],
        operations: operations.all.len(),
        granted: operations.all.iter().filter(|op| op.granted).count(),
        contended: contended(&operations),
        writes: resource.values().values().sum(),
        faults: fault_coverage(&operations),
        overlaps: overlaps(&operations).len(),
        longest_wait: Duration::from_nanos(waits.max().unwrap_or_default()),
        violations: check(&operations, bounds),
        circumstances: None,
        failed: vec![(format!("{backend}-{seed}"), history.clone())],
    };
    for lost in lost_updates(&operations, resource) {
        outcome.found("A3", lost);
    }
    let first = outcome.violations.first();
    outcome.circumstances =
        first.map(|first| format!("SEED={seed}\n{}", circumstances(first, &operations)));
    outcome
}

/// The cells that do not have one write for each that is known to be accepted. An owner that was cancelled or killed may
/// have written or not.
fn lost_updates(operations: &Operations, resource: &Resource) -> Vec<String> {
    let mut lost = Vec::new();
    let values = resource.values();
    for (key, ops) in operations.by_key() {
        let value = values.get(key).copied().unwrap_or_default();
        let sure = ops.iter().filter(|op| matches!(op.wrote, Some((_, true))));
        let maybe = ops.iter().filter(|op| op.granted && op.wrote.is_none());
        let (sure, maybe) = (sure.count() as u64, maybe.count() as u64);
        if !(sure..=sure + maybe).contains(&value) {
            lost.push(format!("{key}: {value} for {sure} writes, or {maybe} more"));
        }
    }
    lost
}

impl Outcome {
    /// A run that panicked.
    #[must_use]
    pub fn broken(seed: u64) -> Self {
        let mut outcome = Self {
            seeds: vec![seed],
            ..Self::default()
        };
        outcome.found("A11", format!("SEED={seed} broke off"));
        outcome
    }

    fn found(&mut self, rule: &'static str, what: String) {
        let at = Timestamp::default();
        self.violations.push(Violation { rule, at, what });
    }

    /// Adds another run to this.
    pub fn add(&mut self, other: Self) {
        self.seeds.extend(other.seeds);
        self.operations += other.operations;
        self.granted += other.granted;
        self.contended += other.contended;
        self.writes += other.writes;
        for (kind, (met, of)) in other.faults {
            let sum = self.faults.entry(kind).or_default();
            *sum = (sum.0 + met, sum.1 + of);
        }
        self.overlaps += other.overlaps;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        if !other.violations.is_empty() {
            self.failed.extend(other.failed);
        }
        self.violations.extend(other.violations);
        self.circumstances = self.circumstances.take().or(other.circumstances);
    }

    /// Writes the histories of failed runs into a directory, and prints their paths.
    pub fn save(&self, directory: &Path) {
        let failed = !self.violations.is_empty();
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        for (name, history) in self.failed.iter().filter(|_| failed) {
            let path = directory.join(format!("history-{name}-{now}.jsonl"));
            match history.save(&path) {
                Ok(()) => eprintln!("the history of {name}: {}", path.display()),
                Err(error) => eprintln!("{}: {error}", path.display()),
            }
        }
    }

    /// How many faults met an operation, and how many there were.
    #[must_use]
    pub fn fault_coverage(&self) -> (usize, usize) {
        let each = self.faults.values();
        each.fold((0, 0), |sum, (met, of)| (sum.0 + met, sum.1 + of))
    }

    /// Whether nothing was violated.
    ///
    /// # Errors
    /// The outcome as a text, if a rule was violated. No panic: runs at the same time would count it as one of theirs.
    pub fn sound(&self) -> Result<(), String> {
        if self.violations.is_empty() {
            return Ok(());
        }
        Err(self.to_string())
    }

    /// Whether the run tested something: its faults met operations, those of each frequent kind as well, and its operations met
    /// each other. Ask this of fixed seeds: with fresh ones it is a matter of luck.
    ///
    /// # Errors
    /// The share that is smaller than asked for, and the outcome as a text.
    pub fn covers(&self, least: Coverage) -> Result<(), String> {
        if self.seeds.is_empty() {
            return Ok(());
        }
        let (met, of) = self.fault_coverage();
        if of == 0 || self.operations == 0 {
            return Err(format!("no faults, or no operations\n{self}"));
        }
        let mut kinds = self.faults.iter().filter(|(kind, _)| *kind != NEVER_MET);
        if let Some((kind, _)) = kinds.find(|(_, (met, of))| *met == 0 && *of >= least.frequent) {
            return Err(format!("no {kind} met an operation\n{self}"));
        }
        if met * 100 < of * least.faults {
            let share = least.faults;
            return Err(format!(
                "fewer than {share} % of the faults met an operation\n{self}"
            ));
        }
        if self.contended * 100 < self.operations * least.contended {
            let share = least.contended;
            return Err(format!(
                "fewer than {share} % of the operations met another one\n{self}"
            ));
        }
        Ok(())
    }
}

/// What the faults of single commands are called that were planned and met none: those that met one have the name of what they did.
const NEVER_MET: &str = "single, never met";

/// The least shares that a run must reach to count as a test, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Coverage {
    /// Of the faults, those that met an operation.
    pub faults: usize,
    /// Of the operations, those that met another one's hold.
    pub contended: usize,
    /// No share: of each kind of fault that there were this many of, at least one must meet an operation.
    pub frequent: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operations,
            granted,
            contended,
            writes,
            ..
        } = self;
        writeln!(f, "runs          {}", self.seeds.len())?;
        writeln!(
            f,
            "operations    {operations}, {granted} granted, {contended} contended, {writes} writes"
        )?;
        let (met, of) = self.fault_coverage();
        writeln!(f, "faults        {of}, {met} met an operation")?;
        for (kind, (met, of)) in &self.faults {
            writeln!(f, "              {of} x {kind}, {met} met")?;
        }
        if self.overlaps > 0 {
            writeln!(
                f,
                "overlaps      {}, after a master was lost",
                self.overlaps
            )?;
        }
        writeln!(f, "longest wait  {:?}", self.longest_wait)?;
        if let Some(circumstances) = &self.circumstances {
            writeln!(f, "around the first violation: {circumstances}")?;
        }
        // Last, since a log may keep only the end of a long text.
        writeln!(f, "violations    {}", self.violations.len())?;
        for violation in self.violations.iter().take(20) {
            writeln!(f, "              {violation}")?;
        }
        Ok(())
    }
}
