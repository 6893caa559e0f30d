//! Situations that are played when the faults of a run are over, so that no fault explains a failure: futures that are
//! polled and then left, and latches whose waiters lose their connections at the last count.

use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use distlock::{Client, CountDownLatch, Error};
use futures_util::FutureExt;
use futures_util::future::{join_all, poll_immediate};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, sleep_until};

use super::ground::Effect;
use super::wire_fault::WireFault;
use super::{Ground, RedisRun};
use distlock_tests::any_lock::{AnyLock, LockKind};
use distlock_tests::proxy::Select;
use distlock_tests::pulse::{Stalls, monotonic_nanos};

/// Far beyond the end of a run: only the client can end what is granted to a future that is left.
const LEASE_OF_LEFT: Duration = Duration::from_secs(600);

/// A future that is left is looked at twice, a second apart, or once more if a look was late. The rest is for the release.
const LEFT_FOR: Duration = Duration::from_secs(4);

/// A hold is tracked by the server when it is older than a second, and looked for twice a second. The rest is for the read.
const TRACKED_AFTER: Duration = Duration::from_millis(3_000);

/// A loss is told within a round trip.
const TOLD_WITHIN: Duration = Duration::from_millis(1_000);

/// A loss that is not told on a machine that was late by this is played again, because the server and the client were late too.
const LATE: Duration = Duration::from_millis(50);

/// The most plays of a loss. The last one counts on any machine.
const PLAYS: u32 = 3;

/// More futures than attempts that a client may have under way.
const MANY: usize = 1_000;

/// How long a future is polled whenever it is woken, if it does not wait for anything else.
const AWAKE: Duration = Duration::from_millis(60);

/// The most polls before a future is left. The first one sends its attempt, the others subscribe, ask again and sleep.
const POLLS: u32 = 5;

/// How often a latch is opened while connections are cut.
const OPENED: u32 = 5;

/// How many wait for such a latch.
const WAITERS: usize = 3;

