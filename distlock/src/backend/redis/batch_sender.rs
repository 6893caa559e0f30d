//! How attempts and releases travel: alone, or with those of other tasks. What that must not change is said in `batches`.

use std::sync::Arc;

use redis::Value;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::backend::RedisBackend;
use super::batches::{
    Alone, BatchKind, Caller, Collected, Collector, Here, Operation, Phase, Told, may_be_granted,
    read_answers,
};
use super::script::{Call, Fill, Script};
use crate::backend::{Fault, cause};
use crate::config::{MOST_IN_OPERATION, WAIT_FOR_OTHERS};
use crate::resource::key::Key;
use crate::sync::foreign;
use crate::sync::runtime::Id;

/// How an operation was sent that did not go alone at once.
enum Sent<'a> {
    /// With others.
    Together(Result<Value, Fault>),
    /// Not yet. It goes alone.
    NotYet(Alone<'a>),
}

impl RedisBackend {
    /// Runs the script of an attempt or of a release, or has the operation go with those of other tasks. One with many locks goes
    /// alone: its attempt would keep others from the rest of a batch. `key`: of its first lock.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and each command has room for this"
    )]
    pub(super) fn run_or_join(
        &self,
        kind: BatchKind,
        (key, locks): (&Key, usize),
        operation: &(dyn Fn() -> Operation + Sync),
        script: &Script,
        with: Fill<'_>,
    ) -> impl Future<Output = Result<Value, Fault>> {
        async move {
            // Without a runtime nothing could send a batch.
            let Some(here) = self.batches(kind).here() else {
                return self.run(key, script, with).await;
            };
            // Kept until the answer: while enough operations are under way alone, the next ones collect for a batch.
            let _alone = match here.alone() {
                Some(alone) => alone,
                None if locks > MOST_IN_OPERATION => here.alone_anyway(),
                None => match self.send_with_others(here, key, operation).await {
                    Sent::Together(answer) => return answer,
                    Sent::NotYet(alone) => alone,
                },
            };
            self.run(key, script, with).await
        }
    }

    /// Has an operation wait for the next batch, and waits for its answer.
    async fn send_with_others<'a>(
        &self,
        here: Here<'a>,
        key: &Key,
        operation: &(dyn Fn() -> Operation + Sync),
    ) -> Sent<'a> {
        // A caller without a connection waits for one in its own way.
        if self.servers.disconnected(key).is_some() {
            return Sent::NotYet(here.alone_anyway());
        }
        let (caller, waiting) = Caller::new();
        self.collect(here, operation().of(caller));
        match waiting.await {
            Ok(Told::Answer(answer)) => Sent::Together(answer),
            Ok(Told::NotSent) => Sent::NotYet(here.alone_anyway()),
            // Unknown, and not another try: the command may have been sent before the task ended.
            Err(_) => {
                let text = "the task that sent the command has ended";
                Sent::Together(Err(Fault::Unknown(cause(text))))
            }
        }
    }

    /// Adds an operation to those that wait, and begins a sender if there are too few.
    fn collect(&self, here: Here<'_>, operation: Operation) {
        let begins = here.with(|collector| collector.add(operation));
        self.begin_sender(here, begins);
    }

    /// Begins a sender in the caller's runtime, if one has to begin.
    fn begin_sender(&self, here: Here<'_>, begins: Option<Phase>) {
        if let (Some(phase), Some(backend)) = (begins, self.me.upgrade()) {
            let sender = Sender {
                backend,
                kind: here.kind(),
                runtime: here.runtime,
                phase: Some(phase),
            };
            // Nobody joins it. If its runtime ends, its drop gives the operations back to their callers.
            drop(tokio::spawn(sender.run()));
        }
    }

    /// Sends a batch, and tells each caller its answer. If this is dropped before, the callers find that out.
    async fn send_batch(&self, here: Here<'_>, first: Key, mut batch: Vec<Operation>) {
        let kind = here.kind();
        kind.arrange(&mut batch);
        let with = |call: Call| kind.add(&batch, call);
        let answer = self.run(&first, kind.script(), &with).await;
        match self.read(here, &first, answer, batch.len()) {
            Some(answers) => {
                foreign::each(batch.into_iter().zip(answers), |(operation, answer)| {
                    self.tell(here, operation, answer);
                })
            }
            None => send_back(batch),
        }
    }

    /// The answers of a batch whose first key is this one; `None` if the server did nothing of it, and each operation has to go
    /// alone.
    fn read(
        &self,
        here: Here<'_>,
        first: &Key,
        answer: Result<Value, Fault>,
        operations: usize,
    ) -> Option<Vec<Result<Value, Fault>>> {
        let fault = match answer {
            Ok(value) => {
                here.with(Collector::proven);
                // The answer to a command that goes alone names its server as well.
                let named = |fault| {
                    self.servers
                        .route(first)
                        .with_node(|node| node.of_answer(fault))
                };
                let answers = read_answers(value, operations).into_iter();
                return Some(answers.map(|answer| answer.map_err(named)).collect());
            }
            Err(fault) => fault,
        };
        match &fault {
            Fault::Unknown(_) | Fault::NotNow(_) | Fault::LoginDenied(_) => {
                // The operations that still wait go alone at once. As batches, each would wait for a connection after the other.
                send_back(here.with(Collector::take_all));
                Some(vec![Err(fault); operations])
            }
            // Possibly the fault of one key only. Each operation then finds out about its own key.
            Fault::Denied(..) | Fault::WrongType(_) | Fault::NumberGone => None,
            Fault::Unsupported { .. } => {
                here.with(Collector::switch_off);
                None
            }
            Fault::Protocol(cause) => {
                let is_refused = here.with(Collector::refused);
                let unknown = Fault::Unknown(Arc::clone(cause));
                (!is_refused).then(|| vec![Err(unknown); operations])
            }
        }
    }

    /// Tells a caller its answer. The attempt of a caller that was dropped is withdrawn: it may have been sent after its caller
    /// has withdrawn it. If that fails, the lease ends what it was granted.
    fn tell(&self, here: Here<'_>, operation: Operation, answer: Result<Value, Fault>) {
        // A rule of tests/model: attempt_of_a_dropped_caller_is_withdrawn.
        let may_be_granted = may_be_granted(&answer);
        if let Some(withdrawal) = operation.tell(answer, may_be_granted) {
            self.collect(here, withdrawal);
        }
    }
}

