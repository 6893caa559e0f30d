//! Row 67 for every primitive beside the reentrant lock: each future dropped at every point at which it waits.

#![allow(
    clippy::async_yields_async,
    reason = "it is the future that is wanted, to be polled and dropped"
)]

use std::time::Duration;

use distlock::{Client, Error, Guard, MultiLock, Quorum, RedLock};
use distlock_tests::Disturbed as _;
use distlock_tests::any_lock::PERMITS;
use distlock_tests::faults::{Fault, Op};
use distlock_tests::{AnyLock, LockKind, eventually_eq};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::outcomes::cancel::{
    FREE, KEY, dropped_at_every_point, faults_of_a_release, faults_of_an_attempt, nobody,
};
use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::ms;

/// What is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    One(LockKind),
    /// A multi-lock of three kinds and two clients, whose keys are taken one after another.
    Mixed,
    /// Redlock, of three servers.
    Quorum,
}

/// One program: its clients, and what each of them has of the server.
struct Program {
    what: What,
    clients: Vec<Client>,
}

/// What a program acquires.
#[derive(Clone, Debug)]
enum Wanted {
    One(AnyLock),
    Many(MultiLock),
    Quorum(RedLock),
}

impl Wanted {
    async fn acquire(&self) -> Result<Guard, Error> {
        match self {
            Self::One(lock) => lock.acquire(None, None).await,
            Self::Many(lock) => lock.acquire().await,
            Self::Quorum(lock) => lock.acquire().await,
        }
    }

    async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        match self {
            Self::One(lock) => lock.try_acquire().await,
            Self::Many(lock) => lock.try_acquire().await,
            Self::Quorum(lock) => lock.try_acquire().await,
        }
    }
}

impl What {
    /// A program whose clients meet the stage's faults, or none.
    async fn program(self, stage: &Stage, faulty: bool) -> Program {
        let prefixes: &[&str] = match self {
            Self::One(_) => &[""],
            Self::Mixed => &["", ""],
            // Each has other keys, which is as good as another server.
            Self::Quorum => &["a:", "b:", "c:"],
        };
        let mut clients = Vec::new();
        for prefix in prefixes {
            let client = stage.client_with(|builder| {
                if faulty {
                    builder.key_prefix(*prefix).faults(stage.faults())
                } else {
                    builder.key_prefix(*prefix)
                }
            });
            clients.push(client.await);
        }
        Program {
            what: self,
            clients,
        }
    }

    fn has_permits(self) -> bool {
        matches!(self, Self::One(LockKind::Permit | LockKind::Semaphore))
    }

    fn is_reentrant(self) -> bool {
        match self {
            Self::One(of) => of.is_reentrant(),
            Self::Mixed | Self::Quorum => true,
        }
    }
}

impl Program {
    fn wanted(&self) -> Wanted {
        let clients = &self.clients;
        match self.what {
            What::One(of) => Wanted::One(of.lock(&clients[0], KEY)),
            What::Mixed => Wanted::Many(MultiLock::of([
                clients[0].lock("a").into(),
                clients[0].fair_lock(KEY).into(),
                clients[1].rw_lock("c").write().into(),
            ])),
            What::Quorum => Wanted::Quorum(Quorum::new(clients.clone()).lock(KEY)),
        }
    }

    /// What keeps others out that want what this program wants.
    fn in_the_way(&self) -> Vec<Wanted> {
        let one = |kind: LockKind| Wanted::One(kind.lock(&self.clients[0], KEY));
        match self.what {
            What::One(LockKind::Read) => vec![one(LockKind::Write)],
            What::One(of) => vec![one(of); of.capacity() as usize],
            // The one in the middle: others before it and behind it are free.
            What::Mixed => vec![one(LockKind::Fair)],
            What::Quorum => vec![self.wanted()],
        }
    }

    /// Keeps others out for a while, and releases then.
    async fn stay(&self, time: Duration) -> JoinHandle<()> {
        let mut guards = Vec::new();
        for wanted in self.in_the_way() {
            guards.push(wanted.acquire().await.unwrap());
        }
        tokio::spawn(async move {
            sleep(time).await;
            for guard in guards {
                guard.release().await.unwrap();
            }
        })
    }

    /// How many permits are to be had, if there are any.
    async fn permits(&self) -> i64 {
        match self.what {
            What::One(LockKind::Permit) => {
                let seats = self.clients[0].expirable_semaphore(KEY);
                seats.available_permits().await.unwrap()
            }
            What::One(LockKind::Semaphore) => {
                let pool = self.clients[0].semaphore(KEY);
                pool.available_permits().await.unwrap()
            }
            _ => 0,
        }
    }

    async fn set_permits(&self) {
        let set = match self.what {
            What::One(LockKind::Permit) => {
                let seats = self.clients[0].expirable_semaphore(KEY);
                seats.try_set_permits(PERMITS).await
            }
            What::One(LockKind::Semaphore) => {
                let pool = self.clients[0].semaphore(KEY);
                pool.try_set_permits(PERMITS).await
            }
            _ => Ok(true),
        };
        assert!(set.unwrap());
    }
}

/// All that a table of primitives is asked for.
struct Drops<'a> {
    stage: &'a Stage,
    row: &'a Row,
    what: What,
    /// The program whose futures are dropped.
    own: Program,
    other: Program,
}

impl<'a> Drops<'a> {
    async fn of(what: What, stage: &'a Stage, row: &'a Row) -> Self {
        Self {
            stage,
            row,
            what,
            own: what.program(stage, true).await,
            other: what.program(stage, false).await,
        }
    }

