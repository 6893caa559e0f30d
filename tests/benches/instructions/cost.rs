//! The cost of one operation, from the counts of all rounds.

use std::collections::BTreeMap;
use std::fmt;

use crate::parts::{Label, Side};

/// The instructions for one operation.
pub(crate) struct Cost {
    library: f64,
    bare: f64,
}

impl Cost {
    pub(crate) fn of(parts: &[(Label, u64)]) -> Self {
        let cost = Self {
            library: one(parts, Side::Library),
            bare: one(parts, Side::Bare),
        };
        assert!(cost.library > 0.0 && cost.bare > 0.0, "{cost}");
        cost
    }

    pub(crate) fn library(&self) -> f64 {
        self.library
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.library / self.bare
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, bare } = self;
        write!(f, "{library:>8.0} {bare:>8.0} {:>7.3}", self.ratio())
    }
}

/// What the operations cost by which the rounds of many differ from those of few. A round is counted higher if the machine
/// interrupts it, because the clock goes on. So each size is the lower quartile of its rounds: most of them may be interrupted.
fn one(parts: &[(Label, u64)], of: Side) -> f64 {
    let mut rounds: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (label, instructions) in parts {
        if let Some((side, operations)) = label
            && *side == of
        {
            rounds.entry(*operations).or_default().push(*instructions);
        }
    }
    let sizes: Vec<(f64, f64)> = rounds
        .into_iter()
        .map(|(operations, counts)| (operations as f64, lower_quartile(counts) as f64))
        .collect();
    let [(few, less), (many, more)] = sizes[..] else {
        panic!("rounds of two sizes, and not {sizes:?}");
    };
    (more - less) / (many - few)
}

fn lower_quartile(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts[counts.len() / 4]
}
