//! The slots of one server: how many attempts of a client may be unanswered there at the same time.
//!
//! A slot has to come back with the answer. A caller that is not polled any more does not notice its answer, and would keep its
//! slot. So a caller sends its attempt itself only while more than half of the slots are free, which is the usual case and
//! costs nothing more. Each other attempt is sent by a separate task, which waits for the slot, and gives it back when
//! the answer arrives.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::backend::{RedisBackend, restarted};
use crate::backend::{Backend, Fault, Target, cause};
use crate::config::{ATTEMPTS_AT_ONCE, ATTEMPTS_OF_CALLERS};
use crate::resource::key::Key;
use crate::sync::foreign;
use crate::sync::task::boxed;

/// Who sends an attempt.
pub(super) enum Sender {
    /// The caller, which keeps this slot until it has noticed the answer.
    Caller(OwnedSemaphorePermit),
    /// A task, which waits for one of these slots.
    Task(Arc<Semaphore>),
}

impl RedisBackend {
    pub(super) fn attempt_sender(&self, key: &Key) -> Result<Sender, Fault> {
        if let Some(left) = self.servers.grace_left(key) {
            return Err(restarted(left));
        }
        // Waiters attempt now and then.
        self.revive_subscriptions(key);
        let route = self.servers.route(key);
        let slots = route.with_node(|node| Arc::clone(node.attempt_slots()));
        // The check and the acquisition are two steps. If others are faster in between, the limit is exceeded by a few, which does no
        // harm: it only decides who sends.
        if slots.available_permits() > ATTEMPTS_AT_ONCE - ATTEMPTS_OF_CALLERS
            && let Ok(slot) = Arc::clone(&slots).try_acquire_owned()
        {
            return Ok(Sender::Caller(slot));
        }
        Ok(Sender::Task(slots))
    }

    /// Has a task wait for a slot, for at most the response timeout, and then `send`. If the caller has gone by the end, the
    /// owners of these targets are ended: the task may have sent the attempt after the caller had them ended.
    pub(super) async fn sent_by_task<T, F>(
        &self,
        slots: Arc<Semaphore>,
        targets: Vec<Target>,
        send: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let gone = || Fault::Unknown(cause("the task that sent the attempt has ended"));
        let me = self.me.upgrade().ok_or_else(gone)?;
        let (mut answer, answered) = oneshot::channel();
        let task = async move {
            let slot = tokio::select! {
                // Biased: an attempt of a caller that has gone is not sent.
                biased;
                () = answer.closed() => return,
                slot = timeout(me.response_timeout, slots.acquire_owned()) => slot,
            };
            let Some(slot) = slot.ok().and_then(Result::ok) else {
                let full = Fault::NotNow(cause("too many attempts are unanswered"));
                let _caller_may_have_gone = foreign::answer(answer, Err(full));
                return;
            };
            let outcome = tokio::select! {
                // Biased: if the caller has gone, the answer counts as unheard, and the owners are ended below.
                biased;
                () = answer.closed() => None,
                // Boxed: many tasks wait for a slot, and each would have room for sending.
                outcome = Box::pin(send(Arc::clone(&me))) => Some(outcome),
            };
            // Before the caller is woken: its next attempt finds the slot free.
            drop(slot);
            let is_heard = outcome.is_some_and(|outcome| foreign::answer(answer, outcome).is_ok());
            if !is_heard {
                for target in &targets {
                    // If this fails, the lease ends the owner.
                    let _ended = me.withdraw(target).await;
                }
            }
        };
        // Detached: the task ends the owners also if the caller is dropped. The answer comes over the channel.
        drop(tokio::spawn(boxed(task)));
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}
