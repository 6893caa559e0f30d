//! A worker that campaigns for the leader of a key. Each term is a hold as any other.

use std::sync::Mutex;

use distlock::Current;
use distlock::test_util::scope_held_until;
use futures_util::FutureExt;
use tokio::time::sleep;

use super::{Worker, WorkerContext, refusal};
use crate::history::{End, EventKind, Id, Timestamp};
use crate::planned_operation::PlannedOperation;

/// A run of a candidate. Each of its terms is an operation with a number of its own.
struct Campaign<'a> {
    context: &'a WorkerContext,
    key: &'a str,
    asks: Mutex<Asks<'a>>,
}

/// The next term, while the candidate attempts.
struct Asks<'a> {
    /// Of the worker, which goes on after it, also if a panic ends the campaign.
    id: &'a mut Id,
    is_answered: bool,
}

/// A term, until its body has ended or was dropped.
struct Term<'c, 'a> {
    campaign: &'c Campaign<'a>,
    id: Id,
    hold: Current,
}

impl Worker {
    /// Campaigns for the leader. Its body ends by itself; the candidate resigns if it does not lead in time.
    pub(super) async fn campaign(&mut self, planned: &PlannedOperation) {
        let (context, id) = (self.context.clone(), self.next);
        let leader = self.program[0].leader(&planned.key);
        let campaign = Campaign {
            context: &context,
            key: &planned.key,
            asks: Mutex::new(Asks {
                id: &mut self.next,
                is_answered: true,
            }),
        };
        campaign.asks(id);
        let (campaign, work) = (&campaign, planned.work);
        let run = leader.run(move |term| async move {
            let leading = campaign.leads(term);
            sleep(work).await;
            drop(leading);
        });
        let patience = planned.wait.unwrap_or(context.workload.wait);
        let mut run = Box::pin(run);
        let ended = tokio::select! {
            biased;
            ended = &mut run => ended,
            () = sleep(patience) => tokio::join!(run, leader.resign()).0,
        };
        // A loss at the release was too late for the body.
        if let Err(error) = ended
            && !error.is_lost()
        {
            let id = *campaign.asks.lock().unwrap().id;
            let why = refusal(&error);
            context.now(EventKind::Refused { id, why });
        }
    }
}

impl<'a> Campaign<'a> {
    /// The candidate attempts for its next term.
    fn asks(&self, id: Id) {
        self.context.now(EventKind::Called {
            id,
            key: self.key.to_owned(),
            other_key: None,
            wait: None,
            lease: None,
            shared: false,
            leased: true,
        });
        let mut asks = self.asks.lock().unwrap();
        (*asks.id, asks.is_answered) = (id, false);
    }

    /// The attempt that is answered now.
    fn answered(&self) -> Id {
        let (id, was_answered) = {
            let mut asks = self.asks.lock().unwrap();
            (*asks.id, std::mem::replace(&mut asks.is_answered, true))
        };
        if !was_answered {
            return id;
        }
        // The term before was lost, and the answer to a renewal came before its body was dropped: it saw no loss.
        self.asks(id.next());
        self.answered()
    }

    /// The candidate leads.
    fn leads(&self, term: u64) -> Option<Term<'_, 'a>> {
        let id = self.answered();
        let hold = distlock::current(self.key)?;
        let leading = Term {
            campaign: self,
            id,
            hold,
        };
        self.context.now(EventKind::Granted {
            id,
            owner: leading.hold.owner().to_string(),
            deadline: leading.deadline(),
            token: Some(term),
        });
        Some(leading)
    }
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        let asks = self.asks.lock().unwrap();
        if !asks.is_answered {
            self.context.now(EventKind::Abandoned { id: *asks.id });
        }
    }
}

impl Term<'_, '_> {
    fn deadline(&self) -> Timestamp {
        let hold = &self.hold;
        let context = self.campaign.context;
        context.deadline_of(|| hold.remaining(), || scope_held_until(hold))
    }
}

impl Drop for Term<'_, '_> {
    fn drop(&mut self) {
        let (context, id) = (self.campaign.context, self.id);
        let is_lost = self.hold.lost().now_or_never().is_some();
        if is_lost {
            context.now(EventKind::LossReported { id });
        }
        let deadline = self.deadline();
        context.now(EventKind::Ending { id, deadline });
        let how = End::Dropped;
        context.now(EventKind::Ended { id, how });
        if is_lost {
            self.campaign.asks(id.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;

    use distlock::{Client, MemoryServer};
    use distlock_tests::any_lock::LockKind;
    use distlock_tests::resource::{Resource, ResourceHandle};
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::history::History;
    use crate::planned_operation::Workload;
    use crate::time::{Time, timestamp};
    use crate::worker::{Sink, Worker};

    const LEASE: Duration = Duration::from_secs(2);

    fn context(history: &History) -> WorkerContext {
        let workload = Workload {
            lock_kind: LockKind::Fenced,
            lease: LEASE,
            margin: Duration::ZERO,
            work: Duration::ZERO,
            long: 0,
            unpolled: 0,
            panics: 0,
            pause: Duration::ZERO,
            wait: LEASE,
            keys: Vec::new(),
        };
        WorkerContext {
            process: 0,
            seed: 0,
            workload,
            time: Time::paused(),
            sink: Sink::History(history.clone()),
            flaw: None,
            travellers: Default::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn term_of_a_process_that_stood_still_has_ended_with_its_lease() {
        let history = History::default();
        let context = context(&history);
        let builder = Client::builder().watchdog_timeout(LEASE);
        let client = builder.in_memory(&MemoryServer::new()).unwrap();
        let program: Arc<[Client]> = Arc::new([client]);
        let resource = ResourceHandle::Local(Resource::default());
        let mut worker = Worker::new(&context, 0, &program, resource);
        let planned = PlannedOperation {
            // The lead is lost while the body is in it.
            work: LEASE * 10,
            ..PlannedOperation::patient(LockKind::Fenced, "key")
        };
        let stands_still = async {
            // By then it leads, and nothing is polled while the time advances.
            advance(LEASE * 3).await;
            pending::<()>().await
        };
        let campaign = async { tokio::join!(worker.campaign(&planned), stands_still) };
        let _it_goes_on = timeout(LEASE * 4, campaign).await;
        let deadline = history
            .events()
            .into_iter()
            .find_map(|event| match event.what {
                EventKind::Ending { deadline, .. } => Some(deadline),
                _ => None,
            });
        assert_eq!(deadline, Some(timestamp(LEASE)));
    }
}
