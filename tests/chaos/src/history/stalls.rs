//! The stalls of the processes of a run, and what each bound stretches by.

use std::collections::BTreeMap;

use distlock_tests::pulse::{Stall, Stalls};

/// The process of the tester: the proxy and the guarded resource are part of it.
const TESTER: u32 = 0;

/// The stalls of each process. A run on paused time has none, and all of its bounds are exact.
#[derive(Clone, Debug, Default)]
pub struct ProcessStalls {
    /// Of each process, with those of the tester, through which all its commands pass.
    each: BTreeMap<u32, Stalls>,
    tester: Stalls,
    all: Stalls,
}

impl ProcessStalls {
    /// The stalls of a process and of the tester.
    #[must_use]
    pub fn of(&self, process: u32) -> &Stalls {
        self.each.get(&process).unwrap_or(&self.tester)
    }

    /// The stalls of all processes.
    #[must_use]
    pub fn all(&self) -> &Stalls {
        &self.all
    }
}

impl FromIterator<(u32, Stall)> for ProcessStalls {
    fn from_iter<T: IntoIterator<Item = (u32, Stall)>>(stalls: T) -> Self {
        let stalls: Vec<(u32, Stall)> = stalls.into_iter().collect();
        let of = |process: u32| {
            let theirs = stalls
                .iter()
                .filter(move |(of, _)| *of == process || *of == TESTER);
            theirs.map(|(_, stall)| *stall).collect()
        };
        Self {
            each: stalls
                .iter()
                .map(|(process, _)| (*process, of(*process)))
                .collect(),
            tester: of(TESTER),
            all: stalls.iter().map(|(_, stall)| *stall).collect(),
        }
    }
}
