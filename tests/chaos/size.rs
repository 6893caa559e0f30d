//! How much is played: everything, or a smoke of each part.

use std::time::Duration;

use distlock_chaos::Coverage;
use distlock_chaos::redis::Scale;

/// How many seeds a test plays. The fixed ones are the same each time, and their shares are asserted as well; of the
/// fresh ones only violations count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    pub(crate) fixed: u64,
    pub(crate) fresh: usize,
}

/// The numbers of a size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    /// On paused time, some thousand operations each.
    pub(crate) memory: Seeds,
    /// The same for each kind of lock but the reentrant one, of which most is the same.
    pub(crate) memory_kind: Seeds,
    /// On a real server.
    pub(crate) redis: Seeds,
    pub(crate) redis_kind: Seeds,
    pub(crate) redis_scale: Scale,
    /// With child processes that are killed, one each second.
    pub(crate) processes_scale: Scale,
    /// Tests on real servers at once, and runs at once in each.
    pub(crate) redis_tests_at_once: usize,
    pub(crate) redis_runs_at_once: usize,
    /// Runs of a lock without a flaw, of the size in which flaws are looked for.
    pub(crate) flawless: usize,
    /// What the fixed seeds on a real server have to reach.
    pub(crate) redis_coverage: Coverage,
    /// On a cluster, and on a set of servers with Sentinels; of each kind of lock.
    pub(crate) ground: Seeds,
    pub(crate) ground_scale: Scale,
    pub(crate) ground_coverage: Coverage,
    /// The tests on a cluster and with Sentinels that every run plays. The others are played by hand.
    pub(crate) grounds: &'static [&'static str],
    /// The kinds of lock whose processes are killed, if not all.
    pub(crate) kinds_of_processes: Option<&'static [&'static str]>,
    /// The tests that this size leaves to the other one. They are listed as ignored.
    pub(crate) left_to_full: &'static [&'static str],
}

/// So many faults of one kind are not all without effect by chance: 2 were the most in a run at full size. A smoke on real servers
/// has fewer of each.
pub(crate) const FREQUENT: usize = 8;

/// What the fixed seeds in memory have to reach.
///
/// The least that was measured: 78 % of the faults met an operation, and 36 % of the operations another one's hold.
pub(crate) const MEMORY_COVERAGE: Coverage = Coverage {
    faults: 65,
    contended: 25,
    frequent: FREQUENT,
};

/// What the fixed seeds on a cluster and with Sentinels have to reach: a run has some ten faults.
const GROUND_COVERAGE: Coverage = Coverage {
    faults: 40,
    contended: 5,
    frequent: FREQUENT,
};

/// A lease, after which each waiter has to get its turn, and the time by which that may be late.
const GROUND_UNDISTURBED: Duration = Duration::from_secs(8);
const FULL: Size = Size {
    name: "full",
    memory: Seeds {
        fixed: 500,
        fresh: 500,
    },
    memory_kind: Seeds {
        fixed: 40,
        fresh: 40,
    },
    redis: Seeds { fixed: 5, fresh: 5 },
    redis_kind: Seeds { fixed: 1, fresh: 1 },
    redis_scale: Scale::FULL,
    processes_scale: Scale::FULL.with_faults_for(Duration::from_secs(10)),
    redis_tests_at_once: 2,
    redis_runs_at_once: 2,
    flawless: 20,
    redis_coverage: Coverage {
        faults: 60,
        contended: 8,
        frequent: FREQUENT,
    },
    ground: Seeds { fixed: 1, fresh: 1 },
    ground_scale: Scale::FULL
        .with_faults_for(Duration::from_secs(30))
        .then_undisturbed_for(GROUND_UNDISTURBED),
    ground_coverage: GROUND_COVERAGE,
    grounds: &["cluster_fair", "sentinel_fenced"],
    kinds_of_processes: None,
    left_to_full: &[],
};

const SMOKE: Size = Size {
    name: "smoke",
    memory: Seeds { fixed: 2, fresh: 1 },
    memory_kind: Seeds { fixed: 1, fresh: 1 },
    redis: Seeds { fixed: 1, fresh: 0 },
    redis_kind: Seeds { fixed: 1, fresh: 0 },
    redis_scale: Scale::SMOKE,
    processes_scale: Scale::SMOKE,
    redis_tests_at_once: 8,
    redis_runs_at_once: 6,
    flawless: 1,
    // A run has six to twelve faults. The least that was measured, beside load: 71 % and 12 %.
    redis_coverage: Coverage {
        faults: 40,
        contended: 5,
        frequent: FREQUENT,
    },
    ground: Seeds { fixed: 1, fresh: 0 },
    ground_scale: Scale::SMOKE
        .with_faults_for(Duration::from_secs(12))
        .then_undisturbed_for(GROUND_UNDISTURBED),
    ground_coverage: GROUND_COVERAGE,
    grounds: &[],
    kinds_of_processes: Some(&["permit"]),
    // Kinds that share their code with one that is played, or that memory plays, and flaws that take more than 0.6 s of the
    // processor to catch.
    left_to_full: &[
        "memory_fenced",
        "memory_permit",
        "memory_multi",
        "memory_non_reentrant",
        "memory_non_reentrant_fair",
        "memory_red",
        "memory_semaphore",
        "memory_spin",
        "memory_write",
        "redis_fair",
        "redis_permit",
        "redis_read_write",
        "redis_semaphore",
        "flawless_lock_is_not_caught",
        "flaw_PermitsGivenAgain_is_caught_by_A1",
        "flaw_ReaderBesideWriter_is_caught_by_A1",
        "flaw_DoubtEndsWithLease_is_caught_by_A5",
        "flaw_UnpolledKeepsPlace_is_caught_by_A5",
        "redis_flaw_LossUntold_is_caught_by_A19",
        "redis_non_reentrant",
        "redis_spin",
        "redis_fenced",
        "redis_non_reentrant_fair",
        "redis_write",
        "redis_multi",
        "redis_latch",
        "flaw_SeveralKeysByTries_is_caught_by_A13",
        "flaw_NoTryAfterReconnect_is_caught",
        "flaw_LeaseCutShort_is_caught",
        "flaw_TtlForgotten_is_caught",
        "flaw_NoCleanUp_is_caught",
        "flaw_DeltaInsteadOfCount_is_caught",
        "flaw_ReleaseWithoutOwnerTest_is_caught",
        "flaw_HandOverNotConfirmed_is_caught",
        "flaw_ReentryByKey_is_caught",
        "redis_red",
        "flaw_RefusalTakenForGrant_is_caught_by_A1",
        "flaw_ReleaseNotRepeated_is_caught_by_A5",
        "flaw_RenewWithoutOwnerTest_is_caught",
        "flaw_RenewalNotRetried_is_caught",
        "flaw_HoldersUnseen_is_caught_by_A12",
        "flaw_NoTryAfterSubscribe_is_caught",
        "flaw_UnsubscribeRace_is_caught",
        "flaw_BatchCutInTheMiddle_is_caught",
        "flaw_AnswerOfAnother_is_caught",
    ],
};

impl Size {
    /// The size that `DISTLOCK_TEST_SIZE` asks for; the smoke where it says nothing.
    pub(crate) fn from_env() -> Self {
        distlock_tests::size(SMOKE, FULL)
    }
}
