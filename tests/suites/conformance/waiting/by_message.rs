//! What a message alone does: each end of a hold, and each change of a number, wakes those that wait for it.
//!
//! Nothing else wakes the waiters of this file before [`PATIENCE`] is over. The leases and the places of waiters last for an hour. A
//! waiter that has heard nothing for some 4 s looks at its key, but nobody answers the looks here, and each goes on for ten minutes.
//! So a lost message fails its test, and a slow machine does not.

use std::time::Duration;

use distlock::test_util::collect_always;
use distlock::{Builder, Client};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::{Disturbed as _, LockKind};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::conformance::stage::{Stage, end};

const KEY: &str = "order:42";

/// Longer than a message takes on any machine, and far below all the times after which a waiter asks by itself.
const PATIENCE: Duration = Duration::from_secs(40);

const HOUR: Duration = Duration::from_secs(3600);

fn patient(builder: Builder) -> Builder {
    // A response timeout of more than a sixth of the lease is cut.
    let longest = HOUR / 6;
    builder
        .watchdog_timeout(HOUR)
        .waiter_timeout(HOUR)
        .response_timeout(longest)
        .unavailable_after(longest)
}

/// A client whose holds last.
async fn holder(stage: &Stage) -> Client {
    stage.client_with(patient).await
}

/// A client whose waiters hear messages and ask nothing by themselves.
struct Waiter {
    client: Client,
    faults: Faults,
}

impl Waiter {
    async fn new(stage: &Stage) -> Self {
        let faults = Faults::new();
        faults.always(Op::Look, Fault::Never);
        let set = |builder| patient(builder).faults(&faults);
        let client = stage.client_with(set).await;
        Self { client, faults }
    }

    /// Begins a wait, until it sleeps: it has asked once more after it had subscribed, which is its second question of this sort.
    async fn sleeps<T: Send + 'static>(
        &self,
        stage: &Stage,
        question: Op,
        wait: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let asked = self.faults.calls(question);
        let waiting = tokio::spawn(wait);
        let asleep = async || {
            self.faults.calls(question) >= asked + 2 && stage.listened_channels().await > 0
        };
        stage.eventually("it sleeps", PATIENCE, asleep).await;
        // Answered behind its question. The key of a number is no lock, which is an answer as well.
        drop(self.client.lock(KEY).is_locked().await);
        waiting
    }

    /// Waits for a lock of this kind.
    async fn waits_for(&self, stage: &Stage, of: LockKind) -> JoinHandle<()> {
        let lock = of.lock(&self.client, KEY);
        let wait = async move {
            let guard = lock.acquire(None, None).await.unwrap();
            guard.release().await.unwrap();
        };
        self.sleeps(stage, Op::Attempt, wait).await
    }
}

async fn is_told<T>(waiting: JoinHandle<T>) -> T {
    let told = timeout(PATIENCE, waiting).await;
    told.expect("told by a message").unwrap()
}

/// One that waits for a lock of this kind is told of the end of a hold of that kind.
async fn end_wakes(stage: &Stage, held: LockKind, waited_for: LockKind) {
    let holder = holder(stage).await;
    for by_drop in [false, true] {
        let guard = held.lock(&holder, KEY).acquire(None, None).await.unwrap();
        let waiter = Waiter::new(stage).await;
        let waiting = waiter.waits_for(stage, waited_for).await;
        end(guard, by_drop).await;
        is_told(waiting).await;
    }
}

async fn end_of_a_lock_wakes_a_waiter(stage: &Stage) {
    end_wakes(stage, LockKind::Reentrant, LockKind::Reentrant).await;
}

async fn end_of_a_non_reentrant_lock_wakes_a_waiter(stage: &Stage) {
    end_wakes(stage, LockKind::NonReentrant, LockKind::NonReentrant).await;
}

async fn end_of_a_fenced_lock_wakes_a_waiter(stage: &Stage) {
    end_wakes(stage, LockKind::Fenced, LockKind::Fenced).await;
}

