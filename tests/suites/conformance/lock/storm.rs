//! Everything at once, at random: two clients, many tasks, waits, leases, drops, cancels, faults and losses.
//!
//! What must be true: no two tasks whose holds both count as held are inside at once, no update is lost, and nothing is left.
//! A failure prints its seed; `SEED=.. cargo test -p distlock-tests --test suites storm` plays the same
//! operations again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Acquire, Guard, Lock};
use distlock_tests::faults::{Fault, Faults, Op};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::conformance::stage::{Stage, drop_after};

const TASKS: u64 = 24;
/// The rounds of each task.
const ROUNDS: u64 = 25;

/// The resource that the lock guards.
#[derive(Default)]
struct Guarded {
    inside: Mutex<HashMap<u64, Arc<Guard>>>,
    visits: AtomicU64,
    counter: AtomicU64,
    updates: AtomicU64,
}

/// A task that is inside the critical section.
struct Visit {
    guarded: &'static Guarded,
    number: u64,
}

impl Guarded {
    fn enter(&'static self, guard: &Arc<Guard>, may_overlap: bool) -> Visit {
        let number = self.visits.fetch_add(1, Ordering::SeqCst);
        let mut inside = self.inside.lock().unwrap();
        if guard.is_held() && !may_overlap {
            let other = inside.values().find(|other| other.is_held());
            // The own hold last: the other may have had it until just now.
            assert!(
                other.is_none() || !guard.is_held(),
                "two inside: {other:?}, {guard:?}"
            );
        }
        inside.insert(number, Arc::clone(guard));
        drop(inside);
        Visit {
            guarded: self,
            number,
        }
    }

    /// Reads, works and writes, as one step of the lock's holder.
    async fn update(&self, guard: &Guard, work: Duration) {
        let read = self.counter.load(Ordering::SeqCst);
        sleep(work).await;
        if guard.is_held() {
            self.counter.store(read + 1, Ordering::SeqCst);
            self.updates.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let guard = self.guarded.inside.lock().unwrap().remove(&self.number);
        drop(guard);
    }
}

/// What happens in a storm besides locking.
#[derive(Clone, Copy, Default)]
struct Weather {
    /// Fixed leases: holds end with them.
    leases: bool,
    /// Lost, late, doubled and delayed commands.
    faults: bool,
    /// Keys are force-released under their holders: two holders overlap until the first one learns of it.
    wiped: bool,
}

struct Sailor {
    random: StdRng,
    lock: Lock,
    lease: Duration,
    weather: Weather,
    guarded: &'static Guarded,
}

impl Sailor {
    fn time(&mut self, at_most: Duration) -> Duration {
        at_most * self.random.random_range(0..100) / 100
    }

    fn chance(&mut self, in_hundred: u32) -> bool {
        self.random.random_range(0..100) < in_hundred
    }

    fn acquire(&mut self) -> Acquire {
        let mut acquire = self.lock.acquire();
        if self.chance(60) {
            acquire = acquire.wait(self.time(self.lease / 4));
        }
        if self.weather.leases && self.chance(25) {
            acquire = acquire.lease(self.lease / 30 + self.time(self.lease / 10));
        }
        acquire
    }

    async fn round(&mut self) {
        let acquire = self.acquire();
        let patience = self.time(self.lease / 3);
        let acquired = match self.random.random_range(0..10) {
            0 | 1 => timeout(patience, acquire).await.ok().and_then(Result::ok),
            2 => {
                let polls = self.random.random_range(1..6);
                let dropped = drop_after(polls, acquire.into_future()).await;
                dropped.and_then(Result::ok)
            }
            3 => self.lock.try_acquire().await.ok().flatten(),
            _ => acquire.await.ok(),
        };
        let Some(guard) = acquired.map(Arc::new) else {
            return;
        };
        self.inside(&guard).await;
        let guard = Arc::into_inner(guard).unwrap();
        match self.random.random_range(0..10) {
            0 | 1 => drop(guard),
            2 => drop(drop_after(1, guard.release()).await),
            _ => drop(guard.release().await),
        }
    }

