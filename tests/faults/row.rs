//! One row: its test, the faults that it injected, and the table of all.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use distlock_tests::{Pulse, long_size, play_until_it_counts};
use libtest_mimic::Trial;
use tokio::runtime::{Builder, Runtime};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// How long most clients of these tests wait for an answer.
const ANSWER: Duration = Duration::from_millis(300);

/// No test of a row takes longer, in real time or in paused time.
fn patience() -> Duration {
    Duration::from_secs(long_size(120, 900))
}

/// What a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// One thread in real time: for real servers.
    Real,
    /// Several threads in real time: for races.
    Threads,
    /// One thread in paused time: for the memory backend.
    Paused,
}

type Test = for<'a> fn(&'a Row) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A test as its file lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) name: &'static str,
    pub(crate) clock: Clock,
    /// The one step of `.ci/run` that plays it, as an ignored test. `None`: it is in every run.
    pub(crate) left_to: Option<&'static str>,
    pub(crate) test: Test,
}

impl Listed {
    /// The row's number, as the name has it: `f01_..` is 1.
    pub(crate) fn number(&self) -> u16 {
        let digits = self.name.trim_start_matches('f').split('_').next();
        let digits = digits.unwrap_or_default();
        digits.parse().expect("a name like f01_what_happens")
    }
}

/// The tests of a file: `rows! { Real: f01_a, f03_b; Paused: f05_c }`.
///
/// `Real, left to "engines": f58_d;` is a list that only this step of `.ci/run` plays.
///
/// `Both: of_a_stage => f07_in_memory, f07;` before them makes two tests of one function: on memory in paused time, and on
/// Redis.
macro_rules! rows {
    (
        Both: $($both:ident => $memory:ident, $redis:ident),+;
        $($clock:ident $(, left to $step:literal)?: $($test:ident),+;)*
    ) => {
        $(
            async fn $memory(row: &$crate::row::Row) {
                $both(&$crate::stage::Stage::memory(), row).await;
            }

            async fn $redis(row: &$crate::row::Row) {
                $both(&$crate::stage::Stage::redis().await, row).await;
            }
        )+

        $crate::row::rows! { Paused: $($memory),+; Real: $($redis),+; $($clock $(, left to $step)?: $($test),+;)* }
    };
    ($($clock:ident $(, left to $step:literal)?: $($test:ident),+);+ $(;)?) => {
        pub(crate) fn rows() -> Vec<$crate::row::Listed> {
            let mut rows = Vec::new();
            $({
                let left_to: &[&str] = &[$($step)?];
                rows.extend([$($crate::row::Listed {
                    name: stringify!($test),
                    clock: $crate::row::Clock::$clock,
                    left_to: left_to.first().copied(),
                    test: |row| Box::pin($test(row)),
                }),+]);
            })+
            rows
        }
    };
}
pub(crate) use rows;

/// A row while its test runs, and afterwards.
#[derive(Clone)]
pub(crate) struct Row {
    listed: Listed,
    seen: Arc<Mutex<Seen>>,
    /// From the start of the test, where its time is real.
    pulse: Arc<OnceLock<Pulse>>,
}

#[derive(Default)]
struct Seen {
    injected: BTreeMap<&'static str, u64>,
    took: Option<Duration>,
    held: bool,
}

impl Row {
    pub(crate) fn of(listed: &Listed) -> Self {
        Self {
            listed: *listed,
            seen: Arc::default(),
            pulse: Arc::default(),
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.listed.number()
    }

    /// Counts a fault that happened, and not only one that was asked for.
    pub(crate) fn injected(&self, fault: &'static str, times: u64) {
        *self.seen.lock().unwrap().injected.entry(fault).or_default() += times;
    }

    /// A bound in time, stretched by how late the machine was since the test began. In paused time it is exact.
    pub(crate) fn stretch(&self, bound: Duration) -> Duration {
        self.pulse.get().map_or(bound, |pulse| pulse.stretch(bound))
    }

    /// Awaits `future` for up to the stretched bound.
    pub(crate) async fn timeout<F: Future>(
        &self,
        bound: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        match self.pulse.get() {
            Some(pulse) => pulse.timeout(bound, future).await,
            None => timeout(bound, future).await,
        }
    }

    pub(crate) fn trial(&self) -> Trial {
        let row = self.clone();
        let prepare = move || {
            *row.seen.lock().unwrap() = Seen::default();
            Self {
                pulse: Arc::default(),
                ..row.clone()
            }
        };
        Trial::test(self.listed.name, move || {
            play_until_it_counts(ANSWER, prepare, Self::play, |row| {
                row.stretch(Duration::ZERO)
            });
            Ok(())
        })
        .with_ignored_flag(self.listed.left_to.is_some())
    }

    fn play(&self) {
        let begun = Instant::now();
        let runtime = self.runtime();
        let played = runtime.block_on(async {
            if !matches!(self.listed.clock, Clock::Paused) {
                let _first = self.pulse.set(Pulse::start());
            }
            timeout(patience(), (self.listed.test)(self)).await
        });
        runtime.shutdown_background();
        played.expect("the test hangs");
        let injected: u64 = self.seen.lock().unwrap().injected.values().sum();
        assert!(injected > 0, "the fault never happened");
        let mut seen = self.seen.lock().unwrap();
        seen.took = Some(begun.elapsed());
        seen.held = true;
    }

    fn runtime(&self) -> Runtime {
        let mut builder = match self.listed.clock {
            Clock::Threads => Builder::new_multi_thread(),
            Clock::Real | Clock::Paused => Builder::new_current_thread(),
        };
        if matches!(self.listed.clock, Clock::Paused) {
            builder.start_paused(true);
        }
        builder.enable_all().build().expect("a runtime")
    }
}

/// What the suite saw, a line for each row that ran.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = String::new();
    for row in rows {
        let seen = row.seen.lock().unwrap_or_else(|broken| broken.into_inner());
        if seen.injected.is_empty() && !seen.held {
            continue;
        }
        let (number, what) = row.listed.name.split_once('_').unwrap_or_default();
        let _ = writeln!(
            lines,
            "| {} | {} | {} | {} |",
            &number[1..],
            what.trim_start_matches('_').replace('_', " "),
            Injected(&seen.injected),
            match (seen.held, seen.took) {
                (true, Some(took)) => format!("held, {:.1} s", took.as_secs_f32()),
                _ => String::from("FAILED"),
            },
        );
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "\n| row | what happens | faults that happened | result |\n| --- | --- | --- | --- |\n{lines}"
    )
}

struct Injected<'a>(&'a BTreeMap<&'static str, u64>);

impl fmt::Display for Injected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (fault, times)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{times} x {fault}")?;
        }
        Ok(())
    }
}