async fn end_of_a_fair_lock_wakes_a_waiter(stage: &Stage) {
    end_wakes(stage, LockKind::Fair, LockKind::Fair).await;
}

async fn end_of_a_non_reentrant_fair_lock_wakes_a_waiter(stage: &Stage) {
    end_wakes(
        stage,
        LockKind::NonReentrantFair,
        LockKind::NonReentrantFair,
    )
    .await;
}

async fn end_of_a_writer_wakes_a_writer(stage: &Stage) {
    end_wakes(stage, LockKind::Write, LockKind::Write).await;
}

async fn end_of_a_writer_wakes_a_reader(stage: &Stage) {
    end_wakes(stage, LockKind::Write, LockKind::Read).await;
}

async fn end_of_a_reader_wakes_a_writer(stage: &Stage) {
    end_wakes(stage, LockKind::Read, LockKind::Write).await;
}

async fn end_of_several_keys_wakes_a_waiter_for_one(stage: &Stage) {
    end_wakes(stage, LockKind::Multi, LockKind::Reentrant).await;
}

async fn end_of_one_key_wakes_a_waiter_for_several(stage: &Stage) {
    end_wakes(stage, LockKind::Reentrant, LockKind::Multi).await;
}

async fn ends_that_share_a_command_wake_a_waiter(stage: &Stage) {
    for of in [LockKind::Reentrant, LockKind::Read] {
        let holder = holder(stage).await;
        collect_always(&holder);
        let mut guards = Vec::new();
        for n in 0..10 {
            let lock = of.lock(&holder, &format!("another:{n}"));
            guards.push(lock.acquire(None, None).await.unwrap());
        }
        let lock = of.lock(&holder, KEY);
        guards.push(lock.acquire(None, None).await.unwrap());
        let waiter = Waiter::new(stage).await;
        let waited_for = match of {
            LockKind::Read => LockKind::Write,
            of => of,
        };
        let waiting = waiter.waits_for(stage, waited_for).await;
        for ended in join_all(guards.into_iter().map(|guard| guard.release())).await {
            ended.unwrap();
        }
        is_told(waiting).await;
    }
}

async fn lock_that_is_freed_by_force_wakes_a_waiter(stage: &Stage) {
    let holder = holder(stage).await;
    let kinds = [
        (LockKind::Reentrant, LockKind::Reentrant),
        (LockKind::Fair, LockKind::Fair),
        (LockKind::Write, LockKind::Read),
        (LockKind::Read, LockKind::Write),
    ];
    for (held, waited_for) in kinds {
        let guard = held.lock(&holder, KEY).acquire(None, None).await.unwrap();
        let waiter = Waiter::new(stage).await;
        let waiting = waiter.waits_for(stage, waited_for).await;
        let freed = match held {
            LockKind::Fair => holder.fair_lock(KEY).force_release().await,
            LockKind::Write => holder.rw_lock(KEY).write().force_release().await,
            LockKind::Read => holder.rw_lock(KEY).read().force_release().await,
            _ => holder.lock(KEY).force_release().await,
        };
        assert!(freed.unwrap(), "{held:?}");
        is_told(waiting).await;
        drop(guard);
    }
}

async fn end_of_a_lock_wakes_one_that_waits_until_it_is_free(stage: &Stage) {
    let holder = holder(stage).await;
    for of in [LockKind::Reentrant, LockKind::Fair] {
        let guard = of.lock(&holder, KEY).acquire(None, None).await.unwrap();
        let waiter = Waiter::new(stage).await;
        let lock = of.lock(&waiter.client, KEY);
        let wait = async move { lock.until_free(None).await.unwrap() };
        let waiting = waiter.sleeps(stage, Op::Inspect, wait).await;
        guard.release().await.unwrap();
        is_told(waiting).await;
    }
}