    /// Drops what `start` makes at every point; each time all is free again.
    async fn at_every_point<F: Future>(&self, start: impl AsyncFn() -> (JoinHandle<()>, F)) {
        let free = async || {
            if !self.what.has_permits() {
                return self.stage.free_within(FREE).await;
            }
            self.stage.idle_within(FREE).await;
            let left = || self.other.permits();
            let bound = self.stage.either(FREE, 10 * FREE);
            eventually_eq(bound, "permits", i64::from(PERMITS), left).await;
        };
        dropped_at_every_point(self.stage, self.row, 1, free, start).await;
    }

    /// Of what is free, with answers that come late or not at all.
    async fn acquisitions(&self) {
        let (slow, faults) = (ms(30), self.stage.faults());
        for fault in faults_of_an_attempt(slow) {
            let acquire = async || {
                faults.next(Op::Attempt, fault);
                faults.next(Op::Attempt, fault);
                let wanted = self.own.wanted();
                (nobody(), async move { drop(wanted.acquire().await) })
            };
            self.at_every_point(acquire).await;
        }
        let once = async || {
            faults.next(Op::Attempt, Fault::DelayReply(slow));
            faults.next(Op::Attempt, Fault::DelayReply(slow));
            let wanted = self.own.wanted();
            (nobody(), async move { drop(wanted.try_acquire().await) })
        };
        self.at_every_point(once).await;
    }

    /// Behind another program and behind its own, also where each answer is slow.
    async fn waiters(&self) {
        // Longer than a waiter trusts a holder of its own client, so that it asks the server, too; and shorter, so that it
        // is handed over.
        for (holder, stay) in [
            (&self.other, ms(60)),
            (&self.own, ms(60)),
            (&self.own, ms(10)),
        ] {
            for slow in [false, true] {
                let start = async || {
                    let holder = holder.stay(stay).await;
                    if slow {
                        let fault = Fault::DelayReply(ms(10));
                        self.stage.faults().always(Op::Attempt, fault);
                    }
                    let wanted = self.own.wanted();
                    (holder, async move { drop(wanted.acquire().await) })
                };
                self.at_every_point(start).await;
            }
        }
    }

    async fn releases(&self) {
        for fault in faults_of_a_release(ms(30)) {
            let start = async || {
                let guard = self.own.wanted().acquire().await.unwrap();
                for _ in &self.own.clients {
                    self.stage.faults().next(Op::Release, fault);
                }
                (nobody(), guard.release())
            };
            self.at_every_point(start).await;
        }
    }

    /// From the acquisition behind another program, over a body that enters again, to the release.
    async fn scopes(&self) {
        let (slow, is_reentrant) = (ms(20), self.what.is_reentrant());
        let start = async || {
            let holder = self.other.stay(slow).await;
            for op in [Op::Attempt, Op::Release] {
                self.stage.faults().next(op, Fault::Delay(slow));
                self.stage.faults().next(op, Fault::DelayReply(slow));
            }
            let wanted = self.own.wanted();
            let again = wanted.clone();
            let body = async move {
                sleep(slow).await;
                if is_reentrant {
                    let again = again.acquire().await.unwrap();
                    sleep(slow).await;
                    again.release().await.unwrap();
                }
                sleep(slow).await;
            };
            let whole = async move {
                let guard = wanted.acquire().await.unwrap();
                guard.scope(body).await.unwrap();
                guard.release().await.unwrap();
            };
            (holder, whole)
        };
        self.at_every_point(start).await;
    }

    async fn all(&self) {
        self.other.set_permits().await;
        self.acquisitions().await;
        self.waiters().await;
        self.releases().await;
        self.scopes().await;
        if !self.what.has_permits() {
            self.stage.nothing_is_left().await;
        }
    }
}

/// A row in memory and one on Redis for each.
macro_rules! drops {
    ($($what:expr => $memory:ident, $redis:ident);+ $(;)?) => {
        $(
            async fn $memory(row: &Row) {
                Drops::of($what, &Stage::memory(), row).await.all().await;
            }

            async fn $redis(row: &Row) {
                Drops::of($what, &Stage::redis().await, row).await.all().await;
            }
        )+

        rows! { Paused: $($memory),+; Real: $($redis),+; }
    };
}

drops! {
    What::One(LockKind::NonReentrant) => f67_non_reentrant_lock_dropped_in_memory, f67_non_reentrant_lock_dropped;
    What::One(LockKind::Spin) => f67_spin_lock_dropped_in_memory, f67_spin_lock_dropped;
    What::One(LockKind::Fenced) => f67_fenced_lock_dropped_in_memory, f67_fenced_lock_dropped;
    What::One(LockKind::Fair) => f67_fair_lock_dropped_in_memory, f67_fair_lock_dropped;
    What::One(LockKind::NonReentrantFair) =>
        f67_non_reentrant_fair_lock_dropped_in_memory, f67_non_reentrant_fair_lock_dropped;
    What::One(LockKind::Write) => f67_write_lock_dropped_in_memory, f67_write_lock_dropped;
    What::One(LockKind::Read) => f67_read_lock_dropped_in_memory, f67_read_lock_dropped;
    What::One(LockKind::Permit) => f67_expirable_permit_dropped_in_memory, f67_expirable_permit_dropped;
    What::One(LockKind::Semaphore) => f67_permit_dropped_in_memory, f67_permit_dropped;
    What::One(LockKind::Multi) => f67_multi_lock_dropped_in_memory, f67_multi_lock_dropped;
    What::Mixed => f67_multi_lock_of_several_kinds_dropped_in_memory, f67_multi_lock_of_several_kinds_dropped;
    What::Quorum => f67_red_lock_dropped_in_memory, f67_red_lock_dropped;
}
