//! What a run on real servers is made of, and how large it is.

use std::time::Duration;

use distlock_tests::any_lock::LockKind;
use distlock_tests::flaws::Flaw;
use tokio::runtime::Builder;

use super::plan::{FaultPlans, plans};
use super::{Ground, RedisRun};
use crate::planned_operation::margin;
use crate::{Outcome, Workload, error_counter};

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// For how long faults are injected.
    pub(super) faulty: Duration,
    /// For how long operations go on after the last fault: its consequences [heal](Ground::heals), and afterwards every waiter
    /// has to make progress.
    pub(super) undisturbed: Duration,
    /// Clients of the tester's process; of a Redlock, sets of clients.
    pub(super) client_sets: usize,
    /// Workers in the tester's process.
    pub(super) tasks: u32,
    /// Child processes.
    pub(super) children: usize,
    /// Workers in each of them.
    pub(super) tasks_of_a_child: u32,
    /// Locks.
    keys: usize,
}

impl Scale {
    /// Keeps some third of a core busy for 20 s.
    pub const FULL: Self = Self {
        faulty: Duration::from_secs(12),
        undisturbed: Duration::from_secs(8),
        client_sets: 4,
        tasks: 40,
        children: 3,
        tasks_of_a_child: 8,
        keys: 20,
    };

    /// So small that a dozen of them run at once.
    pub const SMOKE: Self = Self {
        faulty: Duration::from_secs(3),
        undisturbed: Duration::from_secs(6),
        client_sets: 2,
        tasks: 12,
        children: 2,
        tasks_of_a_child: 4,
        keys: 6,
    };

    /// The same with faults for this long.
    #[must_use]
    pub const fn with_faults_for(self, faulty: Duration) -> Self {
        Self { faulty, ..self }
    }

    /// The same, and afterwards this long without.
    #[must_use]
    pub const fn then_undisturbed_for(self, undisturbed: Duration) -> Self {
        Self {
            undisturbed,
            ..self
        }
    }
}

/// The margin in half of the runs is such a part of the lease.
const MARGIN_OF_A_LEASE: u32 = 100;

/// How many waiters in a thousand are not polled for some time, in a third of the runs.
const UNPOLLED: u32 = 3;

/// What a run on real servers is made of.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The path of the program `chaos` of this package, which the child processes run.
    pub(super) binary: String,
    pub(super) ground: Ground,
    lock_kind: LockKind,
    /// Of the clients in the tester's process.
    pub(super) flaw: Option<Flaw>,
    pub(super) scale: Scale,
    pub(super) only_kills: bool,
}

impl RunConfig {
    /// On one server, with all faults and without a mistake.
    #[must_use]
    pub fn new(binary: &str, lock_kind: LockKind, scale: Scale) -> Self {
        Self {
            binary: binary.to_owned(),
            ground: Ground::Server,
            lock_kind,
            flaw: None,
            scale,
            only_kills: false,
        }
    }

    /// The same on these servers.
    #[must_use]
    pub fn on(self, ground: Ground) -> Self {
        Self { ground, ..self }
    }

    /// The same with this mistake of the clients in the tester's process.
    #[must_use]
    pub fn with_flaw(self, flaw: Flaw) -> Self {
        let flaw = Some(flaw);
        Self { flaw, ..self }
    }

    /// The same, but a child process is killed each second, and nothing else happens.
    #[must_use]
    pub fn only_kills(self) -> Self {
        let only_kills = true;
        Self { only_kills, ..self }
    }

    /// Plays the operations and faults of a seed.
    ///
    /// # Panics
    /// If the run itself fails.
    #[must_use]
    pub fn run(&self, seed: u64) -> Outcome {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let outcome = runtime.block_on(self.play(seed));
        // Not dropped, since that would wait for a blocked thread.
        runtime.shutdown_background();
        outcome
    }

    async fn play(&self, seed: u64) -> Outcome {
        error_counter::install();
        let (workload, errors) = (
            workload(self.ground, self.lock_kind, self.scale.keys, seed),
            error_counter::count(),
        );
        let plans = if self.only_kills {
            FaultPlans::of_kills(seed, self.scale.faulty)
        } else {
            let subscribes = self.lock_kind != LockKind::Spin;
            let ground = (self.ground, seed);
            plans(ground, self.scale.faulty, &workload.keys, subscribes)
        };
        let run = RedisRun::new(seed, workload, self).await;
        let mut outcome = run.play(&plans).await;
        if error_counter::count() > errors {
            outcome.found("A11", String::from("a panic, or an error in the log"));
        }
        if !outcome.violations.is_empty() {
            let FaultPlans {
                server,
                wire,
                processes,
            } = &plans;
            eprintln!("{server}{wire}{processes}{outcome}");
        }
        outcome
    }
}

fn workload(ground: Ground, lock_kind: LockKind, keys: usize, seed: u64) -> Workload {
    Workload {
        lock_kind,
        lease: ground.lease(),
        margin: margin(seed, ground.lease() / MARGIN_OF_A_LEASE),
        work: Duration::from_millis(4),
        pause: Duration::from_millis(30),
        wait: Duration::from_secs(2),
        long: 2,
        unpolled: if seed % 3 == 1 { UNPOLLED } else { 0 },
        panics: 0,
        keys: (0..keys).map(|n| format!("chaos:{n}")).collect(),
    }
}