async fn waiter_is_told_that_the_key_is_kept_for_a_shorter_rest(stage: &Stage) {
    let lock = holder(stage).await.lock(KEY);
    let guard = lock.acquire().hold_at_least(stage.part(2)).await.unwrap();
    let waiter = Waiter::new(stage).await;
    let waiting = waiter.waits_for(stage, LockKind::Reentrant).await;
    // If that took longer than the hold has to last at least, the release frees the key, and says so as well.
    guard.release().await.unwrap();
    is_told(waiting).await;
}

async fn waiter_of_a_fair_lock_is_told_that_it_is_the_first_one(stage: &Stage) {
    let holder = holder(stage).await;
    let (first, second) = (Waiter::new(stage).await, Waiter::new(stage).await);
    // The one behind the first has been told of the hour that the place of the first lasts. It is told again if the lease ends soon.
    let lease = Duration::from_millis(2_500);
    let lock = LockKind::Fair.lock(&holder, KEY);
    let guard = lock.acquire(None, Some(lease)).await.unwrap();
    let before = first.waits_for(stage, LockKind::Fair).await;
    let waiting = second.waits_for(stage, LockKind::Fair).await;
    before.abort();
    is_told(waiting).await;
    drop(guard);
}

async fn writer_is_told_that_the_last_reader_ends_sooner(stage: &Stage) {
    let holder = holder(stage).await;
    let lock = LockKind::Read.lock(&holder, KEY);
    let long = lock.acquire(None, None).await.unwrap();
    let short = lock.acquire(None, Some(stage.lease())).await.unwrap();
    let waiter = Waiter::new(stage).await;
    let waiting = waiter.waits_for(stage, LockKind::Write).await;
    long.release().await.unwrap();
    is_told(waiting).await;
    drop(short);
}

async fn writer_that_gives_up_wakes_the_readers_behind_it(stage: &Stage) {
    let holder = holder(stage).await;
    let reader = LockKind::Read.lock(&holder, KEY);
    let guard = reader.acquire(None, None).await.unwrap();
    let (writer, waiter) = (Waiter::new(stage).await, Waiter::new(stage).await);
    let before = writer.waits_for(stage, LockKind::Write).await;
    let lock = LockKind::Read.lock(&waiter.client, KEY);
    let wait = async move { lock.acquire(None, None).await.unwrap() };
    // They share the channel of the writer: it is there already.
    let asked = waiter.faults.calls(Op::Attempt);
    let waiting = tokio::spawn(wait);
    let asleep = async || waiter.faults.calls(Op::Attempt) >= asked + 2;
    stage.eventually("it sleeps", PATIENCE, asleep).await;
    before.abort();
    let beside = is_told(waiting).await;
    drop((guard, beside));
}

async fn permit_that_is_given_back_wakes_a_waiter(stage: &Stage) {
    let holder = holder(stage).await;
    let pool = holder.semaphore(KEY);
    assert!(pool.try_set_permits(1).await.unwrap());
    for by_drop in [false, true] {
        let permit = pool.acquire().await.unwrap();
        let waiter = Waiter::new(stage).await;
        let waiting = waiter.waits_for(stage, LockKind::Semaphore).await;
        if by_drop {
            drop(permit);
        } else {
            permit.release().await.unwrap();
        }
        is_told(waiting).await;
    }
    assert!(pool.delete().await.unwrap());
}

async fn permits_that_are_added_wake_a_waiter(stage: &Stage) {
    let holder = holder(stage).await;
    let pool = holder.semaphore(KEY);
    for adds in [true, false] {
        assert!(pool.try_set_permits(0).await.unwrap());
        let waiter = Waiter::new(stage).await;
        let waiting = waiter.waits_for(stage, LockKind::Semaphore).await;
        let free = if adds {
            pool.add_permits(1).await
        } else {
            pool.release_permits(1).await
        };
        free.unwrap();
        is_told(waiting).await;
        assert!(pool.delete().await.unwrap());
    }
}