/// What was wrong, with the rule that it violates.
pub(super) type Wrong = (&'static str, String);

impl RedisRun {
    /// Plays the situations of this run's kind of lock, from this time on. Returns what was wrong.
    pub(super) async fn play_calmly(&self, at: Instant) -> Vec<Wrong> {
        let lock_kind = self.context.workload.lock_kind;
        if self.config.ground != Ground::Server {
            return Vec::new();
        }
        sleep_until(at).await;
        if lock_kind == LockKind::Latch {
            return self.latches_are_opened_at_a_cut().await;
        }
        let left = async {
            let polls = match lock_kind {
                _ if lock_kind.capacity() > 1 => 0,
                // The server keeps the places of those that wait.
                _ if lock_kind.is_fair() => 1,
                _ => POLLS,
            };
            join_all((1..=polls).map(|polls| self.leave_after(polls))).await
        };
        let (left, many, told) = tokio::join!(left, self.leave_many(), self.losses_are_told());
        left.into_iter()
            .chain([many])
            .flatten()
            .chain(told)
            .collect()
    }

    /// A future is left after so many polls, in a key that is free or held. The next ones soon have the key.
    async fn leave_after(&self, polls: u32) -> Option<Wrong> {
        let lock_kind = match self.context.workload.lock_kind {
            LockKind::Read => LockKind::Write,
            lock_kind => lock_kind,
        };
        let key = format!("chaos:left:{polls}");
        let mut locks = self.client_sets.iter().cycle();
        let mut lock = || locks.next().map(|program| lock_kind.lock_on(program, &key));
        let (lock, other) = (lock()?, lock()?);
        let holder = match polls {
            1 => None,
            // Without it the key is free.
            _ => other.acquire(None, None).await.ok(),
        };
        let acquiring = {
            let lock = lock.clone();
            async move { lock.acquire(None, Some(LEASE_OF_LEFT)).await }
        };
        let mut left = Box::pin(acquiring);
        for _ in 0..polls {
            if let Some(answer) = poll_immediate(&mut left).await {
                // There was nothing to wait for.
                drop(answer);
                return None;
            }
            // The next poll meets an answer, or a message.
            sleep(AWAKE / polls).await;
        }
        drop(holder);
        for next in [&other, &lock] {
            if let Err(what) = self.is_soon_granted(next).await {
                let what = format!("{key}, left after {polls} polls: {what}");
                return Some(("A5", what));
            }
        }
        // Only here: until now its drop would have ended what it has.
        drop(left);
        None
    }

    /// More futures of one client are polled once and left than it may have attempts under way. Others go on.
    async fn leave_many(&self) -> Option<Wrong> {
        let client = &self.client_sets.last()?[0];
        let acquire = |n: usize| {
            let acquire = client.lock(format!("chaos:many:{n}")).acquire();
            acquire.lease(LEASE_OF_LEFT).into_future()
        };
        let mut left: Vec<_> = (0..MANY).map(acquire).collect();
        for (n, acquiring) in left.iter_mut().enumerate() {
            // Without the budget of a task, which so many would use up.
            let _granted_at_once = unconstrained(acquiring).now_or_never();
            // The last ones meet what others give back.
            if n >= MANY / 2 && n % 10 == 0 {
                sleep(AWAKE / 10).await;
            }
        }
        let begin = Instant::now();
        let next = LockKind::Reentrant.lock(client, "chaos:many:next");
        while begin.elapsed() < self.context.workload.lease {
            if let Err(what) = self.is_soon_granted(&next).await {
                let what = format!("beside {MANY} futures that are left: {what}");
                return Some(("A11", what));
            }
            sleep(AWAKE).await;
        }
        drop(left);
        None
    }

    /// Each client of this process has lived through all faults. It holds a key with a fixed lease, which nothing renews, so only
    /// the server can tell it that the key is gone.
    async fn losses_are_told(&self) -> Vec<Wrong> {
        let each = self.client_sets.iter().enumerate();
        let told = join_all(each.map(|(n, program)| self.loss_is_told(n, &program[0])));
        told.await.into_iter().flatten().collect()
    }

    async fn loss_is_told(&self, n: usize, client: &Client) -> Option<Wrong> {
        let (mut wrong, mut refused) = (None, 0);
        for play in 1..=PLAYS {
            let from = monotonic_nanos();
            let key = format!("chaos:told:{n}:{play}");
            let told = self.loss_of_a_key_is_told(&key, client).await;
            let stalls = self.pulse.stalls();
            let stalls: Stalls = stalls.between(from, monotonic_nanos()).collect();
            let is_late = stalls.longest() >= LATE;
            match told {
                Ok(told) => {
                    wrong = Some(told?);
                    if !is_late {
                        return wrong;
                    }
                }
                // Without a hold there is no loss to tell. That counts if it is so in each play on a machine that is not late.
                Err(error) => {
                    refused += u32::from(!is_late);
                    let what = format!("{key} was not acquired: {error}");
                    wrong = (refused == PLAYS).then_some(("A19", what));
                }
            }
        }
        wrong
    }

    /// What was wrong, if anything. Fails if the key could not be acquired.
    async fn loss_of_a_key_is_told(
        &self,
        key: &str,
        client: &Client,
    ) -> Result<Option<Wrong>, Error> {
        let acquire = client.lock(key).acquire();
        let guard = acquire.lease(LEASE_OF_LEFT).await?;
        // A process that stands still has the hold tracked later.
        let _over = self.pulse.timeout(TRACKED_AFTER, pending::<()>()).await;
        let servers = self.servers.lock().await;
        servers.with_data()[0].cli(&["DEL", key]).await;
        drop(servers);
        let told = self.pulse.timeout(TOLD_WITHIN, guard.lost()).await;
        let what = format!("{key}: its loss was not told within {TOLD_WITHIN:?}");
        Ok(told.is_err().then_some(("A19", what)))
    }

    /// Acquires and releases a lock. A busy machine may be slower than a command's timeout, but not for long.
    async fn is_soon_granted(&self, lock: &AnyLock) -> Result<(), String> {
        let last = Mutex::new(String::from("no answer"));
        let granted = async {
            loop {
                match lock.acquire(None, None).await {
                    Ok(guard) => return drop(guard.release().await),
                    Err(error) => *last.lock().expect("nobody panicked") = error.to_string(),
                }
                sleep(AWAKE).await;
            }
        };
        let granted = self.pulse.timeout(LEFT_FOR, granted).await;
        granted.map_err(|_| last.into_inner().expect("nobody panicked"))
    }

    /// A latch is counted down to 0 in the moment in which its waiters lose their connections. They are let go.
    async fn latches_are_opened_at_a_cut(&self) -> Vec<Wrong> {
        let mut all_wrong = Vec::new();
        let direct = {
            let servers = self.servers.lock().await;
            let url = servers.with_data()[0].url();
            // Not behind the proxy, so that the count is not lost as well.
            Client::connect(&url)
                .await
                .expect("a server without faults")
        };
        for n in 0..OPENED {
            let key = format!("chaos:cut:{n}");
            let begun = monotonic_nanos();
            // Clients and the server that stand still for longer than clients wait for an answer are told of an outage, as they should be.
            let stood_still = || {
                let stalls = self.pulse.stalls();
                let stalls: Stalls = stalls.between(begun, monotonic_nanos()).collect();
                stalls.longest() >= LATE
            };
            let latch = direct.count_down_latch(&key);
            assert!(latch.try_set_count(1).await.expect("no fault"));
            let mut waiters = JoinSet::new();
            for _ in 0..WAITERS {
                let latch: CountDownLatch = self.client_sets[0][0].count_down_latch(&key);
                waiters.spawn(async move { latch.wait().await });
            }
            if self.is_listened_to(&key).await.is_err() {
                assert!(stood_still(), "waiters subscribe");
                drop(waiters);
                latch.count_down().await.expect("no fault");
                continue;
            }
            let from = self.context.time.now();
            let cut = self
                .wires
                .inject(&WireFault::Cut(Select::ALL), Duration::ZERO, 0);
            let hit = cut.await;
            latch.count_down().await.expect("no fault");
            let lasted = (from, self.context.time.now());
            let effect = Effect::outage().met(hit);
            self.note_fault(String::from("Cut"), effect, lasted, false);
            let patience = self.context.workload.lease * 2;
            let Ok(let_go) = self.pulse.timeout(patience, waiters.join_all()).await else {
                all_wrong.push(("A5", format!("{key}: waiters stay at 0")));
                continue;
            };
            let failed = let_go.into_iter().filter_map(Result::err);
            for error in failed.filter(|error| !(error.is_unavailable() && stood_still())) {
                all_wrong.push(("A11", format!("{key}, which was opened: {error}")));
            }
        }
        all_wrong
    }

    /// Waits until somebody listens to the channel of this key.
    async fn is_listened_to(&self, key: &str) -> Result<(), Elapsed> {
        let listened = async {
            loop {
                let servers = self.servers.lock().await;
                let channels = servers.with_data()[0].pubsub_channels().await;
                drop(servers);
                if channels.iter().any(|channel| channel.contains(key)) {
                    return;
                }
                sleep(AWAKE / 10).await;
            }
        };
        let patience = self.context.workload.lease * 2;
        self.pulse.timeout(patience, listened).await
    }
}