/// What sends one batch after the other, until nothing waits.
struct Sender {
    backend: Arc<RedisBackend>,
    kind: BatchKind,
    /// The runtime that it runs in, as its callers do.
    runtime: Id,
    /// `None` once it has ended.
    phase: Option<Phase>,
}

impl Sender {
    async fn run(mut self) {
        while let Some(phase) = self.phase {
            match phase {
                Phase::Late => sleep(WAIT_FOR_OTHERS).await,
                // The tasks that the last answers have woken run first, so that their operations go in this batch.
                Phase::Ready | Phase::UnderWay(_) => yield_now().await,
            }
            let here = self.backend.batches(self.kind).of(self.runtime);
            let (batch, begins) = here.with(|collector| {
                let batch = collector.next_batch(phase);
                // Long names may not all fit into one batch, so operations may be left for another sender.
                (batch, collector.begin_sender())
            });
            let locks = batch.iter().map(Operation::locks).sum();
            self.phase = batch.first().map(|_| Phase::UnderWay(locks));
            self.backend.begin_sender(here, begins);
            if let Some(first) = batch.first().and_then(Operation::key).cloned() {
                self.backend.send_batch(here, first, batch).await;
                here.with(|collector| collector.answered(locks));
                self.phase = Some(Phase::Ready);
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The loop has not ended as it should: the runtime has ended, or the waker of a caller has panicked. The operations
        // that still wait have no sender, so their callers send them.
        if let Some(phase) = self.phase {
            let here = self.backend.batches(self.kind).of(self.runtime);
            send_back(here.with(|collector| collector.sender_lost(phase)));
        }
    }
}

/// Tells callers that they have to send their operations by themselves.
fn send_back(operations: Vec<Operation>) {
    let callers = operations.into_iter().filter_map(Operation::into_caller);
    foreign::each(callers, |caller| {
        // A caller that has left needs nothing: its operation was not sent.
        let _has_left = caller.tell(Told::NotSent);
    });
}
