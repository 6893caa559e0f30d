//! One case, and its trials.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use distlock_interop::{Kind, Side};
use libtest_mimic::Trial;

use crate::stage::{Stage, is_missing, runtime};
use crate::statistics::took;
use crate::table::{Direction, Row, Table};

/// The path of the program with distlock.
pub(crate) const RUST: Side = Side::Rust(env!("CARGO_BIN_EXE_distlock_peer"));

/// The variable that asks for the mixed histories of all versions.
const ALL: &str = "DISTLOCK_INTEROP_ALL";

type Run = Arc<dyn Fn(Stage) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// With which other trials one is played at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    /// With many.
    Beside,
    /// With one other.
    Pairwise,
    /// With none.
    Alone,
}

/// What two sides do with an object.
#[derive(Clone)]
pub(crate) struct Case {
    row: Row,
    name: &'static str,
    kind: Kind,
    /// Whether both sides do the same, so that one trial is enough for both directions.
    symmetrical: bool,
    newest_only: bool,
    pub(crate) play: Play,
    run: Run,
}

impl Case {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        row: Row,
        kind: Kind,
        name: &'static str,
        run: impl Fn(Stage) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            row,
            name,
            kind,
            symmetrical: false,
            newest_only: false,
            play: Play::Beside,
            run: Arc::new(move |stage| Box::pin(run(stage))),
        }
    }

    /// Both sides do the same.
    pub(crate) fn symmetrical(mut self) -> Self {
        self.symmetrical = true;
        self
    }

    /// With few other trials at the same time.
    pub(crate) fn play(mut self, play: Play) -> Self {
        self.play = play;
        self
    }

    /// With the newest version alone, unless all are asked for.
    pub(crate) fn newest_only(mut self) -> Self {
        self.newest_only = std::env::var_os(ALL).is_none();
        self
    }

    pub(crate) fn trials(self, table: &Arc<Table>) -> Vec<Trial> {
        let versions = Side::versions().into_iter();
        let versions = versions.take(if self.newest_only { 1 } else { usize::MAX });
        let directions: &[Direction] = if self.symmetrical {
            &[Direction::Both]
        } else {
            &[Direction::RustToJava, Direction::JavaToRust]
        };
        let each = versions.flat_map(|version| directions.iter().map(move |way| (version, *way)));
        each.map(|(version, direction)| self.trial(version, direction, table))
            .collect()
    }

    fn trial(&self, version: &'static str, direction: Direction, table: &Arc<Table>) -> Trial {
        let (case, table, kind) = (self.clone(), Arc::clone(table), self.kind.name());
        let name = format!("{kind}::{}::{}::{version}", self.name, direction.name());
        Trial::test(name.clone(), move || {
            let start = Instant::now();
            let cell = table.begin(case.row, version, direction);
            let java = Side::Java(version);
            runtime().block_on(async {
                if is_missing(java, case.kind).await {
                    return cell.missing();
                }
                let (holder, waiter) = match direction {
                    Direction::RustToJava | Direction::Both => (RUST, java),
                    Direction::JavaToRust => (java, RUST),
                };
                let stage = Stage::new(&name, case.kind, holder, waiter).await;
                // In another task: its panic is the failure of this trial.
                let run = tokio::spawn((case.run)(stage));
                if let Err(error) = run.await {
                    std::panic::resume_unwind(error.into_panic());
                }
                cell.passed();
            });
            took(&name, start.elapsed());
            Ok(())
        })
    }
}

/// A list of cases of one kind of object, by the names of their functions.
macro_rules! cases {
    ($row:expr, $kind:expr; $($run:ident),+ $(,)?) => {
        vec![$($crate::case::Case::new($row, $kind, stringify!($run), $run)),+]
    };
}
pub(crate) use cases;
