//! A worker that campaigns for the leader of a key. Each term is a hold as any other.

use std::sync::Mutex;

use distlock::Current;
use futures_util::FutureExt;
use tokio::time::sleep;

use super::{Worker, WorkerContext, refusal};
use crate::history::{End, EventKind, Id, Timestamp};
use crate::planned_operation::PlannedOperation;
use crate::time::timestamp;

/// A run of a candidate. Each of its terms is an operation with a number of its own.
struct Campaign<'a> {
    context: &'a WorkerContext,
    key: &'a str,
    asks: Mutex<Asks>,
}

/// The next term, while the candidate attempts.
struct Asks {
    id: Id,
    is_answered: bool,
}

/// A term, until its body has ended or was dropped.
struct Term<'a> {
    campaign: &'a Campaign<'a>,
    id: Id,
    hold: Current,
}

impl Worker {
    /// Campaigns for the leader. Its body ends by itself; the candidate resigns if it does not lead in time.
    pub(super) async fn campaign(&mut self, planned: &PlannedOperation) {
        let (context, id) = (self.context.clone(), self.next);
        let campaign = Campaign {
            context: &context,
            key: &planned.key,
            asks: Mutex::new(Asks {
                id,
                is_answered: true,
            }),
        };
        campaign.asks(id);
        let leader = self.program[0].leader(&planned.key);
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
            let id = campaign.asks.lock().unwrap().id;
            let why = refusal(&error);
            context.now(EventKind::Refused { id, why });
        }
        self.next = campaign.asks.lock().unwrap().id;
    }
}

impl Campaign<'_> {
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
        let is_answered = false;
        *self.asks.lock().unwrap() = Asks { id, is_answered };
    }

    /// The candidate leads.
    fn leads(&self, term: u64) -> Option<Term<'_>> {
        let id = {
            let mut asks = self.asks.lock().unwrap();
            asks.is_answered = true;
            asks.id
        };
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
            self.context.now(EventKind::Abandoned { id: asks.id });
        }
    }
}

impl Term<'_> {
    fn deadline(&self) -> Timestamp {
        self.campaign.context.time.clock() + timestamp(self.hold.remaining())
    }
}

impl Drop for Term<'_> {
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
            let number = id.number + 1;
            self.campaign.asks(Id { number, ..id });
        }
    }
}
