//! Which operations wait, which of them go together, and when: plain data, without a server and without a runtime.

use std::collections::VecDeque;

use crate::config::{BATCH_BYTES, LEAST_IN_BATCH, MOST_IN_BATCH};

pub(crate) trait Collected {
    /// Whether it ends a hold. An end never queues behind an attempt.
    fn is_end(&self) -> bool;

    /// How many locks it is about.
    fn locks(&self) -> usize;

    /// What it adds to its batch.
    fn bytes(&self) -> usize;

    /// Whether anybody still wants it to be sent.
    fn is_wanted(&self) -> bool;
}

/// What a sender does. It sends one batch after the other, and ends when nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes its next batch as soon as it runs.
    Ready,
    /// It takes its first batch when the oldest operation has waited too long.
    Late,
    /// Its batch, of so many locks, is unanswered.
    UnderWay(usize),
}

/// What one runtime has under way to a server, and what waits to go there.
///
/// If anything waits, there is a sender that will take it. So few batches are under way that many operations go together. A further
/// one goes as soon as it is full, and what waits for an answer that takes long goes without it.
pub(crate) struct Collector<T> {
    /// So many batches are under way before what comes up next waits for an answer.
    batches: usize,
    /// The operations that were sent alone and are unanswered.
    alone: usize,
    /// The senders that are ready.
    ready: usize,
    /// The senders whose batches are unanswered.
    under_way: usize,
    /// The locks of these batches.
    sent: usize,
    /// There is a sender that comes late.
    has_late: bool,
    ends: VecDeque<T>,
    attempts: VecDeque<T>,
    /// The locks of what waits.
    waiting: usize,
    pub(crate) known: Known,
}

/// What a client knows of its server, and when it collects, the same for all its runtimes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// A batch was answered.
    is_proven: bool,
    /// Each operation goes alone.
    is_off: bool,
    /// So many unanswered operations go alone before others are collected.
    alone_at_once: usize,
}

impl Known {
    /// Nothing yet. Without batches, each operation goes alone.
    pub(crate) fn new(has_batches: bool, alone_at_once: usize) -> Self {
        Self {
            is_proven: false,
            is_off: !has_batches,
            alone_at_once,
        }
    }

    /// The same of a client that collects while anything is under way.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn collecting_always(self) -> Self {
        let alone_at_once = 1;
        Self {
            alone_at_once,
            ..self
        }
    }
}

impl<T: Collected> Collector<T> {
    /// `batches`: how many of them are under way before what comes up next waits for an answer.
    pub(crate) fn new(known: Known, batches: usize) -> Self {
        Self {
            batches,
            alone: 0,
            ready: 0,
            under_way: 0,
            sent: 0,
            has_late: false,
            ends: VecDeque::new(),
            attempts: VecDeque::new(),
            waiting: 0,
            known,
        }
    }

