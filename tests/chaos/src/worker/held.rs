//! A hold of a worker, and calls that are not answered yet: what each records, also if it is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use distlock::{Error, Guard};

use super::WorkerContext;
use crate::history::{End, EventKind, Id, Refusal};
use crate::planned_operation::Leave;

/// An acquisition that is not answered yet.
pub(crate) struct PendingAnswer<'a> {
    context: &'a WorkerContext,
    id: Id,
    answered: bool,
}

impl<'a> PendingAnswer<'a> {
    pub(crate) fn new(context: &'a WorkerContext, id: Id) -> Self {
        Self {
            context,
            id,
            answered: false,
        }
    }

    /// Records an answer that is not a hold.
    pub(crate) fn report(mut self, what: EventKind) {
        self.answered = true;
        self.context.now(what);
    }

    pub(super) fn answered(mut self, answer: Result<Guard, Error>) -> Option<Held> {
        self.answered = true;
        let (context, id) = (self.context, self.id);
        match answer {
            Ok(guard) => {
                let (owner, deadline) = (guard.owner().to_string(), context.deadline(&guard));
                context.now(EventKind::Granted {
                    id,
                    owner,
                    deadline,
                    token: guard.fencing_token(),
                });
                let (context, guard) = (context.clone(), Some(guard));
                Some(Held { context, id, guard })
            }
            Err(error) => {
                let why = refusal(&error);
                context.now(EventKind::Refused { id, why });
                None
            }
        }
    }
}

pub(crate) fn refusal(error: &Error) -> Refusal {
    match error {
        _ if error.is_busy() => Refusal::Busy,
        _ if error.is_unavailable() => Refusal::Unavailable,
        Error::Denied { .. } => Refusal::Denied,
        Error::Lost { .. } => Refusal::Lost,
        other => Refusal::Other(other.to_string()),
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.context.now(EventKind::Abandoned { id: self.id });
        }
    }
}

/// A hold. On drop it records its end before it ends.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) context: WorkerContext,
    pub(super) id: Id,
    guard: Option<Guard>,
}

impl Held {
    pub(super) fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("held until it is left")
    }

    pub(super) fn report(&self) {
        self.context.now(EventKind::LossReported { id: self.id });
    }

    fn ending(&self, guard: &Guard) {
        let deadline = self.context.deadline(guard);
        self.context.now(EventKind::Ending {
            id: self.id,
            deadline,
        });
    }

    /// The guard, whose end begins now.
    pub(super) fn take_ending(&mut self) -> Option<Guard> {
        let guard = self.guard.take()?;
        self.ending(&guard);
        Some(guard)
    }

    pub(super) fn ended(&self, how: End) {
        self.context.now(EventKind::Ended { id: self.id, how });
    }

    /// Ends the hold, or returns it if its lease has to end it.
    pub(super) async fn leave(mut self, how: Leave) -> Option<Self> {
        match how {
            Leave::Drop => None,
            Leave::Forget => {
                self.ended(End::Left);
                Some(self)
            }
            Leave::Release => {
                let guard = self.take_ending()?;
                let releasing = PendingReleaseAnswer {
                    held: &self,
                    answered: false,
                };
                releasing.answered(guard.release().await);
                None
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(guard) = self.take_ending() {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(guard)));
            self.ended(End::Dropped);
            // A second panic of a thread ends the process.
            if let Err(panic) = dropped
                && !thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

/// A release that is not answered yet.
struct PendingReleaseAnswer<'a> {
    held: &'a Held,
    answered: bool,
}

impl PendingReleaseAnswer<'_> {
    fn answered(mut self, answer: Result<(), Error>) {
        self.answered = true;
        self.held.ended(match answer {
            Ok(()) => End::Released,
            Err(Error::Lost { .. }) => End::Lost,
            Err(error) if error.is_unavailable() => End::Unanswered,
            // The server refuses the release, so the lease ends the hold.
            Err(Error::Denied { .. }) => End::Unanswered,
            Err(error) => End::Other(error.to_string()),
        });
    }
}

impl Drop for PendingReleaseAnswer<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.held.ended(End::Dropped);
        }
    }
}
