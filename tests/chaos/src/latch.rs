//! What a worker does with a latch: waits for it, or counts it down and sets it again.

use distlock::{CountDownLatch, Error};
use tokio::time::sleep;

use super::intent::{Intent, Leave};
use super::time::stamp;
use super::worker::{Asking, Crew, refusal};
use crate::history::{Change, Id, What};
use distlock_tests::any_lock::COUNT;

/// One operation of a worker on a latch.
pub(super) struct Visit<'a> {
    crew: &'a Crew,
    id: Id,
    latch: &'a CountDownLatch,
    intent: &'a Intent,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        crew: &'a Crew,
        id: Id,
        latch: &'a CountDownLatch,
        intent: &'a Intent,
    ) -> Self {
        Self {
            crew,
            id,
            latch,
            intent,
        }
    }

    /// How many more operations came of it.
    pub(super) async fn pay(mut self) -> u32 {
        if !self.intent.counts {
            self.wait().await;
            return 0;
        }
        let left = self.latch.count_down();
        let left = self.change(Change::CountDown, left).await;
        // Not each time: who waits has to have time to see that it is over.
        if left != Some(0) || self.intent.leave == Leave::Release {
            return 0;
        }
        sleep(self.intent.work).await;
        self.id.number += 1;
        let set = async { self.latch.try_set_count(COUNT).await.map(u64::from) };
        self.change(Change::Set, set).await;
        1
    }

    async fn wait(&self) {
        let (id, key) = (self.id, self.intent.key.clone());
        let wait = self.intent.wait.unwrap_or_default();
        self.crew.now(What::Called {
            id,
            key,
            wait: Some(stamp(wait)),
            lease: None,
            shared: true,
            leased: true,
        });
        let asking = Asking::new(self.crew, id);
        asking.told(match self.latch.wait().timeout(wait).await {
            Ok(()) => What::LetGo { id },
            Err(error) => self.refused(&error),
        });
    }

    async fn change(
        &self,
        change: Change,
        answer: impl Future<Output = Result<u64, Error>>,
    ) -> Option<u64> {
        let (id, key) = (self.id, self.intent.key.clone());
        self.crew.now(What::Changing { id, key, change });
        let asking = Asking::new(self.crew, id);
        match answer.await {
            Ok(answer) => {
                asking.told(What::Changed { id, answer });
                Some(answer)
            }
            Err(error) => {
                asking.told(self.refused(&error));
                None
            }
        }
    }

    fn refused(&self, error: &Error) -> What {
        let (id, why) = (self.id, refusal(error));
        What::Refused { id, why }
    }
}
