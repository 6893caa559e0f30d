//! The operations of a worker on a latch: waiting for it, or counting it down and setting it again.

use distlock::{CountDownLatch, Error};
use tokio::time::sleep;

use super::planned_operation::{Leave, PlannedOperation};
use super::time::timestamp;
use super::worker::{PendingAnswer, WorkerContext, refusal};
use crate::history::{Change, EventKind, Id};
use distlock_tests::any_lock::COUNT;

/// One operation of a worker on a latch.
pub(super) struct LatchOperation<'a> {
    context: &'a WorkerContext,
    id: Id,
    latch: &'a CountDownLatch,
    planned: &'a PlannedOperation,
}

impl<'a> LatchOperation<'a> {
    pub(super) fn new(
        context: &'a WorkerContext,
        id: Id,
        latch: &'a CountDownLatch,
        planned: &'a PlannedOperation,
    ) -> Self {
        Self {
            context,
            id,
            latch,
            planned,
        }
    }

    /// Runs it. Returns the number of further operations that it made.
    pub(super) async fn run(mut self) -> u32 {
        if !self.planned.counts {
            self.wait().await;
            return 0;
        }
        let left = self.latch.count_down();
        let left = self.change(Change::CountDown, left).await;
        // Not each time: waiters need time to see the count at 0.
        if left != Some(0) || self.planned.leave == Leave::Release {
            return 0;
        }
        sleep(self.planned.work).await;
        self.id.number += 1;
        let set = async { self.latch.try_set_count(COUNT).await.map(u64::from) };
        self.change(Change::Set, set).await;
        1
    }

    async fn wait(&self) {
        let (id, key) = (self.id, self.planned.key.clone());
        let wait = self.planned.wait.unwrap_or_default();
        self.context.now(EventKind::Called {
            id,
            key,
            other_key: None,
            wait: Some(timestamp(wait)),
            lease: None,
            shared: true,
            leased: true,
        });
        let asking = PendingAnswer::new(self.context, id);
        asking.report(match self.latch.wait().timeout(wait).await {
            Ok(()) => EventKind::LatchOpened { id },
            Err(error) => self.refused(&error),
        });
    }

    async fn change(
        &self,
        change: Change,
        answer: impl Future<Output = Result<u64, Error>>,
    ) -> Option<u64> {
        let (id, key) = (self.id, self.planned.key.clone());
        self.context.now(EventKind::Changing { id, key, change });
        let asking = PendingAnswer::new(self.context, id);
        match answer.await {
            Ok(answer) => {
                asking.report(EventKind::Changed { id, answer });
                Some(answer)
            }
            Err(error) => {
                asking.report(self.refused(&error));
                None
            }
        }
    }

    fn refused(&self, error: &Error) -> EventKind {
        let (id, why) = (self.id, refusal(error));
        EventKind::Refused { id, why }
    }
}
