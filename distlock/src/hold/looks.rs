//! Looks at the keys of waiters, also of those of latches, that have heard nothing for long: for all waiters of one client
//! from one task, in batches.
//!
//! Thousands of waiters cost the server a few commands a second, and only those whose key has changed repeat their attempt or
//! their read.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::Session;
use crate::backend::{Looked, Target};
use crate::config::{LOOK_BATCH, LOOK_WINDOW, RENEWALS_AT_ONCE};

/// The looks that one client's waiters wait for.
#[derive(Debug, Default)]
pub(super) struct Looks {
    wanted: Mutex<Vec<WantedLook>>,
    wake: Notify,
}

#[derive(Debug)]
struct WantedLook {
    target: Target,
    answer: oneshot::Sender<Looked>,
}

impl Looks {
    /// Asks for a look at the key of this target. The receiver fails if the server does not answer.
    pub(super) fn ask(&self, target: Target) -> oneshot::Receiver<Looked> {
        let (answer, looked) = oneshot::channel();
        self.wanted.lock().push(WantedLook { target, answer });
        self.wake();
        looked
    }

    /// Whether the task has anything to do.
    pub(super) fn has_work(&self) -> bool {
        !self.wanted.lock().is_empty()
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The looks that waiters still wait for, in batches.
    fn take(&self) -> Vec<Vec<WantedLook>> {
        let mut wanted = std::mem::take(&mut *self.wanted.lock());
        wanted.retain(|look| !look.answer.is_closed());
        let mut batches = Vec::new();
        while !wanted.is_empty() {
            let rest = wanted.split_off(wanted.len().min(LOOK_BATCH));
            batches.push(std::mem::replace(&mut wanted, rest));
        }
        batches
    }
}

/// The task of one client that looks.
pub(super) async fn run(session: Arc<Session>) {
    let looks = &session.looks;
    loop {
        if session.is_retired() {
            return;
        }
        if !looks.has_work() {
            looks.wake.notified().await;
            continue;
        }
        // More waiters come in the meantime and share the command.
        let together = session.now().after(LOOK_WINDOW);
        session.clock.sleep_until(together).await;
        let batches = stream::iter(looks.take());
        let looked = batches.for_each_concurrent(RENEWALS_AT_ONCE, |batch| look(&session, batch));
        looked.await;
    }
}

/// If the server does not answer, the waiters are not answered either.
async fn look(session: &Session, batch: Vec<WantedLook>) {
    let targets: Vec<Target> = batch.iter().map(|look| look.target.clone()).collect();
    if let Ok(looked) = session.backend.look(&targets).await {
        for (look, looked) in batch.into_iter().zip(looked) {
            // The waiter may have left meanwhile.
            let _gone = look.answer.send(looked);
        }
    }
}