    /// Whether nothing is under way and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.unanswered() + self.ready + self.under_way == 0 && !self.has_late
    }

    /// How much is under way or waits.
    fn unanswered(&self) -> usize {
        self.alone + self.sent + self.waiting
    }

    /// Whether the next operation goes alone, because little is under way. If so, it counts as under way.
    pub(crate) fn begin_alone(&mut self) -> bool {
        let is_calm = self.waiting == 0 && self.unanswered() < self.known.alone_at_once;
        let goes = self.known.is_off || is_calm;
        self.alone += usize::from(goes);
        goes
    }

    /// An operation goes alone that was not sent with others.
    pub(crate) fn begin_alone_anyway(&mut self) {
        self.alone += 1;
    }

    /// An operation that went alone is answered, or its caller is gone.
    pub(crate) fn end_alone(&mut self) {
        self.alone = self.alone.saturating_sub(1);
    }

    /// Adds an operation to those that wait. Returns whether a further sender has to begin, and how.
    pub(crate) fn add(&mut self, operation: T) -> Option<Phase> {
        self.waiting += operation.locks();
        if operation.is_end() {
            self.ends.push_back(operation);
        } else {
            self.attempts.push_back(operation);
        }
        self.begin_sender()
    }

    /// Whether a further sender has to begin for what waits, and how.
    pub(crate) fn begin_sender(&mut self) -> Option<Phase> {
        let taken = self.ready.saturating_mul(self.share());
        let left = self.waiting.saturating_sub(taken);
        let has_room = self.ready + self.under_way < self.batches;
        if left > 0 && has_room || left >= MOST_IN_BATCH {
            self.ready += 1;
            return Some(Phase::Ready);
        }
        if left > 0 && !self.has_late {
            self.has_late = true;
            return Some(Phase::Late);
        }
        None
    }

    /// How many locks a batch has: a share of all that is unanswered, so that the server works on one batch while the client works on
    /// the others.
    fn share(&self) -> usize {
        let share = self.unanswered().div_ceil(self.batches);
        share.clamp(LEAST_IN_BATCH, MOST_IN_BATCH)
    }

    /// The next batch of a sender. If it is empty, the sender has ended. Otherwise the batch is under way.
    pub(crate) fn next_batch(&mut self, phase: Phase) -> Vec<T> {
        self.leave(phase);
        // Beside as many batches as there should be, only those that are late or enough for a full batch go, and then all that fit.
        let is_beside_others = phase == Phase::Late || self.under_way >= self.batches;
        let most = if is_beside_others {
            MOST_IN_BATCH
        } else {
            self.share()
        };
        let waiting = self.ends.len() + self.attempts.len();
        let mut batch = Vec::with_capacity(waiting.min(most));
        // Saturating, here and below: an operation that goes alone may be larger than the room.
        let (mut locks, mut bytes) = (most, BATCH_BYTES);
        'full: for line in [&mut self.ends, &mut self.attempts] {
            while let Some(next) = line.front() {
                let (of_next, is_wanted) = ((next.locks(), next.bytes()), next.is_wanted());
                let is_full = of_next.0 > locks || of_next.1 > bytes;
                // One that is larger than a whole batch goes alone.
                if is_wanted && is_full && !batch.is_empty() {
                    break 'full;
                }
                let next = line.pop_front();
                self.waiting = self.waiting.saturating_sub(of_next.0);
                if is_wanted {
                    locks = locks.saturating_sub(of_next.0);
                    bytes = bytes.saturating_sub(of_next.1);
                    self.sent += of_next.0;
                    batch.extend(next);
                }
            }
        }
        self.under_way += usize::from(!batch.is_empty());
        batch
    }

    /// A batch with so many locks was answered, or has failed. Its sender is ready.
    pub(crate) fn answered(&mut self, locks: usize) {
        self.leave(Phase::UnderWay(locks));
        self.ready += 1;
    }

    fn leave(&mut self, phase: Phase) {
        match phase {
            Phase::Ready => self.ready = self.ready.saturating_sub(1),
            Phase::UnderWay(locks) => {
                self.under_way = self.under_way.saturating_sub(1);
                self.sent = self.sent.saturating_sub(locks);
            }
            Phase::Late => self.has_late = false,
        }
    }

    /// A batch was carried out.
    pub(crate) fn proven(&mut self) {
        self.known.is_proven = true;
    }

    /// A server has refused a batch in words that say nothing of its operations. Returns whether it certainly did nothing of it: it
    /// has never carried out a batch, and is sent no more of them.
    pub(crate) fn refused(&mut self) -> bool {
        self.known.is_off |= !self.known.is_proven;
        !self.known.is_proven
    }

    /// A server cannot carry out batches: from now on, each operation goes alone.
    pub(crate) fn switch_off(&mut self) {
        self.known.is_off = true;
    }

    /// Takes all that wait. Their callers have to send them.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.waiting = 0;
        let ends = std::mem::take(&mut self.ends);
        ends.into_iter()
            .chain(std::mem::take(&mut self.attempts))
            .collect()
    }

    /// A sender has ended before nothing waited. Takes all that wait.
    pub(crate) fn sender_lost(&mut self, phase: Phase) -> Vec<T> {
        self.leave(phase);
        self.take_all()
    }
}

#[cfg(test)]
mod tests;
