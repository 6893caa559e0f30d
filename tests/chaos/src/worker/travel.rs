//! Holds that are detached by one worker, and attached or released by another one of its process.

use std::sync::{Arc, Mutex, PoisonError};

use distlock::{DetachedHold, Guard};
use distlock_tests::any_lock::LockKind;
use rand::RngExt;

use super::held::Held;
use super::{PendingAnswer, Worker, refusal};
use crate::history::{End, EventKind, Id};
use crate::panicking_waker::may_meet_a_panic;
use crate::planned_operation::PlannedOperation;

/// A detached hold.
#[derive(Clone, Debug)]
struct Traveller {
    hold: DetachedHold<Guard>,
    lock_kind: LockKind,
    from: Id,
}

/// The detached holds that no worker has attached or released yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Travellers(Arc<Mutex<Vec<Traveller>>>);

impl Travellers {
    fn add(&self, traveller: Traveller) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(traveller);
    }

    fn take(&self) -> Option<Traveller> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.pop()
    }
}

impl Held {
    /// Ends the guard, and leaves its hold to others.
    pub(super) fn detach(mut self, planned: &PlannedOperation) {
        let Some(guard) = self.take_ending() else {
            return;
        };
        let detached = guard.detach();
        match detached {
            Ok(hold) => {
                self.ended(End::Detached);
                self.context.travellers.add(Traveller {
                    hold,
                    lock_kind: planned.lock_kind,
                    from: self.id,
                });
            }
            // It was lost, or another guard of it has not ended: then it is released in the background.
            Err(_) => self.ended(End::Dropped),
        }
    }
}

impl Worker {
    /// Attaches a hold that others have detached, if there is one, or releases it. Some are met twice.
    pub(super) async fn meet_traveller(&mut self, planned: &PlannedOperation) {
        let choice = self.newest_random.random_range(0..8);
        let Some(traveller) = self.context.travellers.take() else {
            return;
        };
        if choice < 4 {
            self.context.travellers.add(traveller.clone());
        }
        let met = self.take_over(&traveller, planned, choice % 4 == 0);
        let _ended_early = may_meet_a_panic(met).await;
        self.next.number += 1;
    }

    async fn take_over(&mut self, traveller: &Traveller, planned: &PlannedOperation, frees: bool) {
        let (id, context) = (self.next, self.context.clone());
        context.now(EventKind::Called {
            id,
            key: traveller.hold.key().to_owned(),
            other_key: None,
            wait: Some(0),
            lease: None,
            shared: false,
            leased: true,
        });
        let from = traveller.from;
        context.now(EventKind::Takes { id, from });
        let asking = PendingAnswer::new(&context, id);
        let client = &self.program[0];
        if frees {
            asking.report(match client.release_detached(&traveller.hold).await {
                Ok(()) => EventKind::Freed { id },
                Err(error) => {
                    let why = refusal(&error);
                    EventKind::Refused { id, why }
                }
            });
            return;
        }
        let attached = client.attach(&traveller.hold).await;
        if let Some(hold) = asking.answered(attached) {
            let planned = PlannedOperation {
                key: traveller.hold.key().to_owned(),
                lock_kind: traveller.lock_kind,
                lease: None,
                more: None,
                work: planned.work,
                ..PlannedOperation::patient(traveller.lock_kind, "")
            };
            self.hold(hold, &planned).await;
        }
    }
}
