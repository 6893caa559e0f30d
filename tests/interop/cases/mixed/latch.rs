//! One call of a latch: it is set, counted down, or awaited.
//!
//! All threads change and await most keys as they like. The last key is changed step by step, by one thread at a time and long
//! enough apart: its waiters wait for a long time, and only a message wakes them in time.

use std::sync::atomic::Ordering;

use distlock_chaos::history::{Change, EventKind, Id, Refusal};
use distlock_interop::{Actor, Call, Failure, Kind};
use distlock_tests::pulse::monotonic_nanos;
use rand::RngExt as _;

use super::{KEYS, NANOS, Run, SHORTEST_WAIT, WAIT, lock, recorded_wait, refusal};

/// Redisson does not answer what is left of the count. After a count-down from 1, that is always 0.
const COUNT: u32 = 1;

/// The key whose changes follow each other step by step.
const STEADY: usize = KEYS - 1;

/// The count of that key. Nobody else changes it, so what is left is known.
const STEADY_COUNT: u32 = 2;

/// How long it stays at a count above 0, in milliseconds.
const CLOSED: u64 = 300;

/// How long it stays at 0, in milliseconds: longer than a waiter may wait beside it.
const OPEN: u64 = 3_200;

/// The longest wait for it, in milliseconds: longer than it stays at 0, so that a waiter that no message reaches still waits.
const STEADY_WAIT: u64 = 6_000;

/// How many threads of each process await that key. The others change it.
const WAITERS: u32 = 2;

/// The state of the steady key.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// What is left of its count. Unknown after the process that changed it was killed.
    left: Option<u32>,
    /// When the next change may begin.
    due: u64,
    /// Whether Java counted it down to 0 last. The sides take turns at that.
    opened_by_java: bool,
}

impl Run {
    /// Sets a latch, counts it down, or waits for it.
    pub(super) async fn use_latch(&self, id: Id, actor: &Actor) -> Result<(), Failure> {
        let (key, drawn, wait) = {
            let mut random = rand::rng();
            let (key, drawn) = (random.random_range(0..STEADY), random.random_range(0..10));
            (key, drawn, random.random_range(SHORTEST_WAIT..WAIT))
        };
        if id.task < WAITERS && drawn < 7 {
            let left = self.end.saturating_sub(monotonic_nanos()) / NANOS;
            let wait = left.clamp(SHORTEST_WAIT, STEADY_WAIT);
            return self.wait_for_latch(id, actor, STEADY, wait).await;
        }
        if id.task >= WAITERS && self.step(id, actor).await? {
            return Ok(());
        }
        match drawn {
            0..3 => drop(self.count_down(id, actor, key, 0).await?),
            3..6 => drop(self.set(id, actor, key, COUNT).await?),
            _ => return self.wait_for_latch(id, actor, key, wait).await,
        }
        Ok(())
    }

    /// Changes the steady key, if its next change is due and nobody else makes it.
    async fn step(&self, id: Id, actor: &Actor) -> Result<bool, Failure> {
        let Ok(mut steady) = self.steady.try_lock() else {
            return Ok(false);
        };
        let now = monotonic_nanos();
        if now < steady.due {
            return Ok(false);
        }
        let left = match steady.left {
            Some(left) => left,
            None => self.count(actor, STEADY).await?,
        };
        let is_java = actor.peer().side().is_java();
        let is_for_the_other_side = left == 1 && is_java == steady.opened_by_java;
        if is_for_the_other_side || (left == 0 && now + OPEN * NANOS > self.end) {
            return Ok(false);
        }
        // Unknown if there is no answer. The next one then asks, and not at once.
        (steady.left, steady.due) = (None, now + CLOSED * NANOS);
        if left == 0 {
            if let Some(is_set) = self.set(id, actor, STEADY, STEADY_COUNT).await? {
                assert!(is_set, "a latch at 0 was not set");
                steady.left = Some(STEADY_COUNT);
            }
            return Ok(true);
        }
        let counted = self.count_down(id, actor, STEADY, left - 1).await?;
        steady.left = counted.map(|()| left - 1);
        if steady.left == Some(0) {
            steady.due = monotonic_nanos() + OPEN * NANOS;
            steady.opened_by_java = is_java;
        }
        Ok(true)
    }

    async fn count(&self, actor: &Actor, key: usize) -> Result<u32, Failure> {
        let (kind, names) = lock(Kind::Latch, key);
        let answer = actor.call(Call::new("count", kind, &names)).answer().await;
        match answer {
            Ok(answer) => Ok(serde_json::from_value(answer.value).expect("a count")),
            Err(Failure::Ended) => Err(Failure::Ended),
            Err(failure) => panic!("no count: {failure}"),
        }
    }

    async fn wait_for_latch(
        &self,
        id: Id,
        actor: &Actor,
        key: usize,
        wait: u64,
    ) -> Result<(), Failure> {
        let (kind, names) = lock(Kind::Latch, key);
        self.add(
            monotonic_nanos(),
            EventKind::Called {
                id,
                key: names[0].clone(),
                other_key: None,
                wait: Some(recorded_wait(wait)),
                lease: None,
                shared: true,
                leased: true,
            },
        );
        let call = Call::new("await", kind, &names).wait(wait);
        let answer = actor.call(call).answer().await;
        let event = match answer {
            Ok(answer) if answer.value == true => {
                self.granted.fetch_add(1, Ordering::Relaxed);
                EventKind::LatchOpened { id }
            }
            Ok(_) => EventKind::Refused {
                id,
                why: Refusal::Busy,
            },
            Err(failure) => return self.failed(id, failure),
        };
        self.add(monotonic_nanos(), event);
        Ok(())
    }

    /// Sets a latch. Returns whether it was set, or `None` after an error.
    async fn set(
        &self,
        id: Id,
        actor: &Actor,
        key: usize,
        count: u32,
    ) -> Result<Option<bool>, Failure> {
        let (kind, names) = lock(Kind::Latch, key);
        self.begin(id, &names[0], Change::Set);
        let call = Call::new("set_count", kind, &names).count(count);
        match actor.call(call).answer().await {
            Ok(answer) => {
                let is_set = answer.value == true;
                self.changed(id, u64::from(is_set));
                Ok(Some(is_set))
            }
            Err(failure) => self.failed(id, failure).map(|()| None),
        }
    }

    /// Counts a latch down to what is left. Returns `None` after an error.
    async fn count_down(
        &self,
        id: Id,
        actor: &Actor,
        key: usize,
        left: u32,
    ) -> Result<Option<()>, Failure> {
        let (kind, names) = lock(Kind::Latch, key);
        self.begin(id, &names[0], Change::CountDown);
        let call = Call::new("count_down", kind, &names);
        match actor.call(call).answer().await {
            Ok(_) => {
                self.changed(id, left.into());
                Ok(Some(()))
            }
            Err(failure) => self.failed(id, failure).map(|()| None),
        }
    }

    fn begin(&self, id: Id, key: &str, change: Change) {
        let key = key.to_owned();
        self.add(monotonic_nanos(), EventKind::Changing { id, key, change });
    }

    fn changed(&self, id: Id, answer: u64) {
        self.add(monotonic_nanos(), EventKind::Changed { id, answer });
    }

    fn failed(&self, id: Id, failure: Failure) -> Result<(), Failure> {
        if failure == Failure::Ended {
            return Err(failure);
        }
        let why = refusal(failure.to_string());
        self.add(monotonic_nanos(), EventKind::Refused { id, why });
        Ok(())
    }
}
