//! How much a run measures.

use std::time::Duration;

/// A full run, or a quick one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    quick: bool,
}

/// The watchdog renews each hold once in this time, a third of its default lease, and each waiter looks at its key twice.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// Names of the curves, in the order in which they are measured.
const CURVES: [&str; 7] = [
    "holds",
    "waiters",
    "one-key",
    "processes",
    "keys",
    "readers",
    "clients",
];

impl Plan {
    pub(crate) fn from_args() -> Self {
        let quick = std::env::args().any(|arg| arg == "--quick");
        Self { quick }
    }

    /// The curves to measure: all, unless the arguments name some.
    pub(crate) fn curves(self) -> Vec<&'static str> {
        // `cargo bench` and `cargo test --benches` hand flags of their own on.
        let args = std::env::args().skip(1);
        let named: Vec<String> = args.filter(|arg| !arg.starts_with('-')).collect();
        let wanted = |curve: &&str| named.is_empty() || named.iter().any(|name| name == curve);
        CURVES.into_iter().filter(wanted).collect()
    }

    /// The curve, if there is only one to measure.
    pub(crate) fn only(self) -> Option<&'static str> {
        match self.curves()[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether the page is written. The figures of a quick run have fewer sizes, and are only printed.
    pub(crate) fn writes(self) -> bool {
        !self.quick
    }

    /// The sizes to measure: a quick run leaves out the smallest one and the two largest.
    pub(crate) fn sizes(self, all: &[usize]) -> &[usize] {
        if self.quick {
            &all[1..all.len() - 2]
        } else {
            all
        }
    }

    /// How long work is measured that does not go by the clock.
    pub(crate) fn slice(self) -> Duration {
        Duration::from_millis(if self.quick { 500 } else { 2_000 })
    }

    /// As [`Plan::slice`], for work that mostly waits.
    pub(crate) fn long_slice(self) -> Duration {
        Duration::from_millis(if self.quick { 1_000 } else { 5_000 })
    }
}