/// What happens to one permit of an expirable semaphore that has no other one.
#[derive(Clone, Copy, Debug)]
enum News {
    Released,
    Dropped,
    ReleasedById,
    LeaseCut,
    Added,
    Set,
}

async fn news_of_permits_with_leases_wake_a_waiter(stage: &Stage) {
    let holder = holder(stage).await;
    let seats = holder.expirable_semaphore(KEY);
    for news in [
        News::Released,
        News::Dropped,
        News::ReleasedById,
        News::LeaseCut,
        News::Added,
        News::Set,
    ] {
        assert!(seats.try_set_permits(1).await.unwrap());
        let permit = seats.acquire().lease(HOUR).await.unwrap();
        let waiter = Waiter::new(stage).await;
        let waits = waiter.client.expirable_semaphore(KEY).acquire();
        let waits = async move { waits.await.unwrap().release().await.unwrap() };
        let waiting = waiter.sleeps(stage, Op::Attempt, waits).await;
        let mut held = None;
        match news {
            News::Released => permit.release().await.unwrap(),
            News::Dropped => drop(permit),
            News::ReleasedById => {
                seats.release(permit.id()).await.unwrap();
                held = Some(permit);
            }
            News::LeaseCut => {
                let lease = stage.part(5);
                seats.update_lease(permit.id(), lease).await.unwrap();
                held = Some(permit);
            }
            News::Added => {
                seats.add_permits(1).await.unwrap();
                held = Some(permit);
            }
            News::Set => {
                seats.set_permits(2).await.unwrap();
                held = Some(permit);
            }
        }
        is_told(waiting).await;
        drop(held);
        assert!(seats.delete().await.unwrap(), "{news:?}");
    }
}

async fn latch_that_opens_lets_its_waiters_go(stage: &Stage) {
    let holder = holder(stage).await;
    let latch = holder.count_down_latch(KEY);
    for deletes in [false, true] {
        assert!(latch.try_set_count(1).await.unwrap());
        let waiter = Waiter::new(stage).await;
        let waits = waiter.client.count_down_latch(KEY).wait();
        let waits = async move { waits.await.unwrap() };
        let waiting = waiter.sleeps(stage, Op::Adjust, waits).await;
        if deletes {
            assert!(latch.delete().await.unwrap());
        } else {
            assert_eq!(latch.count_down().await.unwrap(), 0);
        }
        is_told(waiting).await;
    }
}

on_every_backend![
    end_of_a_lock_wakes_a_waiter,
    end_of_a_non_reentrant_lock_wakes_a_waiter,
    end_of_a_fenced_lock_wakes_a_waiter,
    end_of_a_fair_lock_wakes_a_waiter,
    end_of_a_non_reentrant_fair_lock_wakes_a_waiter,
    end_of_a_writer_wakes_a_writer,
    end_of_a_writer_wakes_a_reader,
    end_of_a_reader_wakes_a_writer,
    end_of_several_keys_wakes_a_waiter_for_one,
    end_of_one_key_wakes_a_waiter_for_several,
    ends_that_share_a_command_wake_a_waiter,
    lock_that_is_freed_by_force_wakes_a_waiter,
    end_of_a_lock_wakes_one_that_waits_until_it_is_free,
    waiter_is_told_that_the_key_is_kept_for_a_shorter_rest,
    waiter_of_a_fair_lock_is_told_that_it_is_the_first_one,
    writer_is_told_that_the_last_reader_ends_sooner,
    writer_that_gives_up_wakes_the_readers_behind_it,
    permit_that_is_given_back_wakes_a_waiter,
    permits_that_are_added_wake_a_waiter,
    news_of_permits_with_leases_wake_a_waiter,
    latch_that_opens_lets_its_waiters_go,
];

in_every_run![
    end_of_a_lock_wakes_a_waiter,
    end_of_a_fair_lock_wakes_a_waiter,
    end_of_one_key_wakes_a_waiter_for_several,
    latch_that_opens_lets_its_waiters_go,
];