    /// The critical section, with nested entries and cut short now and then.
    async fn inside(&mut self, guard: &Arc<Guard>) {
        let long = self.chance(5);
        let work = self.time(if long {
            self.lease / 20
        } else {
            Duration::from_millis(6)
        });
        let (nested, siblings) = (self.chance(20), self.chance(10));
        let cut = self.chance(10).then(|| work / 2);
        let (guarded, lock) = (self.guarded, &self.lock);
        let branches = AtomicUsize::new(0);
        let branch = async || {
            if let Ok(_inner) = lock.acquire().await {
                assert_eq!(branches.fetch_add(1, Ordering::SeqCst), 0, "two branches");
                sleep(work / 4).await;
                branches.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let visit = guarded.enter(guard, self.weather.wiped);
        let body = async {
            guarded.update(guard, work).await;
            if nested {
                let _again = guard.reenter();
                drop(lock.acquire().run(sleep(work / 4)).await);
            }
            if siblings {
                tokio::join!(branch(), branch());
            }
        };
        let scope = guard.scope(body);
        match cut {
            Some(after) => drop(timeout(after, scope).await),
            None => drop(scope.await),
        }
        drop(visit);
    }
}

/// Plans faults and force-releases until the storm is over.
async fn blow(seed: u64, weather: Weather, faults: Faults, lock: Lock, lease: Duration) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        sleep(lease * random.random_range(1..10) / 1_000).await;
        if weather.faults {
            let by = lease * random.random_range(0..100) / 1_000;
            let op = [Op::Attempt, Op::Renew, Op::Release][random.random_range(0..3)];
            let fault = [
                Fault::FailBefore,
                Fault::FailAfter,
                Fault::Delay(by),
                Fault::DelayReply(by),
                Fault::Late(by),
                Fault::Never,
                Fault::Double,
            ];
            faults.next(op, fault[random.random_range(0..fault.len())]);
        }
        if weather.wiped {
            drop(lock.force_release().await);
        }
    }
}

async fn storm(stage: &Stage, weather: Weather) {
    let given: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = given.map_or_else(
        || (0..stage.rounds(12)).map(|_| rand::random()).collect(),
        |seed| vec![seed],
    );
    let rounds = stage.size(ROUNDS / 3, ROUNDS);
    for seed in seeds {
        println!("SEED={seed}");
        let clients = [stage.faulty_client().await, stage.faulty_client().await];
        let wiper = stage.client().await;
        let guarded: &'static Guarded = Box::leak(Box::default());
        let wind = tokio::spawn(blow(
            seed,
            weather,
            stage.faults().clone(),
            wiper.lock("storm"),
            stage.lease(),
        ));
        let mut tasks = JoinSet::new();
        for n in 0..TASKS {
            let mut sailor = Sailor {
                random: StdRng::seed_from_u64(seed ^ (n << 32)),
                lock: clients[(n % 2) as usize].lock("storm"),
                lease: stage.lease(),
                weather,
                guarded,
            };
            tasks.spawn(async move {
                for _ in 0..rounds {
                    sailor.round().await;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        wind.abort();
        drop(wind.await);
        for op in [Op::Attempt, Op::Renew, Op::Release] {
            stage.faults().clear(op);
        }
        let (counter, updates) = (&guarded.counter, &guarded.updates);
        let (counter, updates) = (
            counter.load(Ordering::SeqCst),
            updates.load(Ordering::SeqCst),
        );
        assert!(
            counter == updates || weather.wiped,
            "{counter} of {updates} updates"
        );
        assert!(updates > TASKS * rounds / ROUNDS, "nobody got in");
        stage.is_quiet_within(2 * stage.lease()).await;
        stage.is_free("storm").await;
    }
}

async fn storm_of_waits_drops_and_cancels(stage: &Stage) {
    storm(stage, Weather::default()).await;
}

async fn storm_with_fixed_leases(stage: &Stage) {
    let weather = Weather {
        leases: true,
        ..Weather::default()
    };
    storm(stage, weather).await;
}

async fn storm_with_faults_on_every_command(stage: &Stage) {
    let weather = Weather {
        leases: true,
        faults: true,
        ..Weather::default()
    };
    storm(stage, weather).await;
}

async fn storm_in_which_keys_are_wiped(stage: &Stage) {
    let weather = Weather {
        leases: true,
        wiped: true,
        ..Weather::default()
    };
    storm(stage, weather).await;
}

on_every_backend![
    storm_of_waits_drops_and_cancels,
    storm_with_fixed_leases,
    storm_with_faults_on_every_command,
    storm_in_which_keys_are_wiped,
];
on_threads![
    storm_of_waits_drops_and_cancels,
    storm_with_fixed_leases,
    storm_with_faults_on_every_command,
    storm_in_which_keys_are_wiped,
];
