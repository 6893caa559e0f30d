//! One call of a latch: it is set, counted down, or awaited.

use std::sync::atomic::Ordering;

use distlock_chaos::history::{Change, EventKind, Id, Refusal};
use distlock_interop::{Actor, Call, Failure, Kind};
use distlock_tests::pulse::monotonic_nanos;
use rand::RngExt as _;

use super::{KEYS, Run, SHORTEST_WAIT, WAIT, lock, recorded_wait, refusal};

/// Redisson does not answer what is left of the count. After a count-down from 1, that is always 0.
const COUNT: u32 = 1;

impl Run {
    /// Sets a latch, counts it down, or waits for it.
    pub(super) async fn use_latch(&self, id: Id, actor: &Actor) -> Result<(), Failure> {
        let (key, drawn, wait) = {
            let mut random = rand::rng();
            let (key, drawn) = (random.random_range(0..KEYS), random.random_range(0..10));
            (key, drawn, random.random_range(SHORTEST_WAIT..WAIT))
        };
        let (_, names) = lock(Kind::Latch, key);
        let call = |op| Call::new(op, Kind::Latch, &names);
        match drawn {
            0..3 => {
                self.change(id, actor, Change::CountDown, call("count_down"))
                    .await
            }
            3..6 => {
                let call = call("set_count").count(COUNT);
                self.change(id, actor, Change::Set, call).await
            }
            _ => self.wait_for_latch(id, actor, call("await"), wait).await,
        }
    }

    async fn wait_for_latch(
        &self,
        id: Id,
        actor: &Actor,
        call: Call,
        wait: u64,
    ) -> Result<(), Failure> {
        self.add(
            monotonic_nanos(),
            EventKind::Called {
                id,
                key: call.names[0].clone(),
                other_key: None,
                wait: Some(recorded_wait(wait)),
                lease: None,
                shared: true,
                leased: true,
            },
        );
        let answer = actor.call(call.wait(wait)).answer().await;
        self.record(
            id,
            answer.map(|answer| match answer.value == true {
                true => {
                    self.granted.fetch_add(1, Ordering::Relaxed);
                    EventKind::LatchOpened { id }
                }
                false => EventKind::Refused {
                    id,
                    why: Refusal::Busy,
                },
            }),
        )
    }

    async fn change(
        &self,
        id: Id,
        actor: &Actor,
        change: Change,
        call: Call,
    ) -> Result<(), Failure> {
        let key = call.names[0].clone();
        self.add(monotonic_nanos(), EventKind::Changing { id, key, change });
        let answer = actor.call(call).answer().await;
        self.record(
            id,
            answer.map(|answer| {
                let is_set = change == Change::Set && answer.value == true;
                let answer = u64::from(is_set);
                EventKind::Changed { id, answer }
            }),
        )
    }

    fn record(&self, id: Id, answer: Result<EventKind, Failure>) -> Result<(), Failure> {
        let event = match answer {
            Ok(event) => event,
            Err(Failure::Ended) => return Err(Failure::Ended),
            Err(failure) => EventKind::Refused {
                id,
                why: refusal(failure.to_string()),
            },
        };
        self.add(monotonic_nanos(), event);
        Ok(())
    }
}
